"""The model: what must become of jobs, in as few words as possible.

A job waits, runs, or is over. Whether a waiting job is claimable or stands in the wait queue of its limit key
is left to the queue: the machine checks that a line does not stand still.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

DEFAULT_ATTEMPTS = 5
CRASH_LIMIT = 3
BACK = frozenset({"retry", "snooze", "release", "unknown"})
"""The outcomes after which a job runs again."""
SCOPES = {"u": "waiting", "v": "live"}
"""The unique keys, and how long each is taken."""


@dataclass(slots=True)
class Expected:
    """A job."""

    pk: int
    priority: int = 0
    status: str = "waiting"
    is_due: bool = True
    expires: bool = False
    """Whether it has a time at which it expires."""
    is_expired: bool = False
    attempts: int = 0
    forgiven: int = 0
    max_attempts: int | None = None
    on_lost: str = "rerun"
    crash_count: int = 0
    lost_in_a_row: int = 0
    lease: int | None = None
    leases: list[int] = field(default_factory=list)
    """All leases that it has had."""
    worker: int | None = None
    is_asked: bool = False
    """Whether it was asked to stop while it ran."""
    unique: str | None = None
    limit: str | None = None
    age: int = 0
    """Days since it is over."""

    @property
    def is_live(self) -> bool:
        return self.status in ("waiting", "running")

    @property
    def is_exhausted(self) -> bool:
        return self.attempts - self.forgiven >= (self.max_attempts or DEFAULT_ATTEMPTS)


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker says of a job."""

    pk: int
    lease: int
    outcome: str
    is_later: bool = False
    has_started: bool = True


@dataclass
class Model:
    """All jobs, by their ids."""

    jobs: dict[int, Expected] = field(default_factory=dict)
    leases: set[int] = field(default_factory=set)
    """All leases so far."""

    def of(self, *statuses: str) -> list[int]:
        """Return the ids of the jobs with these statuses, in order."""
        return sorted(pk for pk, job in self.jobs.items() if job.status in statuses)

    def due(self) -> list[int]:
        """Return the ids of the jobs that wait and are due."""
        return [pk for pk in self.of("waiting") if self.jobs[pk].is_due]

    def lost(self) -> list[tuple[int, int]]:
        """Return jobs with a lease that they no longer have. The live ones come first."""
        found = [
            (job.pk, lease)
            for job in self.jobs.values()
            for lease in job.leases
            if lease != job.lease or not job.is_live
        ]
        return sorted(found, key=lambda pair: (not self.jobs[pair[0]].is_live, pair[0]))

    def twin(self, key: str | None, but: int = 0) -> Expected | None:
        """Return the job that has a unique key."""
        taken = ("waiting",) if key is not None and SCOPES[key] == "waiting" else ("waiting", "running")
        return next(
            (job for job in self.jobs.values()
             if key is not None and job.unique == key and job.pk != but and job.status in taken),
            None,
        )  # fmt: skip

    def replace(self, pk: int, other: Expected) -> None:
        """Let a waiting job take everything from another call."""
        job = self.jobs[pk]
        job.priority, job.is_due, job.max_attempts = other.priority, other.is_due, other.max_attempts
        job.on_lost, job.limit, job.expires, job.is_expired = other.on_lost, other.limit, other.expires, False
        job.forgiven, job.crash_count, job.lost_in_a_row = job.attempts, 0, 0

    def cancel(self, pks: Iterable[int]) -> int:
        """Cancel jobs, and return how many rows change."""
        changed = 0
        for job in map(self.jobs.get, pks):
            if job is not None and job.status == "waiting":
                job.status = "cancelled"
            elif job is not None and job.status == "running" and not job.is_asked:
                job.is_asked = True
            else:
                continue
            changed += 1
        return changed

    def retry(self, pks: Iterable[int]) -> int:
        """Let jobs run again, and return how many rows change."""
        changed = 0
        known = [self.jobs[pk] for pk in sorted(pks) if pk in self.jobs]
        for job in sorted(known, key=lambda job: job.status != "waiting"):
            if job.status == "running" or (not job.is_live and self.twin(job.unique, job.pk)):
                continue
            changed += 1
            job.is_due, job.expires, job.is_expired = True, False, False
            job.forgiven, job.crash_count, job.lost_in_a_row = job.attempts, 0, 0
            if not job.is_live:
                job.status, job.lease, job.worker, job.is_asked, job.age = "waiting", None, None, False, 0
        return changed

    def edit(self, pks: Iterable[int], priority: int) -> int:
        """Give waiting jobs a priority, and return how many rows change."""
        changed = 0
        for job in map(self.jobs.get, pks):
            if job is not None and job.status == "waiting" and job.priority != priority:
                job.priority = priority
                changed += 1
        return changed

    def claim(self, pk: int, worker: int, lease: int) -> None:
        """Let a job run."""
        job = self.jobs[pk]
        assert job.status == "waiting", f"job {pk} was claimed and is {job.status}"
        assert job.is_due, f"job {pk} was claimed too early"
        job.status, job.attempts, job.worker, job.lease = "running", job.attempts + 1, worker, lease
        job.leases.append(lease)
        self.leases.add(lease)

    def finish(self, reports: Iterable[Report]) -> list[int]:
        """Report outcomes, and return the jobs that are accepted."""
        accepted = []
        for report in sorted(reports, key=lambda report: report.pk):
            job = self.jobs.get(report.pk)
            if job is None or job.status != "running" or job.lease != report.lease:
                continue
            accepted.append(job.pk)
            goes_back = report.outcome in BACK
            if (goes_back and report.outcome != "retry") or (
                report.outcome == "cancelled" and not report.has_started
            ):
                job.attempts -= 1
            if not goes_back:
                job.status = report.outcome
            elif job.is_asked or self._meets_twin(job):
                job.status = "cancelled"
            else:
                job.status, job.lease, job.worker = "waiting", None, None
                job.is_due = not report.is_later
                if report.outcome in ("retry", "snooze"):
                    job.lost_in_a_row = 0
        return accepted

    def _meets_twin(self, job: Expected) -> bool:
        return (
            job.unique is not None and SCOPES[job.unique] == "waiting" and bool(self.twin(job.unique, job.pk))
        )

    def lose(self, worker: int, begun: Collection[int], *, alone: bool) -> list[int]:
        """Let the process of a worker die. `begun` are the jobs that had started. Return its jobs."""
        lost = [pk for pk in self.of("running") if self.jobs[pk].worker == worker]
        reports = []
        for pk in lost:
            job = self.jobs[pk]
            has_begun = pk in begun
            counts = has_begun and (alone or job.lost_in_a_row > 0)
            job.crash_count += counts
            job.lost_in_a_row += has_begun and not alone
            fails = (has_begun and job.on_lost == "fail") or (counts and job.crash_count >= CRASH_LIMIT)
            reports.append(Report(pk, job.lease or 0, "failed" if fails else "release"))
        self.finish(reports)
        return lost

    def may_pass_seconds(self) -> bool:
        """Return whether some job waits for a time, or may expire."""
        return any(
            job.is_live and (not job.is_due or job.expires > job.is_expired) for job in self.jobs.values()
        )

    def pass_seconds(self) -> None:
        """Let the time come for which jobs wait, and let those expire that may."""
        for job in self.jobs.values():
            if job.is_live:
                job.is_due = True
                job.is_expired = job.expires

    def pass_days(self, days: int) -> None:
        """Let jobs grow old that are over."""
        for job in self.jobs.values():
            if not job.is_live:
                job.age += days
