"""Data of a made-up shop, to look at the admin with: ``manage.py seed_demo``.

    seed.py        make everything, remove it, and say whether the database is in use
    shop.py        the tasks of the shop, and how they fail
    history.py     finished jobs, with the statistics that count them, and a backlog, in a few statements
    stories.py     a few jobs of every other kind, by the functions of the queue
    crew.py        workers without a process, and their heartbeats

What belongs to the demonstration has a queue whose name begins with ``demo-``, or a task of ``demoshop``.
"""

from __future__ import annotations
