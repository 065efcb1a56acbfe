"""``assert_enqueued`` and ``assert_not_enqueued``: which jobs there are, and which ones are similar.

Every job of the database counts, whatever has become of it. To look only at the jobs that a block has made,
put ``enqueued()`` around it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from django.conf import settings
from django.db.models import QuerySet
from django.utils.timezone import is_naive

from ..compat import is_task
from ..encoding import encode_arguments
from ..exceptions import moment
from ..formatting import counted
from ..models import Job
from ..postgres import fetch_value
from ..tasks import links
from ..tasks.routing import default_backend, is_ours, resolve
from ..tasks.signatures import bind_call
from ..tasks.task import BoundTask, adopt, differences, find_task
from .databases import alias_of
from .modes import JOBS, Memory

if TYPE_CHECKING:
    from ..tasks.links import After, BatchLike
    from ..tasks.task import AnyTask

_NEAREST = 3
_NO_LIMIT = 2**28
_PUNCTUAL = timedelta(seconds=1)
_MISSING = type("Missing", (), {"__repr__": lambda self: "missing"})()


class JobValues(TypedDict, total=False):
    """What a test expects of a job. A value that is left out may be anything."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    queue_name: str
    run_after: datetime | timedelta | None
    priority: int
    metadata: Mapping[str, Any]
    status: str
    after: After
    batch: BatchLike | int | None


def assert_enqueued(
    task: AnyTask[..., Any] | str,
    *,
    count: int | None = None,
    among: Iterable[Job] | None = None,
    using: str | None = None,
    **values: Unpack[JobValues],
) -> Job:
    """Assert that there is a job of this task with these values, and return the newest one.

    ``task``: a task, its path, or a call such as ``send.bind(7)``, whose arguments are compared by name.
    ``count``: there are exactly so many; None: at least one. ``among``: look only at these jobs, such as
    the jobs of ``enqueued()``. ``using``: the alias of the database.

    The values are ``args`` and ``kwargs``, compared with the arguments of the job as JSON; ``queue_name``,
    ``priority``, ``metadata`` and ``status``; ``run_after``: a datetime, a timedelta since the enqueue, or
    None for a job that was due at once, each give or take a second; ``after``: the jobs and batches that it
    waits for, or their ids, in any order; ``batch``: the batch that it belongs to, or None.

    The message of the AssertionError shows the jobs that are most similar, and how they differ.
    """
    __tracebackhide__ = True
    search = _Search(task, values, among, using)
    if not search.found or count not in (None, len(search.found)):
        raise AssertionError(search.failure(count))
    return search.found[-1]


def assert_not_enqueued(
    task: AnyTask[..., Any] | str,
    *,
    among: Iterable[Job] | None = None,
    using: str | None = None,
    **values: Unpack[JobValues],
) -> None:
    """Assert that there is no job of this task with these values. The values are as in `assert_enqueued`."""
    __tracebackhide__ = True
    search = _Search(task, values, among, using)
    if search.found:
        raise AssertionError(search.failure(0))


class _Search:
    """Looks for jobs of a task with some values."""

    def __init__(self, task: Any, values: Any, among: Iterable[Job] | None, using: str | None) -> None:
        self.path, rows = _jobs_of(task, using)
        self.call = task if isinstance(task, BoundTask) else None
        self.values = _as_stored(values, self.call)
        #: The arguments of the call by name, so that it does not matter how a job was called.
        self.arguments = (
            {} if self.call is None else bind_call(self.call.task, *_json(self.call.args, self.call.kwargs))
        )
        self.others = list(rows if among is None else among)
        self.jobs = [job for job in self.others if job.task_path == self.path]
        self.found = [job for job in self.jobs if not self.differences(job)]

    def differences(self, job: Job) -> list[str]:
        """Return a line for each value that differs; none if the job is as expected."""
        lines = []
        if self.call is not None:
            try:
                found: Any = bind_call(self.call.task, job.args, job.kwargs)
            except TypeError as error:
                return [f"its arguments do not fit: {error}"]
            lines += _items(found, self.arguments, "{}")
        has = {"after": sorted(job.parent_ids or []), "batch": job.batch_id}
        for name, wanted in self.values.items():
            found = has[name] if name in has else getattr(job, name)
            if name == "run_after":
                lines += _time_difference(job, wanted)
            elif isinstance(wanted, dict):
                lines += _items(found, wanted, f"{name}[{{!r}}]")
            elif found != wanted:
                lines.append(f"{name} is {found!r}, not {wanted!r}")
        return lines

    def failure(self, count: int | None) -> str:
        """Return the message: what was expected and found, and the jobs that are most similar."""
        wanted = "a job" if count is None else "no job" if count == 0 else counted(count, "job")
        shown = self.values if self.call is None else {"arguments": self.arguments, **self.values}
        given = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        number = len(self.found)
        there = "is none" if not number else "is 1" if number == 1 else f"are {number}"
        lines = [f"Expected {wanted} of {self.path}{f' with {given}' if given else ''}, but there {there}."]
        lines += [f"  {_described(job)}" for job in self.found[:_NEAREST]]
        rest = [job for job in self.jobs if job not in self.found]
        if rest and (count is None or number < count):
            lines.append(f"The nearest of {counted(len(rest), 'other job')} of this task:")
            for job in sorted(rest, key=lambda job: (len(self.differences(job)), -job.pk))[:_NEAREST]:
                lines += [f"  {_described(job)}", *(f"    {line}" for line in self.differences(job))]
        if not self.jobs:
            paths = Counter(job.task_path for job in self.others).most_common(5)
            others = ", ".join(f"{path} ({number})" for path, number in paths)
            lines.append(f"Jobs of other tasks: {others}." if paths else "No job at all was enqueued.")
        return "\n".join(lines)


