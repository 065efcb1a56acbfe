"""Kill a worker process in the middle of a large document, and observe where its job continues."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import PurePath

from django.db.models import Count, QuerySet

from django_pgqueue.models import Job, Step
from example_project.search.models import Document

from .children import Child
from .killing import kill_if, processes_of

PART = "vectors "  # how the names of the steps begin of which there are many
RECORDED, LEFT = 3, 3  # how many of these steps must be recorded at the kill, and how many must be left


@dataclass(frozen=True, slots=True)
class Resumption:
    """How the job of a document continued: the steps that were recorded at the kill, and those that came
    later.

    `again` is the time from the kill to the next attempt, in seconds. `repeated` are steps that ran twice.
    """

    document: str
    before: list[str]
    after: list[str]
    repeated: list[str]
    again: float

    def __str__(self) -> str:
        done = len(self.before)
        return (
            f"worker killed after {done} of {done + len(self.after)} steps of {self.document}:\n"
            f"its job continued with step {done + 1}, {self.after[0]}, after {self.again:.1f} s"
        )


class Interruption:
    """Kills the process of `child` that runs one of the `jobs` when it has recorded some of its steps."""

    def __init__(self, child: Child, jobs: QuerySet[Job]) -> None:
        self._child = child
        self._jobs = jobs
        self._job = 0
        self._recorded: dict[str, datetime | None] = {}
        self._killed_at: datetime | None = None

    @property
    def has_happened(self) -> bool:
        """Whether a process was killed."""
        return self._killed_at is not None

    def look(self) -> bool:
        """Kill a process if it is in the middle of a document. Return whether one is in a document, which may
        take less than a second.
        """
        if self.has_happened:
            return False
        parts = Step.objects.filter(name__startswith=PART).values_list("job_id").annotate(count=Count("name"))
        counts = dict(parts)
        jobs = [job for job, count in counts.items() if count >= RECORDED]
        running = self._jobs.filter(pk__in=jobs, status=Job.Status.RUNNING) if jobs else Job.objects.none()
        workers = {worker.pk: worker for worker in processes_of(self._child)} if jobs else {}
        for job, worker in running.values_list("pk", "worker"):
            if worker in workers and not self.has_happened:
                self._job = job
                self._killed_at = kill_if(workers[worker], partial(self._is_in_the_middle, job, worker))
        return bool(counts) and not self.has_happened

    def resumption(self) -> Resumption | None:
        """Return how the job continued, or None until a process was killed and the job has finished."""
        if self._killed_at is None:
            return None
        job = Job.objects.filter(pk=self._job, finished_at__isnull=False).first()
        if job is None or job.last_attempted_at is None:
            return None
        times = {entry["name"]: datetime.fromisoformat(entry["finished_at"]) for entry in job.steps or []}
        return Resumption(
            document=PurePath(Document.objects.values_list("path", flat=True).get(pk=job.args[0])).name,
            before=list(self._recorded),
            after=[name for name in times if name not in self._recorded],
            repeated=[name for name, moment in self._recorded.items() if times.get(name) != moment],
            again=(job.last_attempted_at - self._killed_at).total_seconds(),
        )

    def _is_in_the_middle(self, job: int, worker: int) -> bool:
        """Note what the job has recorded. Its process is stopped meanwhile."""
        steps = list(Step.objects.filter(job_id=job).order_by("finished_at"))
        self._recorded = {step.name: step.finished_at for step in steps}
        parts = [len(step.result or []) - 1 for step in steps if step.name == "extract"]
        recorded = sum(step.name.startswith(PART) for step in steps)
        holds = self._jobs.filter(pk=job, status=Job.Status.RUNNING, worker=worker).exists()
        return holds and parts >= [recorded + LEFT]
