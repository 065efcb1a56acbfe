"""A summary of the jobs of a run: times, failures, and the overhead of the queue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django_pgqueue.models import Job


@dataclass(frozen=True, slots=True)
class Failure:
    """Jobs that failed with the same kind of error. `example` is the message of one of them."""

    kind: str
    count: int
    example: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a run. All times are in seconds.

    `waited` is the time from the moment when a job could run to the start of its last attempt. `ran` is
    measured by the task itself, or by its worker if the task failed. `worked` is the total time of all
    workers, each measured from the start of its first job to the end of its last job. Therefore `(worked -
    sum(ran)) / jobs` is how much of a worker's time the queue took for each job, including waiting for the
    database.
    """

    done: int
    failed: int
    cancelled: int
    elapsed: float
    workers: int
    worked: float
    waited: list[float]
    ran: list[float]
    failures: list[Failure]

    @property
    def jobs(self) -> int:
        """The number of finished jobs."""
        return self.done + self.failed + self.cancelled

    @property
    def rate(self) -> float:
        """Jobs per second."""
        return self.jobs / self.elapsed if self.elapsed else 0.0

    @property
    def overhead(self) -> float:
        """The part of a worker's time that the queue itself took, per job."""
        return (self.worked - sum(self.ran)) / len(self.ran) if self.ran else 0.0


def summarize(first: int, last: int) -> Summary:
    """Summarize the finished jobs with an id from `first` to `last`. Each worker must have one thread."""
    jobs = Job.objects.filter(
        pk__gte=first, pk__lte=last, status__in=[Job.Status.DONE, Job.Status.FAILED, Job.Status.CANCELLED]
    )
    counts = dict.fromkeys(Job.Status, 0)
    spans: dict[int, tuple[datetime, datetime]] = {}
    messages: dict[str, list[str]] = defaultdict(list)
    waited, ran = [], []
    for job in jobs.only(
        "status", "run_after", "last_attempted_at", "finished_at", "worker", "result", "errors"
    ):
        counts[Job.Status(job.status)] += 1
        if job.status == Job.Status.FAILED and job.errors:
            messages[job.errors[-1]["class"].rpartition(".")[2]].append(job.errors[-1]["message"])
        if job.worker is None or job.last_attempted_at is None or job.finished_at is None:
            continue  # never started
        began, ended = spans.get(job.worker, (job.last_attempted_at, job.finished_at))
        spans[job.worker] = min(began, job.last_attempted_at), max(ended, job.finished_at)
        waited.append((job.last_attempted_at - job.run_after).total_seconds())
        ran.append(_seconds(job))
    return Summary(
        done=counts[Job.Status.DONE],
        failed=counts[Job.Status.FAILED],
        cancelled=counts[Job.Status.CANCELLED],
        elapsed=_elapsed(spans.values()),
        workers=len(spans),
        worked=sum((ended - began).total_seconds() for began, ended in spans.values()),
        waited=sorted(waited),
        ran=sorted(ran),
        failures=sorted(
            (Failure(kind, len(texts), min(texts, key=len)) for kind, texts in messages.items()),
            key=lambda failure: -failure.count,
        ),
    )


def percentile(ordered: list[float], percent: float) -> float:
    """Return the nearest-rank percentile of an ordered list, or 0 if the list is empty."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0


def _seconds(job: Job) -> float:
    if isinstance(job.result, dict):
        return float(job.result["seconds"])
    if job.errors:
        error = job.errors[-1]
        began, ended = (datetime.fromisoformat(error[name]) for name in ("started_at", "finished_at"))
        return (ended - began).total_seconds()
    return 0.0


def _elapsed(spans: Iterable[tuple[datetime, datetime]]) -> float:
    begun, ended = zip(*spans, strict=True) if spans else ((), ())
    return (max(ended) - min(begun)).total_seconds() if begun else 0.0
