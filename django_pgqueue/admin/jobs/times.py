"""Format the times of a job: in one cell of the list, and as a timeline on its page.

The current time is that of the database (``workers.with_clock``), because the clocks of machines may
differ.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _

from ...models.job import Status
from .. import display

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["line", "now", "summary"]

_A_LIFETIME = timedelta(days=50 * 365)


def summary(job: Any) -> str:
    """Return the time that matters for the status of the job, how long it waited and ran, and the attempt."""
    words, moment = _main(job)
    attempt = _("attempt %(number)d") % {"number": job.attempts} if job.attempts > 1 else ""
    more = ", ".join(filter(None, [_waited(job, display.span), _ran(job, display.span), attempt]))
    return format_html(
        "{}{}",
        display.timed(words, moment),
        format_html('<span class="pgqueue-more">{}</span>', more) if more else "",
    )


def now(job: Any) -> str:
    """Return how long the job has had its status or will have it. This follows the label of the status."""
    words, moment = _main(job)
    if job.status == Status.RUNNING:
        return " " + _("for %(period)s") % {"period": display.period(job.now - moment)}
    return f" {words}" if job.is_over else f", {words}"


def line(job: Any) -> str:
    """Return the past and future events of the job in the order of time, and how long it waited and ran."""
    has_time = _was_to_wait(job) and not _waits_without_a_time(job)
    steps = [
        (job.enqueued_at, _("enqueued"), ""),
        (job.run_after if has_time else None, _("run after"), _until(job)),
        (job.started_at if job.attempts > 1 else None, _("first started"), ""),
        (_last_start(job), _("last started") if job.attempts > 1 else _("started"), _waited(job)),
        (job.cancel_requested_at, _("asked to stop"), ""),
        (job.finished_at, _("finished"), _ran(job)),
        (None if job.is_over else job.deadline, _("deadline"), ""),
        (None if job.is_over else job.expires_at, _("expires"), ""),
    ]
    there = sorted((step for step in steps if step[0] is not None), key=lambda step: step[0])
    before = [None, *(moment for moment, _words, _more in there)]
    return format_html(
        '<ol class="pgqueue-line">{}</ol>',
        format_html_join(
            "",
            "<li>{} {}{}</li>",
            (
                (words, display.later_time(moment, last), _in_brackets(more))
                for last, (moment, words, more) in zip(before, there, strict=False)
            ),
        ),
    )


def _in_brackets(words: str) -> str:
    return format_html(' <span class="pgqueue-quiet">({})</span>', words) if words else ""


def _main(job: Any) -> tuple[str, datetime]:
    here: datetime = job.now
    if job.is_over:
        return _("%(period)s ago") % {"period": display.period(here - job.finished_at)}, job.finished_at
    if job.status == Status.RUNNING:
        began = job.last_attempted_at or job.started_at or here
        return _("running for %(period)s") % {"period": display.period(here - began)}, began
    if job.status == Status.BLOCKED or _waits_without_a_time(job):
        waiting = display.period(here - job.enqueued_at)
        return _("waiting for %(period)s") % {"period": waiting}, job.enqueued_at
    if job.run_after > here:
        return _("in %(period)s") % {"period": display.period(job.run_after - here)}, job.run_after
    return _("due for %(period)s") % {"period": display.period(here - job.run_after)}, job.run_after


def _was_to_wait(job: Any) -> bool:
    """Return whether the job was enqueued to run later. Most jobs are due as soon as they are enqueued."""
    return bool(job.run_after - job.enqueued_at > timedelta(seconds=1))


def _waits_without_a_time(job: Any) -> bool:
    """Return whether the job waits for a signal that may come at any time. It is due in almost a century."""
    return not job.is_over and bool(job.run_after - job.now > _A_LIFETIME)


def _until(job: Any) -> str:
    return _main(job)[0] if Status(job.status).is_claimable else ""


def _last_start(job: Any) -> datetime | None:
    """Return when the last attempt started; None for a job that never ran."""
    started: datetime | None = job.last_attempted_at or job.started_at
    return started if job.attempts else None


def _waited(job: Any, text: Callable[[float], str] = display.seconds) -> str:
    """Return the time from due to the start of the last attempt. A retry starts a new wait."""
    started = _last_start(job)
    if started is None or Status(job.status).is_claimable:
        return ""
    waited = max(0.0, (started - job.run_after).total_seconds())
    return _("waited %(period)s") % {"period": text(waited)}


def _ran(job: Any, text: Callable[[float], str] = display.seconds) -> str:
    if job.duration is None:
        return ""
    return _("ran %(period)s") % {"period": text(job.duration)}
