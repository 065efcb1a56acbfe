"""Schedules: the list, the page of one, and what can be done with them."""
