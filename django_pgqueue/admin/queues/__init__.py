"""Queues: the list (``list.py``), the page of one (``page.py``), and their settings (``admin.py``)."""
