"""The frame of the pages about the queue: the bar that leads from each to all others, and the page around
views that have no model of their own.

A page is on the bar if the site has it and the user may view its model. So a site that registers only some of
the classes, or a project that replaces one, shows what is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import django
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext_lazy as _

from ..models import Job, JobBatch, JobStat, Limit, Pause, Queue, Schedule, Worker
from .display import page_zone
from .visible import may_view_failures

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.contrib.admin import AdminSite, ModelAdmin
    from django.db.models import Model
    from django.forms import Media
    from django.http import HttpRequest
    from django.utils.functional import _StrPromise

_PAGES: list[tuple[_StrPromise, str, type[Model]]] = [
    (_("Overview"), "job_overview", Job),
    (_("Jobs"), "job_changelist", Job),
    (_("Failures"), "job_failures", Job),
    (_("Queues"), "queue_changelist", Queue),
    (_("Workers"), "worker_changelist", Worker),
    (_("Tasks"), "jobstat_changelist", JobStat),
    (_("Batches"), "jobbatch_changelist", JobBatch),
    (_("Schedules"), "schedule_changelist", Schedule),
    (_("Limits"), "limit_changelist", Limit),
    (_("Pauses"), "pause_changelist", Pause),
    (_("Database"), "jobstat_database", JobStat),
]
#: The letters after "g" (static/django_pgqueue/keys.js).
_KEYS = {
    "job_overview": "o", "job_changelist": "j", "job_failures": "f", "queue_changelist": "q",
    "worker_changelist": "w", "jobstat_changelist": "t", "jobbatch_changelist": "b",
    "schedule_changelist": "s", "limit_changelist": "l", "pause_changelist": "p", "jobstat_database": "d",
}  # fmt: skip
_APP = "django_pgqueue_"
#: The pages that ask for more than to view their model.
_ASKS: dict[str, Callable[[AdminSite, HttpRequest], bool]] = {"job_failures": may_view_failures}


@dataclass(frozen=True, slots=True)
class Tab:
    """One page on the bar."""

    label: str
    url: str
    current: str
    """For ``aria-current``: "page", "true" for a page below this one, or empty."""
    key: str = ""
    """The letter that leads there."""


def console_page(
    admin: ModelAdmin[Any],
    request: HttpRequest,
    template: str,
    title: str,
    *,
    media: Media | None = None,
    **context: Any,
) -> TemplateResponse:
    """Return a page of the admin's site. Its template extends ``console.html``; ``media`` is added to that of
    the admin.
    """
    site = admin.admin_site
    request.current_app = site.name
    frame = bar(site, request)
    tabs: list[Tab] = frame["pgqueue_nav"]
    frame |= {
        **site.each_context(request),
        "title": title,
        "opts": admin.opts,
        "media": admin.media if media is None else admin.media + media,
        "pgqueue_crumb": next((tab.label for tab in tabs if tab.current == "page"), title),
        "pgqueue_crumbs_are_listed": django.VERSION >= (6, 1),
    }
    return TemplateResponse(request, template, {**frame, **context})


def bar(site: AdminSite, request: HttpRequest) -> dict[str, Any]:
    """Return the context of the bar: the pages, and the time zone of the times below it."""
    return {"pgqueue_nav": navigation(site, request), "pgqueue_zone": page_zone()}


def navigation(site: AdminSite, request: HttpRequest) -> list[Tab]:
    """Return the pages of this site that the user may view."""
    here = request.resolver_match.url_name if request.resolver_match else ""
    found = [(label, name, url) for label, name, model in _PAGES if (url := _url(site, request, model, name))]
    below = max(
        (name for _label, name, _url in found if (here or "").startswith(_APP + _root(name))),
        key=lambda name: len(_root(name)),
        default="",
    )
    return [
        Tab(str(label), url, "page" if here == _APP + name else "true" if name == below else "", _KEYS[name])
        for label, name, url in found
    ]


def _root(name: str) -> str:
    """Return how the names of the pages below a page begin: "job_failure" for "job_failures"."""
    return name.removesuffix("changelist").removesuffix("s")


def _url(site: AdminSite, request: HttpRequest, model: type[Model], name: str) -> str:
    if not site.is_registered(model) or not site.get_model_admin(model).has_view_permission(request):
        return ""
    if name in _ASKS and not _ASKS[name](site, request):
        return ""
    try:
        return reverse(f"admin:{_APP}{name}", current_app=site.name)
    except NoReverseMatch:  # the project has replaced the class of this model
        return ""
