"""The admin in a real browser, with the data of ``manage.py seed_demo``: ``tox run -e browser``.

The browser is Chromium of the system. ``settings.py`` adds the static files and a strict content security
policy. Whatever the browser complains about fails the test: see ``faults.py``.
"""

from __future__ import annotations
