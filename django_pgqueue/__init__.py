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
    from .concurrency import Concurrency
    from .decorator import task
    from .definition import BoundTask, Task
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
    from .job_context import JobContext
    from .lifecycle.batches import Batch
    from .lifecycle.chain import achain, chain
    from .lifecycle.control import acancel, aedit, aextend, aretry, cancel, edit, extend, retry
    from .lifecycle.current import current_job
    from .lifecycle.drain import adrain, drain
    from .lifecycle.enqueue import aenqueue, aenqueue_many, enqueue, enqueue_many
    from .lifecycle.limits import aset_limit, set_limit
    from .lifecycle.pause import apause, aresume, pause, resume
    from .lifecycle.rate_limit import RateLimit, rate_limit
    from .lifecycle.signal import asignal, signal
    from .lifecycle.steps import step
    from .lifecycle.track import track
    from .models.batch import BatchCounts
    from .models.current import CurrentJob
    from .models.parents import Parents
    from .models.payload import JobPayload
    from .rates import Rate
    from .schedules.declare import schedule
    from .unique import Unique
    from .why import Why, aexplain, explain
else:
    _HOMES = {
        "concurrency": ("Concurrency",),
        "decorator": ("task",),
        "definition": ("BoundTask", "Task"),
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
        "job_context": ("JobContext",),
        "lifecycle.batches": ("Batch",),
        "lifecycle.chain": ("achain", "chain"),
        "lifecycle.control": ("acancel", "aedit", "aextend", "aretry", "cancel", "edit", "extend", "retry"),
        "lifecycle.current": ("current_job",),
        "lifecycle.drain": ("adrain", "drain"),
        "lifecycle.enqueue": ("aenqueue", "aenqueue_many", "enqueue", "enqueue_many"),
        "lifecycle.limits": ("aset_limit", "set_limit"),
        "lifecycle.pause": ("apause", "aresume", "pause", "resume"),
        "lifecycle.rate_limit": ("RateLimit", "rate_limit"),
        "lifecycle.signal": ("asignal", "signal"),
        "lifecycle.steps": ("step",),
        "lifecycle.track": ("track",),
        "models.batch": ("BatchCounts",),
        "models.current": ("CurrentJob",),
        "models.parents": ("Parents",),
        "models.payload": ("JobPayload",),
        "rates": ("Rate",),
        "schedules.declare": ("schedule",),
        "unique": ("Unique",),
        "why": ("Why", "aexplain", "explain"),
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
