"""What is about PostgreSQL and connections to it, and knows nothing of jobs.

session     a connection of the worker's own, with its prepared statements
liveness    dead connections, and answers that never come
clock       the clock of the database
timeout     a time limit for statements
lock_retry  locks that migrations take for a moment only
roles       two roles with few rights
settings    which databases are the same one
arrays      values as the arrays of a statement
"""

from __future__ import annotations
