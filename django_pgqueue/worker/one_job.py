"""Run one waiting job in this process, for somebody who wants to follow it with a debugger.

It is claimed as a worker would claim it, with a lease, so no other worker runs it at the same time. It does
not matter whether its queue is paused, or when it was to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..exceptions import PgQueueError
from ..lifecycle.control import run_now
from ..models import Job
from ..results import public_id
from ..server_time import server_now
from .inline_places import one_job
from .keeper import Keeper
from .one_process import DebuggedWorker
from .options import WorkerOptions

if TYPE_CHECKING:
    from ..lifecycle.claimed import Claimed
    from .executor.outcomes import Result

__all__ = ["CannotRun", "run_job"]


class CannotRun(PgQueueError):
    """The job does not wait, or something else prevents it from being run."""


class _OneJob(DebuggedWorker):
    """Claims one job by its id."""

    def run_this(self, job: Job) -> Result:
        """Run it. Raise ``CannotRun`` if it cannot be claimed."""
        row = self._claim_job(job)
        if row is None:
            raise CannotRun(_why_not(Job.objects.using(self.alias).get(pk=job.pk)))
        return self._run(row)

    def _claim_job(self, job: Job) -> Claimed | None:
        """Claim a job that is pending, or waits for a retry, if its limits have room.

        It is claimed as one that may follow the last claim. The range of its queue begins where there are no
        others.
        """
        self._read_orders()
        return self._claim_from(one_job(job.queue_name, job.priority, job.group_key), [job.pk])


def run_job(pk: int, alias: str) -> Result:
    """Run a job now, on this thread, and return its result.

    Raise ``CannotRun``, with the reason, if it does not wait or must not start.
    """
    job = Job.objects.using(alias).filter(pk=pk).first()
    if job is None:
        raise CannotRun(f"There is no job {pk} in the database {alias!r}.")
    if job.status not in (Job.Status.PENDING, Job.Status.RETRY):
        raise CannotRun(_why_not(job))
    options = WorkerOptions(alias=alias, queues=(job.queue_name,), threads=1, burst=True, schedules=False)
    keeper = Keeper(
        options,
        begun=lambda: worker.running(),
        on_cancel=lambda job_id: worker.cancel(job_id),
        on_drain=lambda: None,  # it ends after this job in any case
    )
    worker = _OneJob(alias, worker=keeper.worker)
    keeper.write_progress_of(worker.changed)
    try:
        keeper.start(lambda: None)
        if job.run_after > server_now(alias):
            run_now(job)
        return worker.run_this(job)
    finally:
        keeper.stop()


def _why_not(job: Job) -> str:
    """Return why a job cannot be run, and what to do."""
    what = f"Job {job.pk} ({job.task_path}) cannot be run here:"
    if job.status == Job.Status.RUNNING:
        return f"{what} a worker runs it now."
    if job.status == Job.Status.BLOCKED:
        return f"{what} it is blocked ({job.waiting_reason})."
    if job.status in (Job.Status.PENDING, Job.Status.RETRY):
        return f"{what} another transaction has locked it, or its queue has reached a limit."
    public = public_id(job.pk, job._state.db)  # the number alone may be another job
    again = f"retry({job.pk if public == str(job.pk) else repr(public)})"
    return f"{what} it is over ({job.status}). Enqueue it again with: {again}"
