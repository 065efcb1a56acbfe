"""``assert_enqueued`` and ``assert_not_enqueued``: which jobs there are, and which ones are similar.

Every job of the database counts, whatever has become of it. To look only at those that a block has made, put
``enqueued()`` around it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ..models import Job
from ..wording import counted
from .capture import is_dummy, path_of
from .databases import alias_of
from .differences import ANY, Expected
from .memory import JOBS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from ..any_task import AnyTask
    from ..links import After, BatchLike

__all__ = ["assert_enqueued", "assert_not_enqueued"]

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

    ``task``: a task, or its path. ``args`` and ``kwargs`` are compared with those of the call, as JSON.
    ``run_after``: an aware datetime; a timedelta since the enqueue; or None: it was due at once. Times may
    differ by a second. ``after``: the jobs and batches that it waits for, or their ids, in any order.
    ``batch``: the batch that it belongs to; None: it belongs to none. ``count``: there are exactly so many;
    None: at least one. ``among``: look only at these jobs, such as those of ``enqueued()``. ``using``: the
    alias of the database.

    The message of the AssertionError shows the jobs that are most similar, and how they differ.
    """
    __tracebackhide__ = True
    expected = _expected(args, kwargs, queue_name, run_after, priority, metadata, status, after, batch)
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
    expected = _expected(args, kwargs, queue_name, run_after, priority, metadata, status, after, batch)
    path = path_of(task)
    jobs = [job for job in _jobs(task, among, using) if job.task_path == path]
    if found := [job for job in jobs if not expected.differences(job)]:
        lines = [f"Expected no job of {path}{_with(expected)}, but there {_are(len(found))}:"]
        raise AssertionError("\n".join([*lines, *(f"  {_described(job)}" for job in found[:_NEAREST])]))


def _expected(
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
        args=args, kwargs=kwargs, queue_name=queue_name, run_after=run_after, priority=priority,
        metadata=metadata, status=status, after=after, batch=batch,
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
