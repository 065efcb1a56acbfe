"""Tasks: the list (``list``), and the page of one with its options in words (``page``).

``admin`` has the addresses of these pages, and of that of the database.
"""
