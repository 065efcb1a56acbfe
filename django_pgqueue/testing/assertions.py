"""``assert_enqueued`` and ``assert_not_enqueued``: which jobs there are, and which ones are similar.

Every job of the database counts, whatever has become of it. To look only at those that a block has made, put
``enqueued()`` around it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connections
from django.utils.timezone import is_naive

from ..compat import is_task
from ..encoding import encode_arguments
from ..exceptions import moment
from ..formatting import counted
from ..models import Job
from ..tasks import links
from ..tasks.routing import default_backend, is_ours, resolve
from ..tasks.signatures import bind_call
from ..tasks.task import BoundTask, adopt, differences, find_task
from .databases import alias_of
from .modes import JOBS, Memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..tasks.links import After, BatchLike
    from ..tasks.task import AnyTask

# ----------------------------------------------------------------------------
# What a test expects of a job, and in which words a job differs from that.

ANY: Any = type("Any", (), {"__repr__": lambda self: "ANY"})()
"""The test does not say."""
_NO_LIMIT = 2**28
_PUNCTUAL = timedelta(seconds=1)


@dataclass(frozen=True)
class Expected:
    """What a test expects. A value is ``ANY`` if the test does not say."""

    values: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, **given: Any) -> Expected:
        """Take what was given, with arguments as a job stores them."""
        values = {name: value for name, value in given.items() if value is not ANY}
        _check(values)
        if "arguments" in values:
            values["arguments"] = Arguments(values["arguments"])
        if "args" in values:
            values["args"] = json.loads(encode_arguments(list(values["args"]), {}, _NO_LIMIT)[0])
        if "kwargs" in values:
            values["kwargs"] = json.loads(encode_arguments([], dict(values["kwargs"]), _NO_LIMIT)[1])
        if "after" in values:
            values["after"] = _parents(values["after"])
        if values.get("batch") is not None:
            values["batch"] = links.batch(values["batch"]).id
        return cls(values)

    def __str__(self) -> str:
        return ", ".join(f"{name}={_shown(name, value)}" for name, value in self.values.items())

    def differences(self, job: Job) -> list[str]:
        """Return a line for each value that differs; none if the job is as expected."""
        lines = []
        for name, wanted in self.values.items():
            if name == "run_after":
                lines += _time_difference(job, wanted)
            elif name == "arguments":
                lines += wanted.differences(job)
            elif (found := _value(job, name)) != wanted:
                lines += _difference(name, found, wanted)
        return lines


class Arguments:
    """The arguments of a call by name, so that it does not matter how the job was called."""

    def __init__(self, call: BoundTask) -> None:
        if call.task.payload is not None:
            raise TypeError("The call of a task with a payload has no arguments: look for its row.")
        if changed := sorted(differences(find_task(call.task.module_path), call.task)):
            raise TypeError(
                f"Of a call, only the arguments are compared. Give the others apart, such as {changed[0]}=..."
            )
        self._task = call.task
        args, kwargs = encode_arguments(call.args, call.kwargs, _NO_LIMIT)
        self._by_name = bind_call(call.task, json.loads(args), json.loads(kwargs))

    def __repr__(self) -> str:
        return repr(self._by_name)

    def differences(self, job: Job) -> list[str]:
        """Return a line for each argument that differs."""
        try:
            found = bind_call(self._task, job.args, job.kwargs)
        except TypeError as error:
            return [f"its arguments do not fit: {error}"]
        pairs = ((name, found[name], wanted) for name, wanted in self._by_name.items())
        return [f"{name} is {is_!r}, not {wanted!r}" for name, is_, wanted in pairs if is_ != wanted]


def _check(values: dict[str, Any]) -> None:
    """Raise ``TypeError`` or ``ValueError`` for what no job could have, because of a slip in the test."""
    if "arguments" in values and {"args", "kwargs"} & values.keys():
        raise TypeError("A call has its arguments. Give either the call, or the task with args and kwargs.")
    if isinstance(args := values.get("args", ()), str) or not isinstance(args, Iterable):
        raise TypeError(f"args takes a list of the arguments, args=[{args!r}], not {args!r}.")
    if not isinstance(kwargs := values.get("kwargs", {}), Mapping):
        raise TypeError(f"kwargs takes a dict of the arguments, not {kwargs!r}.")
    run_after = values.get("run_after")
    if run_after is not None and not isinstance(run_after, (datetime, timedelta)):
        raise TypeError(f"run_after takes an aware datetime, a timedelta or None, not {run_after!r}.")
    if isinstance(run_after, datetime) and is_naive(run_after) and settings.USE_TZ:
        raise ValueError(f"run_after takes an aware datetime, and {run_after!r} has no time zone.")


def _parents(given: Any) -> list[int]:
    return sorted(link.id for link in links.after([] if given is None else given))


def _value(job: Job, name: str) -> Any:
    """Return what a job has, in the form in which it is compared."""
    if name == "after":
        return sorted(job.parent_ids or [])
    return job.batch_id if name == "batch" else getattr(job, name)


def _difference(name: str, found: Any, wanted: Any) -> list[str]:
    """Name the items that differ if there are several, and otherwise the values."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        lines = [f"{name}[{key!r}] is missing" for key in wanted if key not in found]
        lines += [f"{name}[{key!r}] is {found[key]!r}, and was not expected" for key in found.keys() - wanted]
        both = [key for key in wanted if key in found and found[key] != wanted[key]]
        return [*lines, *(f"{name}[{key!r}] is {found[key]!r}, not {wanted[key]!r}" for key in both)]
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted) > 1:
        pairs = enumerate(zip(found, wanted, strict=True))
        return [f"{name}[{place}] is {is_!r}, not {to_be!r}" for place, (is_, to_be) in pairs if is_ != to_be]
    return [f"{name} is {found!r}, not {wanted!r}"]


