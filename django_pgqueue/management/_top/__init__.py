"""``manage.py pgqueue top``: the queue, live in a terminal.

``panes`` reads the figures and turns them into rows of text, ``drawing`` into lines that fit, which are
shown as plain text or by ``rich_screen``. ``live`` reads in a thread, so that a key works while the database
is slow.
"""

from __future__ import annotations
