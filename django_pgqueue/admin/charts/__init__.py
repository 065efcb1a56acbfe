"""Figures as drawings: charts over a span, small lines, and bars.

chart.py        a chart is a table of figures from which a script draws; span_charts.py those of a task or
                a queue
span_tabs.py    the choice of the span
sparkline.py    small lines; gauge.py bars; both drawn by the server
percentiles.py  percentiles of histograms in words
"""