def _time_difference(job: Job, wanted: datetime | timedelta | None) -> list[str]:
    """Compare ``run_after``: a time, the time since the enqueue, or None for a job that was due at once."""
    delay = job.run_after - job.enqueued_at
    if wanted is None:
        return [f"run_after is {delay} after the enqueue, not at once"] if delay > _PUNCTUAL else []
    if isinstance(wanted, timedelta):
        if abs(delay - wanted) > _PUNCTUAL:
            return [f"run_after is {delay} after the enqueue, not {wanted}"]
        return []
    if abs(moment("run_after", job.run_after) - moment("run_after", wanted)) > _PUNCTUAL:
        return [f"run_after is {job.run_after.isoformat()}, not {wanted.isoformat()}"]
    return []


def _shown(name: str, value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else repr(value) if name else str(value)


# ----------------------------------------------------------------------------
# The assertions.


_NEAREST = 3


def assert_enqueued(
    task: AnyTask[..., Any] | str,
    *,
    args: Sequence[Any] = ANY,
    kwargs: Mapping[str, Any] = ANY,
    queue_name: str = ANY,
    run_after: datetime | timedelta | None = ANY,
    priority: int = ANY,
    metadata: Mapping[str, Any] = ANY,
    status: str = ANY,
    after: After = ANY,
    batch: BatchLike | int | None = ANY,
    count: int | None = None,
    among: Iterable[Job] | None = None,
    using: str | None = None,
) -> Job:
    """Assert that there is a job of this task with these values, and return the newest one.

    ``task``: a task, its path, or a call such as ``send.bind(7)``, whose arguments are compared by name.
    ``args`` and ``kwargs`` are compared with those of the job, as JSON.
    ``run_after``: a datetime; a timedelta since the enqueue; or None: it was due at once. Times may
    differ by a second. ``after``: the jobs and batches that it waits for, or their ids, in any order.
    ``batch``: the batch that it belongs to; None: it belongs to none. ``count``: there are exactly so many;
    None: at least one. ``among``: look only at these jobs, such as those of ``enqueued()``. ``using``: the
    alias of the database.

    The message of the AssertionError shows the jobs that are most similar, and how they differ.
    """
    __tracebackhide__ = True
    expected = _expected(task, args, kwargs, queue_name, run_after, priority, metadata, status, after, batch)
    path, others = path_of(task), _jobs(task, among, using)
    jobs = [job for job in others if job.task_path == path]
    found = [job for job in jobs if not expected.differences(job)]
    if not found or count not in (None, len(found)):
        raise AssertionError(_failure(path, expected, count, found, jobs, others))
    return found[-1]


def assert_not_enqueued(
    task: AnyTask[..., Any] | str,
    *,
    args: Sequence[Any] = ANY,
    kwargs: Mapping[str, Any] = ANY,
    queue_name: str = ANY,
    run_after: datetime | timedelta | None = ANY,
    priority: int = ANY,
    metadata: Mapping[str, Any] = ANY,
    status: str = ANY,
    after: After = ANY,
    batch: BatchLike | int | None = ANY,
    among: Iterable[Job] | None = None,
    using: str | None = None,
) -> None:
    """Assert that there is no job of this task with these values. They are those of `assert_enqueued`."""
    __tracebackhide__ = True
    expected = _expected(task, args, kwargs, queue_name, run_after, priority, metadata, status, after, batch)
    path = path_of(task)
    jobs = [job for job in _jobs(task, among, using) if job.task_path == path]
    if found := [job for job in jobs if not expected.differences(job)]:
        lines = [f"Expected no job of {path}{_with(expected)}, but there {_are(len(found))}:"]
        raise AssertionError("\n".join([*lines, *(f"  {_described(job)}" for job in found[:_NEAREST])]))


def _expected(
    task: Any,
    args: Any,
    kwargs: Any,
    queue_name: Any,
    run_after: Any,
    priority: Any,
    metadata: Any,
    status: Any,
    after: Any,
    batch: Any,
) -> Expected:
    return Expected.of(
        arguments=task if isinstance(task, BoundTask) else ANY, args=args, kwargs=kwargs,
        queue_name=queue_name, run_after=run_after, priority=priority, metadata=metadata,
        status=status, after=after, batch=batch,
    )  # fmt: skip


def _jobs(task: Any, among: Iterable[Job] | None, using: str | None) -> list[Job]:
    if among is not None:
        return list(among)
    if is_dummy(task):
        return list(JOBS)
    return list(Job.objects.using(alias_of(using)).order_by("pk"))


def _failure(
    path: str, expected: Expected, count: int | None, found: list[Job], jobs: list[Job], others: list[Job]
) -> str:
    wanted = "a job" if count is None else "no job" if count == 0 else counted(count, "job")
    lines = [f"Expected {wanted} of {path}{_with(expected)}, but there {_are(len(found))}."]
    lines += [f"  {_described(job)}" for job in found[:_NEAREST]]
    rest = sorted(
        (job for job in jobs if job not in found), key=lambda job: (len(expected.differences(job)), -job.pk)
    )
    if rest and (count is None or len(found) < count):
        lines.append(f"The nearest of {counted(len(rest), 'other job')} of this task:")
        for job in rest[:_NEAREST]:
            lines.append(f"  {_described(job)}")
            lines += [f"    {line}" for line in expected.differences(job)]
    if not jobs:
        paths = Counter(job.task_path for job in others).most_common(5)
        lines.append(
            "Jobs of other tasks: " + ", ".join(f"{other} ({number})" for other, number in paths) + "."
            if paths
            else "No job at all was enqueued."
        )
    return "\n".join(lines)


def _with(expected: Expected) -> str:
    return f" with {expected}" if expected.values else ""


def _are(number: int) -> str:
    return "is none" if not number else "is 1" if number == 1 else f"are {number}"


def _described(job: Job) -> str:
    arguments = ", ".join([*map(repr, job.args), *(f"{key}={value!r}" for key, value in job.kwargs.items())])
    return f"job {job.pk}: {job.task_path}({arguments}), {job.status}, queue {job.queue_name}"


# ----------------------------------------------------------------------------
# ``enqueued``: which jobs a block has made, whichever way they were enqueued.

_LAST_SQL = "SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM pgqueue_job_id_seq"


@contextmanager
def enqueued(task: AnyTask[..., Any] | str | None = None, *, using: str | None = None) -> Iterator[list[Job]]:
    """Collect the jobs that the block enqueues: with ``enqueue()``, ``enqueue_many()``, the tasks' own
    ``.enqueue()``, SQL, a trigger, or a schedule. The list is filled at the end of the block.

    They are in the order of their ids, and as they are at the end. ``task``: only those of this task, or of
    this path. ``using``: the alias of the database.
    """
    jobs: list[Job] = []
    dummy = is_dummy(task)
    alias = alias_of(using)
    before = len(JOBS) if dummy else _last_id(alias)
    yield jobs
    path = None if task is None else path_of(task)
    found = JOBS[before:] if dummy else jobs_after(before, alias)
    jobs += [job for job in found if path in (None, job.task_path)]


def jobs_after(last: int, alias: str) -> list[Job]:
    """Return the jobs with a larger id."""
    return list(Job.objects.using(alias).filter(pk__gt=last).order_by("pk"))


def path_of(task: Any) -> str:
    """Return the path of a task, which may be given as a path. Raise ``TypeError`` if it is neither."""
    if isinstance(task, str):
        return task
    if isinstance(task, BoundTask):
        return task.task.module_path
    if is_task(task):
        return task.module_path
    raise TypeError(f"This takes a task, or the path of a task such as 'shop.tasks.report', not {task!r}.")


def is_dummy(task: Any = None) -> bool:
    """Return whether jobs of this task are kept in memory only."""
    if isinstance(task, BoundTask):
        task = task.task
    backend = resolve(adopt(task).backend) if is_task(task) else default_backend()
    return is_ours(backend) and isinstance(backend.keeper, Memory)


def _last_id(alias: str) -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute(_LAST_SQL)
        return int(cursor.fetchone()[0])
