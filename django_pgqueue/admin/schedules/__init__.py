"""Schedules: the list, the page of one, and what can be done with them.

admin    the admin class, its columns, its form, its buttons and its actions
page     how a schedule is shown, and the top of its page
actions  what can be done with a schedule
"""
