"""Why a job does not start: its limits, its place in line, and the jobs that hold the slots
(``pgqueue_blocked_by``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from django.db import connections
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from ...models import Job, Limit
from ...why.facts import count
from .. import display
from ..jobs import texts
from ..jobs.search import KEY

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

__all__ = ["Standing", "limits_of", "shown"]

MOST_HOLDERS = 10


class Standing(NamedTuple):
    """A row of ``pgqueue_blocked_by``."""

    name: str
    limit_key: str | None
    is_full: bool
    allowed: int | None
    running: int
    place: int | None
    holders: list[int]
    next_start: datetime | None


def limits_of(alias: str, job: Job) -> list[Standing]:
    """Return the limits of a job that is not over."""
    if job.is_over:
        return []
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT * FROM pgqueue_blocked_by_v1(%s)", [job.pk])
        return [Standing(*row) for row in cursor.fetchall()]


def shown(job: Job, limits: list[Standing], page_url: Callable[..., str]) -> str:
    """Return a line for each limit; for a job that is over, its key."""
    if not limits:
        return texts.breakable(job.limit_key or "")
    return format_html_join("", "<div>{}</div>", [(_line(job, each, page_url),) for each in limits])


def _line(job: Job, limit: Standing, page_url: Callable[..., str]) -> str:
    url = page_url(Limit, "change", limit.name)
    name: str = texts.breakable(limit.limit_key or _words(limit.name))
    parts = [format_html('<a href="{}">{}</a>', url, name) if url else name]
    if limit.allowed is not None:
        parts.append(_("%(running)s of %(allowed)s run") % {
            "running": display.number(limit.running), "allowed": display.number(limit.allowed),
        })  # fmt: skip
    if limit.next_start is not None and job.status != Job.Status.RUNNING:
        words = _("waits for its rate limit, next start at %(time)s")
        parts.append(display.filled(words, time=display.time(limit.next_start)))
    if limit.place is not None:
        ahead = _("%(count)s before it") % {"count": count(limit.place)}
        parts.append(_of_key(limit, ahead, page_url) if limit.place else _("next in line"))
    others = [each for each in limit.holders if each != job.pk]
    full = limit.allowed is not None and limit.running >= limit.allowed
    if full and others and job.status != Job.Status.RUNNING:
        parts.append(format_html("{} {}", _("held by"), _holders(others, page_url)))
    return _joined(parts)


def _words(name: str) -> str:
    """Return the name of a limit without a key."""
    return _("all jobs") if name == "*" else _("queue %(name)s") % {"name": name.removeprefix("queue:")}


def _of_key(limit: Standing, text: str, page_url: Callable[..., str]) -> str:
    """Return the text with a link to all jobs that run or wait with the key."""
    url = page_url(Job, "changelist")
    query = urlencode({"q": f"{KEY}{limit.limit_key}"})
    return format_html('<a href="{}?{}">{}</a>', url, query, text) if url else text


def _holders(holders: list[int], page_url: Callable[..., str]) -> SafeString:
    links = [_link(each, page_url(Job, "change", each)) for each in holders[:MOST_HOLDERS]]
    if len(holders) > MOST_HOLDERS:
        links.append("…")
    return _joined(links)


def _link(holder: int, url: str) -> str:
    return format_html('<a href="{}">{}</a>', url, holder) if url else str(holder)


def _joined(parts: list[Any]) -> SafeString:
    return format_html_join(mark_safe(", "), "{}", [(part,) for part in parts])
