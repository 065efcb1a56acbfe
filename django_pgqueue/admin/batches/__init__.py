"""Batches: a list with their numbers as bars, a page for each, and the actions on them.

admin.py    the list and the page
fields.py   the state of a batch, and its numbers
actions.py  cancel, and run failed jobs again
"""
