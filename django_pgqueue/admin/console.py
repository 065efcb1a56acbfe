"""What a site shows to a user: which jobs, which pages, the bar that leads from each page to all others, the
frame of pages without a model, and what is paused.

A page is on the bar if the site has it and the user may view its model: a project may register only some of
the classes, or replace one.

A user sees the jobs of ``get_queryset()`` of the admin class of jobs, and is restricted if the method adds a
condition for him or her. Other pages show jobs, too, and some figures are of all jobs: all of them ask here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import django
from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.admin.utils import quote
from django.contrib.admin.views.main import PAGE_VAR
from django.db.models import Model, QuerySet
from django.forms import Media, Script
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.translation import gettext as _, gettext_lazy

from ..context import holding
from ..models import Job, JobBatch, JobStat, Limit, Pause, Queue, Schedule, Worker
from ..models.queue import IN_FORCE
from .display import linked, page_zone, time
from .lists import address


def visible_jobs(site: AdminSite, request: HttpRequest, alias: str) -> QuerySet[Job]:
    """Return the jobs of a database that this user sees; all of them if the site has no class of jobs."""
    if not site.is_registered(Job):
        return Job.objects.using(alias)
    return site.get_model_admin(Job).get_queryset(request).using(alias)


def hides(jobs: QuerySet[Any]) -> bool:
    """Return whether the rows of ``get_queryset()`` are not all rows."""
    return bool(jobs.query.where)


def is_restricted(site: AdminSite, request: HttpRequest) -> bool:
    """Return whether there are jobs that this user may not see."""
    return site.is_registered(Job) and hides(site.get_model_admin(Job).get_queryset(request))


def hidden_of(site: AdminSite, request: HttpRequest, alias: str, keys: Collection[int]) -> set[int]:
    """Return which of these jobs this user may not see. It costs a statement only for a restricted user."""
    if not keys or not is_restricted(site, request):
        return set()
    seen = visible_jobs(site, request, alias).filter(pk__in=list(keys))
    return set(keys).difference(seen.values_list("pk", flat=True))


def absent_text(site: AdminSite, request: HttpRequest) -> str:
    """Return the message about a job that is not there for this user."""
    if is_restricted(site, request):
        return _("not kept any more, or not for you to see")
    return _("no longer kept")


def site_url(site: AdminSite, name: str, *arguments: Any) -> str:
    """Return a URL; empty if the site has none of this name: a project may have replaced a class."""
    try:
        url = reverse(f"admin:{name}", args=arguments, current_app=site.name)
    except NoReverseMatch:
        return ""
    return on_row_shard(url)


#: The shard of the row that is drawn now, in a list of the rows of several shards.
ROW_SHARD: ContextVar[str] = ContextVar("row_shard", default="")
of_row = partial(holding, ROW_SHARD)


def on_row_shard(url: str) -> str:
    """Return an address of a row with its shard, in a list of the rows of several shards."""
    return with_query(url, **{SHARD: ROW_SHARD.get()})


def with_query(url: str, **values: str) -> str:
    """Return an address with these parameters, without empty ones; empty if there is no address."""
    query = urlencode({name: value for name, value in values.items() if value})
    return f"{url}{'&' if '?' in url else '?'}{query}" if url and query else url


def page_url(site: AdminSite, request: HttpRequest, model: type[Model], page: str, *arguments: Any) -> str:
    """Return the URL of a page of ``model``; empty if the site has none, or if this user may not view it.
    The page "add" is for users who may add a row.
    """
    admin = site.get_model_admin(model) if site.is_registered(model) else None
    permission = {"add": "add", "failures": "view_failures"}.get(page, "view")
    has_permission = getattr(admin, f"has_{permission}_permission", None)
    if has_permission is None or not has_permission(request):
        return ""
    name = f"{model._meta.app_label}_{model._meta.model_name}_{page}"
    return site_url(site, name, *map(quote, arguments))


def task_url(site: AdminSite, request: HttpRequest, path: str) -> str:
    """Return the URL of the page of a task, which has its path as it is."""
    if not page_url(site, request, JobStat, "changelist"):
        return ""
    return site_url(site, "django_pgqueue_jobstat_task", path)


SHARD, _ALL = "shard", "all"  # in an address

#: Each page with the letter after "g" (static/django_pgqueue/keys.js).
_PAGES: list[tuple[Any, type[Model], str, str]] = [
    (gettext_lazy("Overview"), Job, "overview", "o"),
    (gettext_lazy("Jobs"), Job, "changelist", "j"),
    (gettext_lazy("Failures"), Job, "failures", "f"),
    (gettext_lazy("Queues"), Queue, "changelist", "q"),
    (gettext_lazy("Workers"), Worker, "changelist", "w"),
    (gettext_lazy("Tasks"), JobStat, "changelist", "t"),
    (gettext_lazy("Batches"), JobBatch, "changelist", "b"),
    (gettext_lazy("Schedules"), Schedule, "changelist", "s"),
    (gettext_lazy("Limits"), Limit, "changelist", "l"),
    (gettext_lazy("Pauses"), Pause, "changelist", "p"),
    (gettext_lazy("Database"), JobStat, "database", "d"),
]


def assets(*styles: str, scripts: Iterable[str] = ()) -> Media:
    """Return what a page needs of the static files of this package, by their names."""
    files: list[Any] = [Script(f"django_pgqueue/{name}.js", defer=True) for name in scripts]
    return Media(css={"all": [f"django_pgqueue/{name}.css" for name in styles]}, js=files)


def console_page(
    admin: ModelAdmin[Any],
    request: HttpRequest,
    template: str,
    title: str,
    *,
    media: Media | None = None,
    **context: Any,
) -> TemplateResponse:
    """Return a page of the admin's site. Its template extends ``console.html``; ``media`` is added."""
    site = admin.admin_site
    request.current_app = site.name
    frame = bar(site, request)
    frame |= {
        **site.each_context(request),
        "title": title,
        "opts": admin.opts,
        "media": admin.media if media is None else admin.media + media,
        "pgqueue_crumb": next((t["label"] for t in frame["pgqueue_nav"] if t["current"] == "page"), title),
        "pgqueue_crumbs_are_listed": django.VERSION >= (6, 1),
    }
    if not frame["pgqueue_is_of_model"]:
        frame["available_apps"] = [*map(_unmarked, frame.get("available_apps", ()))]
    return TemplateResponse(request, template, {**frame, **context})


