"""Why a waiting job does not run, on its page: the reason, with links to what it names and to what helps.

The links are those that the user may follow. What helps is told in words where no page of the site does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from django.db import connections
from django.db.models.functions import Now
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from ...explanation import Reason, why
from ...explanation.facts import Moment, Reference, Sentence, count
from ...explanation.words import sentence
from ...models import Job, JobBatch, JobStat, Limit, Pause, UniqueWindow, Worker
from ...models.job import UniqueScope
from ...postgres.aliases import write_alias
from ...postgres.timeout import TimeLimitReached, time_limit
from .. import display
from ..jobs import texts
from ..jobs.search import KEY

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

if TYPE_CHECKING:
    PageURL = Callable[..., str]


PATIENCE = 2.0  # seconds
_MODELS: dict[str, Any] = {"job": Job, "batch": JobBatch, "worker": Worker, "limit": Limit}
#: The reasons for which nothing on the site helps, or not all of it.
_TOLD = {"after_open_batch", "no_worker", "busy", "unknown_task", "locked", "uncommitted"}


def is_waiting(job: Job) -> bool:
    """Return whether a job is there and does not run."""
    return not job.is_finished and job.status != Job.Status.RUNNING


def shown_why(job: Any) -> SafeString:
    """Return why a job does not run. ``job.page_url`` knows the pages that this user may see."""
    alias = write_alias(job)
    try:
        with time_limit(alias, PATIENCE):
            reason = why(job)
    except TimeLimitReached:
        return conditional_escape(_("It took too long to find out why. Load the page again."))
    told = reason.fix if reason.code in _TOLD else ""
    return format_html(
        "{}{}{}",
        _html(sentence(reason.code, reason.facts), job.page_url),
        format_html('<span class="pgqueue-more">{}</span>', told) if told else "",
        _linked(_fixes(reason, job.page_url)),
    )


def _html(part: Any, page_url: PageURL) -> SafeString:
    """Return a part of a sentence with links. Everything that comes from jobs is escaped."""
    if isinstance(part, Sentence):
        return display.filled(
            part.text, **{name: _html(value, page_url) for name, value in part.values.items()}
        )
    if isinstance(part, Moment):
        return mark_safe(display.time(part.at))  # noqa: S308 - made by format_html
    if isinstance(part, Reference):
        url = "" if part.key is None else page_url(_MODELS[part.kind], "change", part.key)
        text = texts.breakable(part.text)
        return format_html('<a href="{}">{}</a>', url, text) if url else text
    if isinstance(part, list):
        return format_html_join(", ", "{}", ((_html(each, page_url),) for each in part))
    return texts.breakable(str(part))


def _linked(links: list[tuple[str, str]]) -> SafeString:
    shown = format_html_join(", ", '<a href="{}">{}</a>', ((url, label) for url, label in links if url))
    return format_html('<span class="pgqueue-more">{}</span>', shown) if shown else shown


def _fixes(reason: Reason, page_url: PageURL) -> list[tuple[str, str]]:
    """Return the pages where something can be done about the reason: URLs, which may be empty, and labels."""
    facts = reason.facts
    if reason.code == "paused":
        return [(page_url(Pause, "change", facts["pause"]), _("Go to the pause"))]
    if reason.code in {"limit", "rate"}:
        of_key = _listed(page_url, q=f"{KEY}{facts['key']}") if facts.get("key") else ""
        return [(_limit(facts, page_url), _("Go to the limit")), (of_key, _("Jobs of this key"))]
    if reason.code == "wait_queue":
        return [(_listed(page_url, q=f"{KEY}{facts['key']}"), _("Jobs of this key"))]
    if reason.code == "behind":
        return [
            (
                _listed(page_url, queue=facts["queue_name"], status="pending"),
                _("Jobs that wait in this queue"),
            )
        ]
    if reason.code in {"no_worker", "busy", "unknown_task", "after_over", "pause_over"}:
        return [(page_url(Worker, "changelist"), _("Workers"))]
    if reason.code == "locked":
        return [(page_url(JobStat, "database"), _("Database"))]
    return []


def _limit(facts: dict[str, Any], page_url: PageURL) -> str:
    """Return the page of a limit; of a key without one, the page that sets it."""
    if facts.get("is_set"):
        return page_url(Limit, "change", facts["limit"])
    url = page_url(Limit, "add")
    return f"{url}?{urlencode({'name': facts['limit']})}" if url else ""


def _listed(page_url: PageURL, **query: str) -> str:
    url = page_url(Job, "changelist")
    return f"{url}?{urlencode(query)}" if url else ""


# ----------------------------------------------------------------------------
# Why a job does not start: its limits, its place in the wait queue, and the jobs that hold the slots
# (``pgqueue_blocked_by``).

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
    if job.is_finished:
        return []
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT * FROM pgqueue_blocked_by_v1(%s)", [job.pk])
        return [Standing(*row) for row in cursor.fetchall()]


def shown(job: Job, limits: list[Standing], page_url: Callable[..., str]) -> str:
    """Return a line for each limit; for a finished job, its key."""
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
        parts.append(_of_key(limit, ahead, page_url) if limit.place else _("next in the wait queue"))
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


# ----------------------------------------------------------------------------
# The unique key of a job on its page: until when it holds, and which other job has it now.


def summary(job: Job, link: Callable[[int, str], str]) -> str:
    """Return the key with what there is to say about it. `link` makes a link to a job, with its text."""
    alias = str(job._state.db)
    notes = [_scope(job)]
    window = UniqueWindow.objects.using(alias).filter(pk=job.unique_key, until__gt=Now()).first()
    if window is not None:
        notes.append(format_html(_("taken until {} by its window"), display.time(window.until)))
    twin = _twin(job, alias)
    if twin is not None and twin != job.pk:
        notes.append(format_html(_("{} has the key now"), link(twin, _("job %(id)s") % {"id": twin})))
    return format_html(
        '<code class="pgqueue-value">{}</code>{}',
        texts.breakable(job.unique_key or ""),
        format_html_join("", '<span class="pgqueue-more">{}</span>', ((note,) for note in notes)),
    )


def _scope(job: Job) -> str:
    if job.unique_scope == UniqueScope.LIVE:
        return _("no other job with this key until this one has finished")
    return _("no other job with this key while this one waits")


def _twin(job: Job, alias: str) -> int | None:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT pgqueue_twin_v1(%s, %s)", [job.unique_key, job.unique_scope])
        twin: int | None = cursor.fetchone()[0]
    return twin
