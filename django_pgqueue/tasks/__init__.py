"""What people declare: tasks, their options and keys.

task, decorator  ``Task`` and ``@task``
options          the values of options
keys, unique     concurrency limits, rates and groups; which calls are not enqueued again
links            what a call waits for, its batch, and public ids
retry            when a failed attempt is tried again
signatures       whether arguments fit
paths, registry  the path of a task; the tasks of all apps
routing          which backend and which database
call             one call: it is checked, and its keys are computed
payload          what ``@task(payload=...)`` accepts, and the payload of one call
"""

from __future__ import annotations
