"""The overview: is the queue well?

page.py    the page and its two parts that are read again
cures.py   the problems, and what helps
tiles.py, charts.py, rows.py   its parts
limits.py  the limits of queues
pauses.py  the buttons that pause and resume a queue
"""
