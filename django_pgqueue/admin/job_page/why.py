"""Why a waiting job does not run, on its page: the reason, with links to what it names and to what helps.

The links are those that the user may follow. What helps is told in words where no page of the site does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from ...models import Job, JobBatch, JobStat, Limit, Pause, Worker
from ...time_limit import TimeLimitReached, time_limit
from ...why import Why, explain
from ...why.parts import Moment, Reference, Sentence
from ...why.words import sentence
from .. import display
from ..jobs import texts
from ..jobs.search import KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    PageURL = Callable[..., str]

__all__ = ["is_waiting", "shown_why"]

PATIENCE = 2.0  # seconds
_MODELS: dict[str, Any] = {"job": Job, "batch": JobBatch, "worker": Worker, "limit": Limit}
#: The reasons for which nothing on the site helps, or not all of it.
_TOLD = {"after_open_batch", "no_worker", "busy", "unknown_task", "locked", "uncommitted"}


def is_waiting(job: Job) -> bool:
    """Return whether a job is there and does not run."""
    return not job.is_over and job.status != Job.Status.RUNNING


def shown_why(job: Any) -> SafeString:
    """Return why a job does not run. ``job.page_url`` knows the pages that this user may see."""
    alias = str(job._state.db)
    try:
        with time_limit(alias, PATIENCE):
            why = explain(job)
    except TimeLimitReached:
        return conditional_escape(_("It took too long to find out why. Load the page again."))
    told = why.cure if why.code in _TOLD else ""
    return format_html(
        "{}{}{}",
        _html(sentence(why.code, why.facts), job.page_url),
        format_html('<span class="pgqueue-more">{}</span>', told) if told else "",
        _linked(_cures(why, job.page_url)),
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


def _cures(why: Why, page_url: PageURL) -> list[tuple[str, str]]:
    """Return the pages where something can be done about the reason: URLs, which may be empty, and labels."""
    facts = why.facts
    if why.code == "paused":
        return [(page_url(Pause, "change", facts["pause"]), _("Go to the pause"))]
    if why.code in {"limit", "rate"}:
        of_key = _listed(page_url, q=f"{KEY}{facts['key']}") if facts.get("key") else ""
        return [(_limit(facts, page_url), _("Go to the limit")), (of_key, _("Jobs of this key"))]
    if why.code == "in_line":
        return [(_listed(page_url, q=f"{KEY}{facts['key']}"), _("Jobs of this key"))]
    if why.code == "behind":
        return [
            (
                _listed(page_url, queue=facts["queue_name"], status="pending"),
                _("Jobs that wait in this queue"),
            )
        ]
    if why.code in {"no_worker", "busy", "unknown_task", "after_over", "pause_over"}:
        return [(page_url(Worker, "changelist"), _("Workers"))]
    if why.code == "locked":
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
