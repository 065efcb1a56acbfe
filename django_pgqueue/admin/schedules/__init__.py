"""Schedules: the list, the page of one, and what can be done with them.

admin    the admin class, its form, its buttons and its actions
fields   the columns of the list
page     the top of the page
actions  what can be done with a schedule
"""
