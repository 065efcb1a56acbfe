"""Schedules: the list, the page of one, and what can be done with them.

admin.py    the admin class
fields.py   the columns of the list; page.py the top of the page; form.py the form
actions.py  what can be done with a schedule; buttons.py the buttons, actions and confirmation for it
"""
