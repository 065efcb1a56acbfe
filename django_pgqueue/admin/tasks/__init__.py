"""Tasks: the list (``list.py``), the page of one (``page.py``), and its options in words (``policy.py``).

``admin.py`` has the addresses of these pages, and of that of the database.
"""
