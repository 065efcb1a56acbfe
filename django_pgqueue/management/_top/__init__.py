"""``manage.py pgqueue top``: the queue, live in a terminal.

``reading`` reads the figures, ``panes`` turns them into rows of text, ``drawing`` into lines that fit, and
``plain_screen`` or ``rich_screen`` shows them. ``live`` reads in a thread, so that a key works while the
database is slow, ``keyboard`` reads the keys, and ``view`` knows what they have chosen.
"""

from __future__ import annotations