def _unmarked(app: dict[str, Any]) -> dict[str, Any]:
    """Return an app of the list at the side, which marks the models whose address is a part of the page's."""
    models = [{**each, "admin_url": each["admin_url"] and f"{each['admin_url']}?"} for each in app["models"]]
    return {**app, "models": models}


def bar(site: AdminSite, request: HttpRequest) -> dict[str, Any]:
    """Return the context of the bar: the pages that the user may view, the time zone of the times, and the
    replica and the shard that the page is read from. What is ``current`` is for ``aria-current``: "page",
    "true" for a page below this one, or empty.

    ``pgqueue_bars`` gives the bar once, to the first block that the theme of the admin has: below the
    breadcrumbs, or else above the messages.
    """
    here = (request.resolver_match.url_name if request.resolver_match else "") or ""
    tabs: dict[str, dict[str, str]] = {}
    for label, model, page, key in _PAGES:
        if url := page_url(site, request, model, page):
            name = f"{model._meta.app_label}_{model._meta.model_name}_{page}"
            # How the names of the pages below this page begin: "job_failure" for "job_failures".
            root = name.removesuffix("changelist").removesuffix("s")
            current = "page" if here == name else ""
            tabs[root] = {"label": str(label), "url": url, "key": key, "current": current}
    root = max(filter(here.startswith, tabs), default="")
    above = tabs.get(root, {"url": "", "current": ""})
    above["current"] = above["current"] or "true"
    # The row of a page is on one shard: to another one, the page above leads.
    is_of_row = bool(request.resolver_match and request.resolver_match.kwargs)
    return {
        "pgqueue_nav": [*tabs.values()],
        "pgqueue_bars": iter([[*tabs.values()]] if tabs else []),
        "pgqueue_is_of_model": not root or root.endswith("_"),  # not: overview, failures, database
        "pgqueue_zone": page_zone(),
        "pgqueue_shards": _switch(request, above["url"] if is_of_row else request.path),
        "pgqueue_replica": getattr(request, "pgqueue_replica", ""),
    }


