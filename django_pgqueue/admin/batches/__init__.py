"""Batches: a list with their numbers as bars, a page for each, and the actions on them.

admin   the list, the page, and the actions: cancel, and run failed jobs again
fields  the state of a batch, and its numbers
"""
