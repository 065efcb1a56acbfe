"""Pause and resume a queue, a task, or everything. Each runs one statement, in the caller's transaction. The
workers hear of it at the commit.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from ..compat import InvalidTask, for_async, is_task
from ..exceptions import duration as seconds
from ..exceptions import moment
from ..models import Pause, Worker
from ..postgres import fetch_value
from ..postgres.aliases import write_alias
from ..tasks import options
from ..tasks.misuse import hints
from ..tasks.routing import default_backend
from ..tasks.task import AnyTask

_PAUSE = "SELECT pgqueue_pause_v1(%s, %s, %s, %s, %s::timestamptz, %s::double precision)"
_AHEAD = "SELECT date_part('epoch', %s::timestamptz - clock_timestamp())"
_RESUME = "SELECT pgqueue_resume_v1(%s, %s)"


@hints
def pause(
    *,
    queue: str | None = None,
    task: AnyTask[..., Any] | str | None = None,
    everything: bool = False,
    reason: str = "",
    author: str = "",
    until: datetime | None = None,
    duration: float | timedelta | None = None,
    using: str | None = None,
) -> Pause:
    """Pause a queue, a task, or everything. Running jobs finish; workers start no more of these jobs.

    When it ends by itself: ``until``, a datetime, or ``duration``, seconds or a timedelta from now. A second
    pause of the same target replaces the first. ``using``: the alias of the database; by default, that of the
    default backend.

    Raise ``TypeError`` unless exactly one target is given, and ``ValueError`` for a bad value.
    """
    kind, name = _paused("pause", queue=queue, task=task, everything=everything)
    for what, text, most in (("reason", reason, 400), ("author", author, 150)):
        if not isinstance(text, str) or len(text) > most or "\0" in text:
            raise ValueError(f"pause({what}=...) takes up to {most} characters, not {text!r:.100}.")
    alias = using or default_backend().home()
    moment, delay = _end(until, duration, alias)
    pk = fetch_value(alias, _PAUSE, kind, name, reason, author, moment, delay)
    return Pause.objects.using(alias).get(pk=pk)


apause = for_async(pause)


@hints
def resume(
    *,
    queue: str | None = None,
    task: AnyTask[..., Any] | str | None = None,
    everything: bool = False,
    using: str | None = None,
) -> bool:
    """End the pause of a queue, a task, or everything. Return whether it was paused.

    Each pause is ended alone: ``resume(everything=True)`` does not resume a queue that was paused, too.
    Raise ``TypeError`` unless exactly one target is given, and ``ValueError`` for a bad value.
    """
    kind, name = _paused("resume", queue=queue, task=task, everything=everything)
    was_paused: bool = fetch_value(using or default_backend().home(), _RESUME, kind, name)
    return was_paused


aresume = for_async(resume)


def checked_target(function: str, **given: Any) -> tuple[str, Any]:
    """Return the one target that is given: which it is, and its value. Raise TypeError or ValueError."""
    chosen = [(which, value) for which, value in given.items() if value is not None and value is not False]
    if len(chosen) != 1:
        raise TypeError(f"{function}() takes exactly one of {'=, '.join(given)}=.")
    ((which, value),) = chosen
    try:
        if which == "queue":
            options.queue_name(value)
        elif which == "task" and not is_task(value):
            options.task_path(value)
    except InvalidTask as error:
        raise ValueError(f"{function}(): {error}") from None
    return which, value


def _paused(function: str, **given: Any) -> tuple[str, str]:
    which, value = checked_target(function, **given)
    if which == "everything":
        return "all", ""
    return which, value.module_path if is_task(value) else value


def _end(until: Any, period: Any, alias: str) -> tuple[datetime | None, float | None]:
    """Return the time, or the seconds from now, after which the pause ends."""
    if until is not None and period is not None:
        raise TypeError("pause() takes until=... or duration=..., not both.")
    if period is not None:
        delay = seconds("pause(duration=...)", period)
        if not delay:
            raise ValueError("pause(duration=...) must be more than 0 seconds.")
        return None, delay
    if until is None:
        return None, None
    until = moment("pause(until=...)", until)
    if not 0 < fetch_value(alias, _AHEAD, until) <= options.CENTURY.total_seconds():
        raise ValueError(f"pause(until=...) must be in the future, within 100 years. It is {until!r}.")
    return until, None


# ----------------------------------------------------------------------------
# Drain a worker: ask it to finish its jobs and end. It hears of it when the caller's transaction commits.

_DRAIN = "SELECT pgqueue_drain_worker_v1(%s, %s)"


def drain_worker(worker: Worker | int, /, *, replace: bool = True, using: str | None = None) -> bool:
    """Ask a worker process to finish its jobs and end, as SIGTERM does. Return whether it is registered.

    ``worker``: a row of ``Worker``, or its id. Its supervisor starts a new process in its place; with
    ``replace=False``, the supervisor and all of its processes end. A worker in another language has no
    supervisor, so it ends in both cases. The request cannot be taken back. ``using``: the alias of the
    database; by default, that of the row, or of the default backend.

    Raise ``TypeError`` or ``ValueError`` for a bad value.
    """
    pk = worker.pk if isinstance(worker, Worker) else worker
    if isinstance(pk, bool) or not isinstance(pk, int):
        raise TypeError(f"drain_worker(worker) takes a Worker or its id, not {pk!r:.100}.")
    if not -(2**63) <= pk < 2**63:
        raise ValueError(f"drain_worker(worker): {pk} is not the id of a worker, which has 64 bits.")
    if not isinstance(replace, bool):
        raise TypeError(f"drain_worker(replace=...) takes True or False, not {replace!r:.100}.")
    alias = using or (write_alias(worker) if isinstance(worker, Worker) else default_backend().home())
    return bool(fetch_value(alias, _DRAIN, pk, replace))


adrain_worker = for_async(drain_worker)
