"""Failures by group: the list, the page of a group, and the block of the overview.

pages.py   the pages, and the buttons that mute a group
rows.py    what they show of a group
block.py   the largest groups, for the overview and the page of a task
traces.py  the part of a traceback that lies in the project
"""
