"""The life of a job in parts: when it waited, ran, and backed off after a failed attempt.

The parts come from the columns of the job and from its errors, which name the times of each failed attempt.
Attempts that left no error that is kept, such as snoozed ones, are part of the time between attempts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from django.conf import settings
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...models.job import Status
from ...redaction import redact_text

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["KINDS", "Part", "attempt_name", "parts_of"]

_A_LIFETIME = timedelta(days=50 * 365)

#: What a part can be. The order is that of the legend.
KINDS = {
    "later": gettext_lazy("waited for its time"),
    "waited": gettext_lazy("waited for a worker"),
    "blocked": gettext_lazy("blocked"),
    "ran": gettext_lazy("ran"),
    "failed": gettext_lazy("ran and failed"),
    "backoff": gettext_lazy("backed off"),
    "between": gettext_lazy("between attempts"),
    "ahead": gettext_lazy("will wait"),
}


class Attempt(NamedTuple):
    """An attempt whose times are known."""

    start: datetime
    end: datetime
    number: int
    is_failed: bool
    worker: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A span of time of a job."""

    kind: str
    start: datetime
    end: datetime
    attempt: int | None = None
    worker: str = ""
    """The id of the worker of the attempt, as it is stored."""
    error: str = ""
    """How the attempt failed."""

    @property
    def label(self) -> str:
        """What it is, in words."""
        return str(KINDS[self.kind])

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end - self.start).total_seconds()


def parts_of(job: Any) -> list[Part]:
    """Return the parts of a job ``with_clock``, in the order of time."""
    return [part for part in _parts(job) if part.end > part.start]


def _parts(job: Any) -> Iterator[Part]:
    here = job.enqueued_at
    attempts = sorted(_attempts(job))
    # The job is known to have been due once: before what it waits for now, or else before its last attempt.
    waits = Status(job.status).is_claimable or (
        job.status == Status.CANCELLED and bool(attempts) and attempts[-1].is_failed
    )
    for attempt in attempts:
        is_last = attempt is attempts[-1] and not waits
        yield from _gap(job, here, attempt.start, attempt is attempts[0], is_last)
        start = max(here, attempt.start)
        yield Part(
            "failed" if attempt.is_failed else "ran", start, attempt.end, attempt.number, attempt.worker,
            attempt.error,
        )  # fmt: skip
        here = max(here, attempt.end)
    if job.is_over:
        # A job is done or has failed when its last attempt ends, whatever the clocks say.
        if job.status == Status.CANCELLED or not attempts:
            yield from _gap(job, here, job.finished_at, not attempts, True)
    elif job.status == Status.BLOCKED:
        yield Part("blocked", here, job.now)
    elif job.status != Status.RUNNING:
        yield from _gap(job, here, job.now, not attempts, True)
        if job.run_after - job.now < _A_LIFETIME:
            yield Part("ahead", max(here, job.now), job.run_after)


def _gap(job: Any, start: datetime, end: datetime, is_first: bool, is_last: bool) -> Iterator[Part]:
    """Yield what was before an attempt. Only for one that ``is_last`` it is known when the job was due."""
    early = "later" if is_first else "backoff"
    if is_last and job.run_after > start:
        due = min(job.run_after, end)
        yield Part(early, start, due)
        yield Part("waited", due, end)
    else:
        yield Part("waited" if is_first or is_last else "between", start, end)


def _attempts(job: Any) -> Iterator[Attempt]:
    numbers = set()
    for error in job.errors or []:
        start, end = _moment(error, "started_at"), _moment(error, "finished_at")
        number = error.get("attempt")
        if start is not None and end is not None and isinstance(number, int):
            numbers.add(number)
            words = ": ".join(str(error[key]) for key in ("class", "message") if error.get(key))
            worker = str(error.get("worker") or "")
            yield Attempt(start, end, number, True, worker, redact_text(words, job.task_path))
    start = job.last_attempted_at or job.started_at
    is_here = job.status == Status.RUNNING or (job.is_over and job.duration is not None)
    if start is not None and is_here and job.attempts not in numbers:
        failed = job.status == Status.FAILED
        worker = "" if job.worker is None else str(job.worker)
        yield Attempt(start, job.finished_at or job.now, job.attempts, failed, worker)


def _moment(error: dict[str, Any], key: str) -> datetime | None:
    """Return a time of an error, which is text in JSON, comparable with those of the columns."""
    try:
        found = parse_datetime(str(error.get(key) or ""))
    except ValueError:
        return None
    if found is None or timezone.is_naive(found):
        return None
    return found if settings.USE_TZ else timezone.make_naive(found)


def attempt_name(number: int | None) -> str:
    """Return how an attempt is called."""
    return "" if number is None else _("attempt %(number)d") % {"number": number}
