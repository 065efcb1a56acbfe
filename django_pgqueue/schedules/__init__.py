"""Schedules: tasks that are enqueued at the times of a cron expression or an interval.

    cron:         which times these are; nothing here knows the database
    declare:      ``@schedule`` and ``PGQUEUE["SCHEDULES"]``, validated
    synchronize:  when a worker starts, what is declared becomes rows
    policy:       what the task says about its jobs, and their keys, as the row keeps it
    fire:         the round of a supervisor that turns due ticks into jobs
    control:      pause, resume, run now, and how a supervisor hears of it
    words:        a schedule in plain language, and the list of all

The public names are resolved on first use (PEP 562), because a module with tasks imports ``declare`` while
apps load, when there are no models yet.
"""

from __future__ import annotations

TYPE_CHECKING = False  # set here so that ``typing`` need not be imported

__all__ = ["pause", "resume", "run_now"]

if TYPE_CHECKING:
    from .control import pause, resume, run_now
else:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(f"{__name__}.control"), name)
        return value
