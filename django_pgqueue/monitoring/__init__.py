"""Figures of the queue, for the admin, the commands, the metrics and the health check alike.

What ran comes from the statistics (``spans``, ``totals``), what waits from the leaf of live jobs with counts
that end at a limit (``depth``), who works from the table of workers (``crew``). ``health`` compares them
with the thresholds of the settings. Nothing here reads the history of jobs, so the time that it takes depends
neither on the history nor on the backlog.
"""

from __future__ import annotations
