"""The overview: is the queue well?

page   the page, its charts, the problems with what helps, and the buttons that pause and resume a queue
tiles  the four tiles
rows   queues and workers
"""