def _json(args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments as a job stores them."""
    positional, named = encode_arguments(list(args), dict(kwargs), _NO_LIMIT)
    return json.loads(positional), json.loads(named)


def _as_stored(given: dict[str, Any], call: BoundTask | None) -> dict[str, Any]:
    """Return values as a job stores them. Raise ``TypeError`` or ``ValueError`` for what no job can have."""
    if unknown := sorted(given.keys() - JobValues.__annotations__.keys()):
        raise TypeError(
            f"A job is not compared by {unknown[0]!r}, but by {', '.join(JobValues.__annotations__)}."
        )
    values = dict(given)
    if call is not None:
        if {"args", "kwargs"} & values.keys():
            raise TypeError(
                "A call has its arguments. Give either the call, or the task with args and kwargs."
            )
        if call.task.payload is not None:
            raise TypeError("The call of a task with a payload has no arguments: query its row.")
        if changed := sorted(differences(find_task(call.task.module_path), call.task)):
            raise TypeError(
                f"Of a call, only the arguments are compared. Give the others apart, such as {changed[0]}=..."
            )
    if "args" in values:
        if isinstance(args := values["args"], str) or not isinstance(args, Iterable):
            raise TypeError(f"args takes a list of the arguments, args=[{args!r}], not {args!r}.")
        values["args"] = _json(args, {})[0]
    if "kwargs" in values:
        if not isinstance(kwargs := values["kwargs"], Mapping):
            raise TypeError(f"kwargs takes a dict of the arguments, not {kwargs!r}.")
        values["kwargs"] = _json([], kwargs)[1]
    if "after" in values:
        values["after"] = sorted(link.id for link in links.after(values["after"] or []))
    if values.get("batch") is not None:
        values["batch"] = links.batch(values["batch"]).id
    run_after = values.get("run_after")
    if run_after is not None and not isinstance(run_after, (datetime, timedelta)):
        raise TypeError(f"run_after takes an aware datetime, a timedelta or None, not {run_after!r}.")
    if isinstance(run_after, datetime) and is_naive(run_after) and settings.USE_TZ:
        raise ValueError(f"run_after takes an aware datetime, and {run_after!r} has no time zone.")
    return values


def _items(found: Any, wanted: dict[str, Any], name: str) -> list[str]:
    """Return a line for each item that differs."""
    pairs = {key: (found.get(key, _MISSING), wanted.get(key, _MISSING)) for key in {**wanted, **found}}
    return [f"{name.format(key)} is {is_!r}, not {no!r}" for key, (is_, no) in pairs.items() if is_ != no]


def _time_difference(job: Job, wanted: datetime | timedelta | None) -> list[str]:
    if isinstance(wanted, datetime):
        off = moment("run_after", job.run_after) - moment("run_after", wanted)
        text = f"run_after is {job.run_after.isoformat()}, not {wanted.isoformat()}"
    else:
        delay = job.run_after - job.enqueued_at
        off = delay - (wanted or timedelta())
        text = f"run_after is {delay} after the enqueue, not {'at once' if wanted is None else wanted}"
    return [] if abs(off) <= _PUNCTUAL else [text]


def _described(job: Job) -> str:
    arguments = ", ".join([*map(repr, job.args), *(f"{key}={value!r}" for key, value in job.kwargs.items())])
    return f"job {job.pk}: {job.task_path}({arguments}), {job.status}, queue {job.queue_name}"


_LAST_SQL = "SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM pgqueue_job_id_seq"


@contextmanager
def enqueued(task: AnyTask[..., Any] | str | None = None, *, using: str | None = None) -> Iterator[list[Job]]:
    """Collect the jobs that the block enqueues: with ``enqueue()``, ``enqueue_many()``, the tasks' own
    ``.enqueue()``, SQL, a trigger, or a schedule. The list is filled at the end of the block.

    They are in the order of their ids, and as they are at the end. ``task``: only the jobs of this task, or
    of this path. ``using``: the alias of the database.
    """
    jobs: list[Job] = []
    path, rows = _jobs_of("" if task is None else task, using)
    before = len(rows) if isinstance(rows, list) else fetch_value(rows.db, _LAST_SQL)
    yield jobs
    found = rows[before:] if isinstance(rows, list) else rows.filter(pk__gt=before)
    jobs += [job for job in found if path in ("", job.task_path)]


def _jobs_of(task: Any, using: str | None) -> tuple[str, list[Job] | QuerySet[Job]]:
    """Return the path of a task, path or call, and its jobs, in memory or stored. Raise ``TypeError``."""
    if isinstance(task, BoundTask):
        task = task.task
    if not (isinstance(task, str) or is_task(task)):
        raise TypeError(
            f"This takes a task, or the path of a task such as 'shop.tasks.report', not {task!r}."
        )
    backend = resolve(adopt(task).backend) if is_task(task) else default_backend()
    is_dummy = is_ours(backend) and isinstance(backend.keeper, Memory)
    rows = JOBS if is_dummy else Job.objects.using(alias_of(using)).order_by("pk")
    return task.module_path if is_task(task) else task, rows
