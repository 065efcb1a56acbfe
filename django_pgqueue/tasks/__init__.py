"""What people declare: tasks, their options and keys.

task, decorator  ``Task`` and ``@task``
options          the values of options
keys, unique     concurrency limits, rates and groups; which calls are not enqueued again
link, links      what a call waits for, and its batch
retry            when a failed attempt is tried again
signatures       whether arguments fit
paths, registry  the path of a task; the tasks of all apps
routing          which backend and which database
results          what ``django.tasks`` sees of a job
"""

from __future__ import annotations
