"""What helps against the problems that health and the verdict find."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FIXES", "fix"]


def fix(kind: str, queue: str, alias: str, *, is_starting: bool) -> str:
    """Return what helps against a problem of this kind. ``is_starting``: whether a worker is."""
    if is_starting and kind in ("no_worker", "few_workers"):
        return _("See the log of the worker that starts.")
    return FIXES[kind](queue, "" if alias == "default" else f" --database {quote(alias)}")


def _start_worker(queue: str, database: str) -> str:
    queues = f" --queues {quote(queue)}" if queue else ""
    return _("Start a worker: %(command)s") % {"command": f"manage.py runqueueworker{queues}{database}"}


def _more_slots(queue: str, database: str) -> str:
    return _("Start more workers or processes, or give long jobs a queue and workers of their own.")


def _replace_process(queue: str, database: str) -> str:
    return _("Replace the process of the worker, which is in the list: %(command)s") % {
        "command": f"manage.py pgqueue workers{database}"
    }


def _end_sessions(queue: str, database: str) -> str:
    return _("End these sessions with pg_terminate_backend().")


def _look_at_database(queue: str, database: str) -> str:
    return _("Look for locks and long transactions: %(command)s") % {
        "command": f"manage.py pgqueue database{database}"
    }


def _any_worker(queue: str, database: str) -> str:
    return _("Workers that are alive recover them by themselves. If there is none: %(command)s") % {
        "command": f"manage.py runqueueworker{database}"
    }


def _look_at_workers(queue: str, database: str) -> str:
    return _("Look at its machine and its log; this names it: %(command)s") % {
        "command": f"manage.py pgqueue workers{database}"
    }


def _look_at_failures(queue: str, database: str) -> str:
    return _("To see them by their errors: %(command)s") % {
        "command": f"manage.py pgqueue failures --span 1h{database}"
    }


def _resume(queue: str, database: str) -> str:
    what = f"--queue {quote(queue)}" if queue else "--everything"
    return _("To end the pause: %(command)s") % {"command": f"manage.py pgqueue resume {what}{database}"}


FIXES: dict[str, Callable[[str, str], str]] = {
    "no_worker": _start_worker,
    "few_workers": _start_worker,
    "unserved": _start_worker,
    "age": _more_slots,
    "depth": _more_slots,
    "foreign_lock": _end_sessions,
    "lost_jobs": _replace_process,
    "unreachable": _look_at_database,
    "lost": _any_worker,
    "silent": _look_at_workers,
    "failures": _look_at_failures,
    "paused": _resume,
}
