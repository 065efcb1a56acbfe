"""The public names of django_pgqueue, a PostgreSQL job queue for Django.

They are resolved on first use (PEP 562). Importing this package therefore imports neither Django nor a model,
and an app may import its tasks before the app registry is ready.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # set here so that ``typing`` need not be imported

__all__ = [
    "Batch", "BatchCounts", "BatchFinished", "BoundTask", "CancelJob", "Concurrency", "CurrentJob",
    "EventTimeout", "InvalidTask", "Job", "JobContext", "JobExists", "JobFinished", "JobList", "JobPayload",
    "LeaseLost", "ParentGone", "Parents", "PgQueueError", "RateLimit", "RateLimiter", "Reason", "RetryLater",
    "Schedule", "ShardsFailed", "Snooze", "StepError", "Task", "TaskTimeout", "Unique", "acancel", "achain",
    "adrain_worker", "aedit", "aenqueue", "aenqueue_many", "aextend", "aon_shards", "apause", "areset_limit",
    "aresume", "aretry", "arun_now", "asend_event", "aset_limit", "awhy", "cancel", "chain", "current_job",
    "drain_worker", "edit", "enqueue", "enqueue_many", "extend", "on_shards", "pause", "reset_limit",
    "resume", "retry", "run_now", "schedule", "send_event", "set_limit", "shard_for", "step", "task", "track",
    "why",
]  # fmt: skip

if TYPE_CHECKING:
    from .compat import InvalidTask
    from .exceptions import (
        BatchFinished,
        CancelJob,
        EventTimeout,
        JobExists,
        JobFinished,
        LeaseLost,
        ParentGone,
        PgQueueError,
        RetryLater,
        ShardsFailed,
        Snooze,
        StepError,
        TaskTimeout,
    )
    from .explanation import Reason, awhy, why
    from .jobs.batches import Batch, achain, chain
    from .jobs.current import JobContext, current_job, track
    from .jobs.enqueue import JobList, aenqueue, aenqueue_many, enqueue, enqueue_many
    from .jobs.limits import (
        RateLimiter,
        adrain_worker,
        aon_shards,
        apause,
        areset_limit,
        aresume,
        aset_limit,
        drain_worker,
        on_shards,
        pause,
        reset_limit,
        resume,
        set_limit,
    )
    from .jobs.steps import asend_event, send_event, step
    from .models.batch import BatchCounts, Parents
    from .models.changes import (
        acancel,
        aedit,
        aextend,
        aretry,
        arun_now,
        cancel,
        edit,
        extend,
        retry,
        run_now,
    )
    from .models.current import CurrentJob
    from .models.job import Job, JobPayload
    from .models.schedule import Schedule
    from .schedules.declare import schedule
    from .tasks.decorator import task
    from .tasks.keys import Concurrency, RateLimit
    from .tasks.shards import shard_for
    from .tasks.task import BoundTask, Task
    from .tasks.unique import Unique
else:

    def _lazily(namespace, homes):
        """Return the ``__getattr__`` of a package whose names are in these modules."""
        package = namespace["__name__"]
        home_of = {name: home for home, names in homes.items() for name in names.split()}

        def resolve(name):
            if name not in home_of:
                from .tasks.misuse import check_import

                check_import(package, name)
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            from importlib import import_module

            value = namespace[name] = getattr(import_module(f"{package}.{home_of[name]}"), name)
            return value

        return resolve

    __getattr__ = _lazily(globals(), {
        "compat": "InvalidTask",
        "exceptions": "BatchFinished CancelJob EventTimeout JobExists JobFinished LeaseLost ParentGone "
            "PgQueueError RetryLater ShardsFailed Snooze StepError TaskTimeout",
        "explanation": "Reason awhy why",
        "jobs.batches": "Batch achain chain",
        "jobs.current": "JobContext current_job track",
        "jobs.enqueue": "JobList aenqueue aenqueue_many enqueue enqueue_many",
        "jobs.limits": "RateLimiter adrain_worker aon_shards apause areset_limit aresume aset_limit "
            "drain_worker on_shards pause reset_limit resume set_limit",
        "jobs.steps": "asend_event send_event step",
        "models.batch": "BatchCounts Parents",
        "models.changes": "acancel aedit aextend aretry arun_now cancel edit extend retry run_now",
        "models.current": "CurrentJob",
        "models.job": "Job JobPayload",
        "models.schedule": "Schedule",
        "schedules.declare": "schedule",
        "tasks.decorator": "task",
        "tasks.keys": "Concurrency RateLimit",
        "tasks.shards": "shard_for",
        "tasks.task": "BoundTask Task",
        "tasks.unique": "Unique",
    })  # fmt: skip

    def __dir__():
        return __all__
