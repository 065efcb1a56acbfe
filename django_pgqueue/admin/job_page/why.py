"""Why a job does not run, on its page: the reason with links to what it names and to what helps, its limits,
and its unique key.

There are links where the user may follow them. What helps is said in words where no page of the site does it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models.functions import Now
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from ...explanation import Reason, why
from ...explanation.words import Reference, Sentence, count, sentence
from ...formatting import number
from ...models import Job, JobBatch, JobStat, Limit, Pause, UniqueWindow, Worker
from ...models.job import UniqueScope
from ...postgres import fetch_rows, fetch_value
from ...postgres.aliases import write_alias
from ...postgres.timeout import TimeLimitReached, time_limit
from .. import display
from ..console import with_query
from ..display import breakable, linked
from .formatter import Formatter

PATIENCE = 2.0  # seconds
_MODELS: dict[str, Any] = {"job": Job, "batch": JobBatch, "worker": Worker, "limit": Limit}
#: The reasons for which nothing on the site helps, or not all of it.
_TOLD = {"cancel_requested", "after_open_batch", "no_worker", "busy", "unknown_task", "locked", "uncommitted"}


def is_waiting(job: Job) -> bool:
    """Return whether a job does not run, or runs although it was asked to stop."""
    return not job.is_finished and (job.status != Job.Status.RUNNING or job.cancel_requested_at is not None)


def shown_why(show: Formatter) -> SafeString:
    """Return why the job does not run, or does not stop."""
    alias = write_alias(show.job)
    try:
        with time_limit(alias, PATIENCE):
            reason = why(show.job)
    except TimeLimitReached:
        return conditional_escape(_("It took too long to find out why. Load the page again."))
    links = _joined(linked(url, label) for url, label in _fixes(reason, show) if url)
    fix = reason.fix if reason.code in _TOLD else ""
    return format_html("{}{}", _html(sentence(reason.code, reason.facts), show), _more([fix, links]))


def _html(part: Any, show: Formatter) -> SafeString:
    """Return a part of a sentence with links. Everything that comes from jobs is escaped."""
    if isinstance(part, Sentence):
        return display.filled(part.text, **{name: _html(value, show) for name, value in part.values.items()})
    if isinstance(part, datetime):
        return mark_safe(display.time(part))  # noqa: S308 - made by format_html
    if isinstance(part, Reference):
        url = "" if part.key is None else show.url(_MODELS[part.kind], "change", part.key)
        return mark_safe(linked(url, breakable(part.text)))  # noqa: S308 - made by format_html
    if isinstance(part, list):
        return _joined(_html(each, show) for each in part)
    return breakable("" if part is None else str(part))


def _more(notes: Iterable[Any]) -> SafeString:
    """Return notes below a text, without empty ones."""
    return format_html_join("", '<span class="pgqueue-more">{}</span>', ((note,) for note in notes if note))


def _joined(parts: Iterable[Any]) -> SafeString:
    return format_html_join(mark_safe(", "), "{}", ((part,) for part in parts))


def _fixes(reason: Reason, show: Formatter) -> list[tuple[str, str]]:
    """Return the pages where something can be done about the reason: URLs, which may be empty, and labels."""
    facts, code = reason.facts, reason.code
    key = f"key:{facts['key']}" if facts.get("key") else ""
    of_key = (with_query(show.url(Job, "changelist"), q=key) if key else "", _("Jobs of this key"))
    if code == "cancel_requested":
        return [(show.url(Worker, "change", show.job.worker), _("Go to the worker"))]
    if code == "paused":
        return [(show.url(Pause, "change", facts["pause"]), _("Go to the pause"))]
    if code in {"limit", "rate"}:
        if facts.get("is_set"):
            url = show.url(Limit, "change", facts["limit"])
        else:  # the page that sets one
            url = with_query(show.url(Limit, "add"), name=facts["limit"])
        return [(url, _("Go to the limit")), of_key]
    if code == "wait_queue":
        return [of_key]
    if code == "behind":
        url = with_query(show.url(Job, "changelist"), queue=facts["queue_name"], status="pending")
        return [(url, _("Jobs that wait in this queue"))]
    if code in {"no_worker", "busy", "unknown_task", "after_over", "pause_over"}:
        return [(show.url(Worker, "changelist"), _("Workers"))]
    return [(show.url(JobStat, "database"), _("Database"))] if code == "locked" else []


MOST_HOLDERS = 10


class JobLimit(NamedTuple):
    """A row of ``pgqueue_blocked_by``."""

    name: str
    limit_key: str | None
    is_full: bool
    allowed: int | None
    running: int
    place: int | None
    holders: list[int]
    next_start: datetime | None


def limits_of(alias: str, job: Job) -> list[JobLimit]:
    """Return the limits of a live job."""
    if job.is_finished:
        return []
    return [JobLimit(*row) for row in fetch_rows(alias, "SELECT * FROM pgqueue_blocked_by(%s)", [job.pk])]


def shown_limits(show: Formatter, limits: list[JobLimit]) -> str:
    """Return a line for each limit; for a finished job, its key."""
    if not limits:
        return breakable(show.job.limit_key or "")
    return format_html_join("", "<div>{}</div>", [(_joined(_limit(show, each)),) for each in limits])


def _limit(show: Formatter, limit: JobLimit) -> list[Any]:
    job, is_running = show.job, show.job.status == Job.Status.RUNNING
    name = limit.limit_key or _("all jobs")
    if limit.name != "*" and not limit.limit_key:
        name = _("queue %(name)s") % {"name": limit.name.removeprefix("queue:")}
    parts: list[Any] = [show.link(Limit, limit.name, breakable(name))]
    if limit.allowed is not None:
        running, allowed = number(limit.running), number(limit.allowed)
        parts.append(_("%(running)s of %(allowed)s run") % {"running": running, "allowed": allowed})
    if limit.next_start is not None and not is_running:
        words = _("waits for its rate limit, next start at %(time)s")
        parts.append(display.filled(words, time=display.time(limit.next_start)))
    if limit.place is not None:
        ahead = _("%(count)s before it") % {"count": count(limit.place)}
        of_key = linked(with_query(show.url(Job, "changelist"), q=f"key:{limit.limit_key}"), ahead)
        parts.append(of_key if limit.place else _("next in the wait queue"))
    others = [each for each in limit.holders if each != job.pk]
    if limit.allowed is not None and limit.running >= limit.allowed and others and not is_running:
        holders: list[Any] = [show.link(Job, each, str(each)) for each in others[:MOST_HOLDERS]]
        more = ["…"] if len(others) > MOST_HOLDERS else []
        parts.append(format_html("{} {}", _("held by"), _joined([*holders, *more])))
    return parts


def shown_unique(show: Formatter) -> str:
    """Return the unique key, with until when it holds, and which other job has it now."""
    job = show.job
    is_live = job.unique_scope == UniqueScope.LIVE
    waits = _("no other job with this key while this one waits")
    notes: list[Any] = [_("no other job with this key until this one has finished") if is_live else waits]
    window = UniqueWindow.objects.using(show.alias).filter(pk=job.unique_key, until__gt=Now()).first()
    if window is not None:
        notes.append(format_html(_("taken until {} by its window"), display.time(window.until)))
    twin = fetch_value(show.alias, "SELECT _pgqueue_twin(%s, %s)", job.unique_key, job.unique_scope)
    if twin is not None and twin != job.pk:
        link = show.link(Job, twin, _("job %(id)s") % {"id": twin})
        notes.append(format_html(_("{} has the key now"), link))
    key = breakable(job.unique_key or "")
    return format_html('<code class="pgqueue-value">{}</code>{}', key, _more(notes))
