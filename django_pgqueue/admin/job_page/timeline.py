"""The life of a job in parts, as a drawing and as a table: when it waited, ran, and backed off after a failed
attempt.

The parts come from the columns of the job and from its errors, which name the times of each failed attempt.
Attempts that left no error that is kept, such as snoozed ones, are part of the time between attempts.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.text import Truncator
from django.utils.translation import gettext as _, gettext_lazy, pgettext

from ... import formatting
from ...explanation.words import A_LIFETIME
from ...models.job import Status
from ...monitoring.jobs import moment
from ...postgres.clock import stored
from ...redaction import redact_text
from .. import display
from .formatter import Formatter, Section

#: What a part can be, in the order of the legend, and its height. What waits is lower than what runs, so that
#: the kinds differ without colors, too.
KINDS = {
    "later": (gettext_lazy("waited for its time"), 4),
    "waited": (gettext_lazy("waited for a worker"), 10),
    "blocked": (gettext_lazy("blocked"), 10),
    "ran": (gettext_lazy("ran"), 20),
    "failed": (gettext_lazy("ran and failed"), 20),
    "backoff": (gettext_lazy("waited for a retry"), 6),
    "between": (gettext_lazy("between attempts"), 2),
    "ahead": (gettext_lazy("will wait"), 4),
}


class TimelinePart(NamedTuple):
    """A span of time of a job. An attempt has its number, its worker as it is stored, and how it failed."""

    kind: str
    start: datetime
    end: datetime
    attempt: int | None = None
    worker: Any = None
    error: str = ""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end - self.start).total_seconds()


def parts_of(job: Any) -> Iterator[TimelinePart]:
    """Yield the parts of a job ``with_clock``, in the order of time. Some may have taken no time."""
    here = job.enqueued_at
    attempts = sorted(_attempts(job), key=lambda attempt: (attempt.start, attempt.end))
    # The job is known to have been due once: before what it waits for now, or else before its last attempt.
    has_failed = bool(attempts) and attempts[-1].kind == "failed"
    waits = Status(job.status).is_claimable or (job.status == Status.CANCELLED and has_failed)
    for attempt in attempts:
        is_last = attempt is attempts[-1] and not waits
        yield from _gap(job, here, attempt.start, attempt is attempts[0], is_last)
        yield attempt._replace(start=max(here, attempt.start))
        here = max(here, attempt.end)
    if job.is_finished:
        # A job is done or has failed when its last attempt ends, whatever the clocks say.
        if job.status == Status.CANCELLED or not attempts:
            yield from _gap(job, here, job.finished_at, not attempts, True)
    elif job.status == Status.BLOCKED:
        yield TimelinePart("blocked", here, job.now)
    elif job.status != Status.RUNNING:
        yield from _gap(job, here, job.now, not attempts, True)
        if job.run_after - job.now < A_LIFETIME:
            yield TimelinePart("ahead", max(here, job.now), job.run_after)


def _gap(job: Any, start: datetime, end: datetime, is_first: bool, is_last: bool) -> Iterator[TimelinePart]:
    """Yield what was before an attempt. Only for one that ``is_last`` it is known when the job was due."""
    if is_last and job.run_after > start:
        due = min(job.run_after, end)
        yield TimelinePart("later" if is_first else "backoff", start, due)
        yield TimelinePart("waited", due, end)
    else:
        yield TimelinePart("waited" if is_first or is_last else "between", start, end)


def _attempts(job: Any) -> Iterator[TimelinePart]:
    """Yield the attempts whose times are known."""
    numbers = set()
    for error in job.errors or []:
        start, end = (moment(str(error.get(key) or "")) for key in ("started_at", "finished_at"))
        number = error.get("attempt")
        # What is text in JSON may be anything, and must be comparable with the columns.
        if start and end and timezone.is_aware(start) and timezone.is_aware(end) and isinstance(number, int):
            numbers.add(number)
            words = ": ".join(str(error[key]) for key in ("class", "message") if error.get(key))
            text = redact_text(words, job.task_path)
            yield TimelinePart("failed", stored(start), stored(end), number, error.get("worker"), text)
    start = job.last_attempted_at or job.started_at
    is_here = job.status == Status.RUNNING or (job.is_finished and job.duration is not None)
    if start is not None and is_here and job.attempts not in numbers:
        kind = "failed" if job.status == Status.FAILED else "ran"
        yield TimelinePart(kind, start, job.finished_at or job.now, job.attempts, job.worker)


# The drawing is SVG without a script or a style. Its width follows the page, so there is no text in it: what
# the parts are is in their titles, in the legend, and in the table.

WIDTH, HEIGHT = 1000, 20
#: The share of the width that the shortest part gets. A job of 5 ms that waited would be invisible.
_LEAST = 0.02


def timeline(show: Formatter) -> dict[str, Any] | None:
    """Return the timeline of a job; None if it has lasted no time."""
    parts = [part for part in parts_of(show.job) if part.end > part.start]
    if not parts:
        return None
    kinds = {part.kind for part in parts}
    heads = (
        pgettext("timeline", "what"), _("attempt"), pgettext("timeline", "from"), _("took"), _("worker"),
        _("error"),
    )  # fmt: skip
    rows = []
    for part in parts:
        number = "" if part.attempt is None else part.attempt
        if part.kind == "failed":
            number = format_html('<a href="#attempt-{}">{}</a>', number, number)
        took, worker = formatting.span(part.seconds), show.worker(part.worker)
        error = Truncator(part.error).chars(160)
        rows.append((KINDS[part.kind][0], number, display.time(part.start), took, worker, error))
    return {
        "drawing": _drawing(parts),
        # The kinds that occur, what they are, and where the mark begins and how high it is.
        "legend": [(kind, str(KINDS[kind][0]), *_size(kind, 2)) for kind in KINDS if kind in kinds],
        "table": Section(_("Timeline"), heads, rows),
        "start": display.time(parts[0].start),
        "end": display.later_time(parts[-1].end, parts[0].start),
    }


def _drawing(parts: list[TimelinePart]) -> str:
    """Return the parts beside each other. Parts too narrow to see take from the others."""
    total = sum(part.seconds for part in parts)
    least = min(_LEAST, 0.5 / len(parts))
    widths = [max(least, part.seconds / total) for part in parts]
    scale, place, shapes = WIDTH / sum(widths), 0.0, []
    for part, width in zip(parts, widths, strict=True):
        # For example "attempt 2: ran and failed, 1.5 s. shop.errors.GatewayDown: no answer".
        words = f"{KINDS[part.kind][0]}, {formatting.span(part.seconds)}"
        if part.attempt is not None:
            words = _("attempt %(number)d") % {"number": part.attempt} + f": {words}"
        title = f"{words}. {part.error}" if part.error else words
        shapes.append((part.kind, f"{place:.1f}", f"{width * scale:.1f}", *_size(part.kind), title))
        place += width * scale
    rects = format_html_join(
        "",
        '<rect class="pgqueue-span-{}" x="{}" width="{}" y="{}" height="{}"><title>{}</title></rect>',
        shapes,
    )
    return format_html(
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true" focusable="false">{}</svg>',
        WIDTH, HEIGHT, rects,
    )  # fmt: skip


def _size(kind: str, scale: int = 1) -> tuple[int, int]:
    """Return where the shapes of a kind begin, and how high they are."""
    height = KINDS[kind][1]
    return (HEIGHT - height) // 2 // scale, height // scale
