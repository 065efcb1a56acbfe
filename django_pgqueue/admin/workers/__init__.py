"""Workers: the list and the page of one.

admin.py  the admin class; page.py what a worker runs and has run
fleet.py  which workers are alive, by their heartbeats, and which queues they serve
drain.py  the buttons and the action that ask workers to end
"""
