"""The bulk of the demonstration: finished jobs, the statistics that count them, and a backlog.

The rows are written by a few statements, as the functions of the queue would have left them. The statistics
are counted from these jobs, so that pages that read the one or the other agree.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django_pgqueue.models.statistics import HISTOGRAM_BOUNDS

from .shop import ERRORS, TASKS, Error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.db.backends.utils import CursorWrapper

_RETRIED = "demo-orders"  # the queue of the jobs that wait for their next attempt
_CLASSES = range(len(HISTOGRAM_BOUNDS) + 1)
_FOLD_SQL = "SELECT _pgqueue_fold_failures(1000, 10000)"
_OVER_SQL = "SELECT date_trunc('minute', clock_timestamp() - interval '2 minutes')"


@dataclass(frozen=True, slots=True)
class _Sums:
    """One kind of sums of statistics."""

    span: str
    start: str
    kept: str
    of_tasks: tuple[bool, ...] = (True, False)


_SUMS = (
    _Sums("minute", "part.start", "47 hours 45 minutes", (False,)),
    _Sums("quarter", "date_bin('15 minutes', part.start, 'epoch')", "47 hours 45 minutes"),
    _Sums("hour", "date_bin('1 hour', part.start, 'epoch')", "8 days"),
    _Sums("day", "date_bin('1 day', part.start, 'epoch')", "8 days"),
    _Sums("total", "timestamptz 'epoch'", "8 days", (True,)),
)


#: How the sums add up each class of the histograms.
_HISTOGRAMS = {
    f"{kind}_sums": ", ".join(f"sum(part.{kind}_histogram[{number + 1}])::bigint" for number in _CLASSES)
    for kind in ("wait", "run")
}


def queues() -> list[str]:
    """Return the queues of the bulk. What happens in SQL, as in the stories, is in no statistics."""
    return sorted({task.queue_name for task in TASKS})


def fill(cursor: CursorWrapper, jobs: int, waiting: int, workers: Mapping[str, Sequence[int]]) -> None:
    """Make finished jobs, done by the workers of their queues, their statistics, and jobs that wait."""
    errors = json.dumps([error_of(each) for each in ERRORS])
    tasks = json.dumps([{**task._asdict(), "workers": workers[task.queue_name]} for task in TASKS])
    deployed = [error.task_path for error in ERRORS if error.deploy]
    cursor.execute(
        _sql("history"),
        {"jobs": jobs, "tasks": tasks, "errors": errors, "deployed": deployed},
    )
    _count(cursor)
    # Last, since it has jobs that are due, and the statements above take minutes.
    cursor.execute(
        _sql("backlog"),
        {
            "jobs": waiting,
            "error": json.dumps(error_of(ERRORS[0])),
            "worker": workers[_RETRIED][0],
        },
    )
    _group(cursor, errors)
    cursor.execute(_sql("depth"), {})


def error_of(error: Error) -> dict[str, Any]:
    """Return an error as the statements expect it, with a fingerprint and a traceback."""
    place = f"{error.place}:{error.function}"
    name = error.name.rpartition(".")[2]
    module, _, function = error.task_path.rpartition(".")
    text = "\n".join([error.task_path, error.name, place])
    traceback = (
        "Traceback (most recent call last):\n"
        f'  File "{module.replace(".", "/")}.py", line 41, in {function}\n'
        f"    order = prepare(order_id)\n"
        f'  File "{error.place}", line 128, in {error.function}\n'
        f"    raise {name}(message)\n"
        f"{error.name}: {error.message.replace('%s', '1207')}"
    )
    fingerprint = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return {**error._asdict(), "fingerprint": fingerprint, "traceback": traceback}


def _count(cursor: CursorWrapper) -> None:
    """Count the attempts of the jobs in history."""
    counts = {
        f"{kind}_counts": ", ".join(
            f"coalesce(sum(part.attempts) FILTER (WHERE part.{kind}_class = {number}), 0)::bigint"
            for number in _CLASSES
        )
        for kind in ("wait", "run")
    }
    bounds = list(HISTOGRAM_BOUNDS)
    cursor.execute(_sql("measure").format(**counts), {"queues": queues(), "bounds": bounds})
    cursor.execute(_sql("shift"))
    cursor.execute(_OVER_SQL)
    (over,) = cursor.fetchone()
    cursor.execute(_sql("minutes"), {"over": over})
    for each in _SUMS:
        for of_task in each.of_tasks:
            path = "part.task_path" if of_task else "''"
            cursor.execute(
                _sql("sums").format(start=each.start, task_path=path, **_HISTOGRAMS),
                {"span": each.span, "over": over, "kept": each.kept},
            )
    add_up(cursor)
    cursor.execute("DROP TABLE pgqueue_demo_stat")


def add_up(cursor: CursorWrapper) -> None:
    """Make the sums of all queues from those of each."""
    cursor.execute(_sql("sums_of_all").format(**_HISTOGRAMS))


def _group(cursor: CursorWrapper, errors: str) -> None:
    """Add the failed attempts to the groups of failures."""
    cursor.execute(_sql("failures"), {"errors": errors, "queues": queues()})
    folded = 1
    while folded:
        cursor.execute(_FOLD_SQL)
        (folded,) = cursor.fetchone()


def _sql(name: str) -> str:
    return (Path(__file__).parent / f"{name}.sql").read_text(encoding="utf-8")
