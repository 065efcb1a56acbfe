"""Run the jobs of a test here: ``run_jobs``, with the claim, the finish and the retries of a worker."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from asgiref.sync import sync_to_async

from .. import conf
from ..exceptions import RetryLater
from ..jobs.progress import Progress
from ..maintenance.rounds import sweep, tell_retention
from ..models import Job
from ..schedules.fire import fire_due
from ..schedules.synchronize import synchronize
from ..tasks.retry import leaves
from ..worker.executor.progress import JobProgress
from ..worker.inline import BorrowedSession, InlineWorker
from .databases import alias_of, check_is_test

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..worker.executor.outcomes import Result

MOST_RUNS = 1_000
"""After so many runs without a limit, ``run_jobs`` gives up: jobs probably enqueue each other forever."""
_MOST_RECOVERED = 1_000_000
_LOST_SQL = (Path(__file__).resolve().parent / "lost_workers.sql").read_text()
#: A worker empties a whole shelf, some time after the retention of its last job (``sql/rotate_v1.sql``).
_FORGET_SQL = """
    WITH gone AS (
        DELETE FROM pgqueue_job AS job USING pgqueue_ring AS ring
        WHERE job.shelf BETWEEN 1 AND 8 AND job.finished_at < clock_timestamp() - ring.retention
        RETURNING job.id
    )
    SELECT pgqueue_note_gone_v1(min(gone.id), max(gone.id)) FROM gone
"""
_RECOVER_SQL = (
    "SELECT * FROM pgqueue_recover_v1(%s::bigint[], NULL, NULL, false, 'its worker was lost', %s, %s, %s)"
)


class AttemptResult(NamedTuple):
    """One run of a job, as `run_jobs` returns it."""

    id: int
    """The id of the job."""
    task_path: str
    """The path of its task."""
    outcome: str
    """How it ended: "done", "retry", "failed", "cancelled", "snooze", or "unknown" if there is no such task.
    """
    attempt: int
    """Which attempt it was. This counts from 1."""
    result: Any
    """What the task has returned."""
    error: BaseException | None
    """The exception because of which the attempt failed."""
    using: str
    """The alias of the database."""
    progress: Progress | None = None
    """What it has last reported with ``current_job().set_progress()``."""

    @property
    def job(self) -> Job:
        """The job as it is in the database now."""
        return Job.objects.using(self.using).get(pk=self.id)


def run_jobs(
    *,
    queues: Iterable[str] | str | None = None,
    limit: int | None = None,
    raise_failures: bool = True,
    schedules: bool = False,
    using: str | None = None,
) -> list[AttemptResult]:
    """Run the jobs that are due, one after another, in this process and on the connection of the test.

    This also runs jobs that these jobs enqueue, and retries that are due at once. It works inside and outside
    of transactions. It returns what has run, in order, when no job is due.

    ``queues``: only these queues (a name or several); None: all. ``limit``: stop after so many runs; without
    it, raise ``RuntimeError`` after 1,000. ``schedules``: first write the schedules that the code declares,
    and fire those that are due. ``using``: the alias of the database.

    If an attempt fails, raise the exception of its task, after its outcome was stored; jobs behind it do not
    run. A task that raises ``RetryLater`` has not failed while it has attempts left. With
    ``raise_failures=False``, go on, and return the exceptions.
    """
    alias = alias_of(using)
    check_is_test("run_jobs()", alias)
    if schedules:
        _fire_schedules(alias)
    worker = InlineWorker(alias, queues=_names(queues))
    ran: list[AttemptResult] = []
    try:
        while limit is None or len(ran) < limit:
            result = worker.run_next()
            if result is None:
                break
            ran.append(_ran(result, alias))
            if raise_failures:
                raise_failure(result)
            if limit is None and len(ran) >= MOST_RUNS:
                raise RuntimeError(_endless(ran))
    finally:
        worker.close()
    return ran


async def arun_jobs(
    *,
    queues: Iterable[str] | str | None = None,
    limit: int | None = None,
    raise_failures: bool = True,
    schedules: bool = False,
    using: str | None = None,
) -> list[AttemptResult]:
    """Like `run_jobs`, for async tests."""
    return await sync_to_async(run_jobs)(
        queues=queues, limit=limit, raise_failures=raise_failures, schedules=schedules, using=using
    )


def run_maintenance(*, using: str | None = None) -> None:
    """Do what a worker does from time to time: give back the jobs of dead workers, end unique keys and pauses
    whose time is over, and delete jobs whose retention is over.
    """
    alias = alias_of(using)
    check_is_test("run_maintenance()", alias)
    session = BorrowedSession(alias)
    tell_retention(session)
    _recover(session)
    session.run((_FORGET_SQL, None))
    while sweep(session):
        pass


def _recover(session: BorrowedSession) -> None:
    settings = conf.current()
    if lost := session.value(_LOST_SQL, (settings.lease,)):
        session.run(
            (_RECOVER_SQL, (lost, settings.crash_limit, _MOST_RECOVERED, settings.keep_errors)),
            ("SELECT pgqueue_forget_workers_v1(%s::bigint[])", (lost,)),
        )


def raise_failure(result: Result) -> None:
    """Raise the exception of a failed attempt, unless its task has asked for the retry."""
    if result.failure is None or _asks_for_retry(result):
        return
    raise result.failure.error


def _asks_for_retry(result: Result) -> bool:
    assert result.failure is not None
    raised = leaves(result.failure.error)
    return result.outcome.kind == "retry" and all(isinstance(each, RetryLater) for each in raised)


def _names(queues: Iterable[str] | str | None) -> list[str]:
    if queues is None:
        return []
    names = [queues] if isinstance(queues, str) else list(queues)
    if not names:
        raise ValueError("run_jobs(queues=[]) names no queue. Use None for all queues.")
    return names


def _fire_schedules(alias: str) -> None:
    synchronize(alias)
    session = BorrowedSession(alias)
    fire_due(session.rows, {})


def _ran(result: Result, alias: str) -> AttemptResult:
    row, outcome = result.row, result.outcome
    return AttemptResult(
        id=row.id,
        task_path=row.task_path,
        outcome=outcome.kind,
        attempt=row.attempts - row.forgiven_attempts,
        result=None if outcome.result is None else json.loads(outcome.result),
        error=result.failure.error if result.failure is not None else None,
        using=alias,
        progress=result.progress,
    )


def _endless(ran: list[AttemptResult]) -> str:
    often = Counter(each.task_path for each in ran).most_common(3)
    paths = ", ".join(f"{path} {count} times" for path, count in often)
    return (
        f"run_jobs() has run {len(ran):,} jobs, and more may be due: {paths}. If jobs enqueue each other "
        "without an end, or retry without a wait, correct that. If there are so many jobs, say how many to "
        "run: run_jobs(limit=10_000)."
    )


# ----------------------------------------------------------------------------
# ``reported_progress``: what jobs report in a block, however they run.


@contextmanager
def reported_progress() -> Iterator[list[Progress]]:
    """Collect what jobs report in the block with ``current_job().set_progress()`` and ``track()``, in order.

    They may run in ``call_task()``, ``run_jobs()``, immediate mode, ``fake_job()``, or on a thread. Each item
    has ``done``, ``total`` and ``note``, and is equal to a tuple of these.
    """
    reported: list[Progress] = []
    tell = JobProgress.tell

    def note_and_tell(job: JobProgress, done: Any, total: Any = None, note: Any = "") -> None:
        tell(job, done, total, note)
        reported.append(job.last or Progress(0))

    with patch.object(JobProgress, "tell", note_and_tell):
        yield reported
