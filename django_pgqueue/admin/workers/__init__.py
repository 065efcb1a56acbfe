"""Workers: the list and the page of one.

admin  the admin class, what a worker runs and has run, and the buttons that ask workers to end
fleet  which workers are alive, by their heartbeats, and which queues they serve
"""
