"""The public names of django_pgqueue, a PostgreSQL job queue for Django.

They are resolved on first use (PEP 562). Importing this package therefore imports neither Django nor a model,
and an app may import its tasks before the app registry is ready.
"""

from __future__ import annotations

TYPE_CHECKING = False  # set here so that ``typing`` need not be imported

__all__ = [
    "Batch",
    "BatchCounts",
    "BatchOver",
    "BoundTask",
    "CancelJob",
    "Concurrency",
    "CurrentJob",
    "JobContext",
    "JobExists",
    "JobIsOver",
    "JobPayload",
    "LeaseLost",
    "ParentGone",
    "Parents",
    "Rate",
    "RateLimit",
    "RetryLater",
    "Snooze",
    "StepError",
    "Suspended",
    "Task",
    "TaskTimeout",
    "Unique",
    "WaitTimeout",
    "Why",
    "acancel",
    "achain",
    "adrain",
    "aedit",
    "aenqueue",
    "aenqueue_many",
    "aexplain",
    "aextend",
    "apause",
    "aresume",
    "aretry",
    "aset_limit",
    "asignal",
    "cancel",
    "chain",
    "current_job",
    "drain",
    "edit",
    "enqueue",
    "enqueue_many",
    "explain",
    "extend",
    "pause",
    "rate_limit",
    "resume",
    "retry",
    "schedule",
    "set_limit",
    "signal",
    "step",
    "task",
    "track",
]

if TYPE_CHECKING:
    from .exceptions import (
        BatchOver,
        CancelJob,
        JobExists,
        JobIsOver,
        LeaseLost,
        ParentGone,
        RetryLater,
        Snooze,
        StepError,
        Suspended,
        TaskTimeout,
        WaitTimeout,
    )
    from .explanation import Why, aexplain, explain
    from .jobs.batches import Batch, achain, chain
    from .jobs.control import acancel, adrain, aedit, aextend, aretry, cancel, drain, edit, extend, retry
    from .jobs.current import JobContext, current_job
    from .jobs.enqueue import aenqueue, aenqueue_many, enqueue, enqueue_many
    from .jobs.limits import RateLimit, aset_limit, rate_limit, set_limit
    from .jobs.pause import apause, aresume, pause, resume
    from .jobs.steps import asignal, signal, step
    from .jobs.track import track
    from .models.batch import BatchCounts
    from .models.current import CurrentJob
    from .models.parents import Parents
    from .models.payload import JobPayload
    from .schedules.declare import schedule
    from .tasks.decorator import task
    from .tasks.keys import Concurrency, Rate
    from .tasks.task import BoundTask, Task
    from .tasks.unique import Unique
else:
    _HOMES = {
        "tasks.keys": ("Concurrency", "Rate"),
        "tasks.decorator": ("task",),
        "tasks.task": ("BoundTask", "Task"),
        "exceptions": (
            "BatchOver",
            "CancelJob",
            "JobExists",
            "JobIsOver",
            "LeaseLost",
            "ParentGone",
            "RetryLater",
            "Snooze",
            "StepError",
            "Suspended",
            "TaskTimeout",
            "WaitTimeout",
        ),
        "jobs.current": ("JobContext", "current_job"),
        "jobs.batches": ("Batch", "achain", "chain"),
        "jobs.control": (
            "acancel",
            "aedit",
            "aextend",
            "aretry",
            "cancel",
            "edit",
            "extend",
            "retry",
            "adrain",
            "drain",
        ),
        "jobs.enqueue": ("aenqueue", "aenqueue_many", "enqueue", "enqueue_many"),
        "jobs.limits": ("aset_limit", "set_limit", "RateLimit", "rate_limit"),
        "jobs.pause": ("apause", "aresume", "pause", "resume"),
        "jobs.steps": ("asignal", "signal", "step"),
        "jobs.track": ("track",),
        "models.batch": ("BatchCounts",),
        "models.current": ("CurrentJob",),
        "models.parents": ("Parents",),
        "models.payload": ("JobPayload",),
        "schedules.declare": ("schedule",),
        "tasks.unique": ("Unique",),
        "explanation": ("Why", "aexplain", "explain"),
    }
    _HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

    def __getattr__(name):
        if name not in _HOME_OF:
            if name.endswith("Backend"):
                # A wrong BACKEND in TASKS. Of an AttributeError, Django would not show the words.
                raise ImportError(
                    f"{__name__} has no {name!r}. The task backend is "
                    f'"{__name__}.backend.PgQueueBackend": write that as BACKEND in TASKS.'
                )
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