def _switch(request: HttpRequest, path: str) -> list[dict[str, Any]]:
    """Return the links to the other shards, for the bar. ``path``: of the page without a query."""
    first = {PAGE_VAR: ""}  # without the position in another list
    return [
        {
            "label": alias or _("All shards"),
            "url": path + address(request, {**first, SHARD: alias or _ALL}),
            "current": alias == getattr(request, "pgqueue_shard", ""),
        }
        for alias in getattr(request, "pgqueue_shards", ())
    ]


@dataclass(slots=True)
class Paused:
    """The pauses in force, in sentences that link to their pages if this user may view them."""

    everything: str = ""  # for the banner; empty if not everything is paused
    queues: dict[str, str] = field(default_factory=dict)  # the details for each paused queue
    queues_said: dict[str, str] = field(default_factory=dict)  # the sentence about each paused queue
    tasks_said: list[str] = field(default_factory=list)


def paused(
    site: AdminSite, request: HttpRequest, alias: str, pauses: Iterable[Pause] | None = None
) -> Paused:
    """Return what is paused in a database. ``pauses``: those in force, if they are read already."""
    if pauses is None:
        pauses = Pause.objects.using(alias).filter(IN_FORCE).order_by("kind", "name")
    found = Paused()
    sentences = {
        Pause.Kind.ALL: _("Everything is {details}."),
        Pause.Kind.QUEUE: _("Queue {name} is {details}."),
        Pause.Kind.TASK: _("Task {name} is {details}."),
        Pause.Kind.GROUP: _("Group {name} is {details}."),
        Pause.Kind.LIMIT_KEY: _("Limit key {name} is {details}."),
        Pause.Kind.ARGUMENT: _("Jobs of {name} are {details}."),
    }
    for pause in pauses:
        url, facts = page_url(site, request, Pause, "change", pause.pk), details(pause)
        said = linked(url, format_html(sentences[Pause.Kind(pause.kind)], name=pause.name, details=facts))
        if pause.kind == Pause.Kind.ALL:
            found.everything = said
        elif pause.kind == Pause.Kind.QUEUE:
            found.queues_said[pause.name], found.queues[pause.name] = said, linked(url, facts)
        else:
            found.tasks_said.append(said)
    return found


def target(pause: Pause) -> str:
    """Return what is paused, in words."""
    words = {
        "all": _("everything"),
        "queue": _("queue %(name)s"),
        "task": _("task %(name)s"),
        "group": _("group %(name)s"),
        "limit_key": _("limit key %(name)s"),
        "argument": _("jobs of %(name)s"),
    }
    return words[pause.kind] % {"name": pause.name}


def details(pause: Pause) -> Any:
    """Return who has paused it, why, and until when: "paused by ann until 12:00: the bank is down"."""
    text = {
        (False, False): _("paused"),
        (True, False): _("paused by {author}"),
        (False, True): _("paused until {end}"),
        (True, True): _("paused by {author} until {end}"),
    }[bool(pause.author), pause.until is not None]
    words = format_html(text, author=pause.author, end=time(pause.until))
    return format_html("{}: {}", words, pause.reason) if pause.reason else words
