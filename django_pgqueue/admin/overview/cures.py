"""The problems of the verdict, each with the way to its cure: a page, a command, or a button."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _

from ...models import Job, JobStat, Pause, Queue, Worker
from ..links import page_url

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.contrib.admin import AdminSite
    from django.http import HttpRequest

    from ...figures.health import Problem
    from ..paused import Paused

__all__ = ["Trouble", "troubles"]

_START = "manage.py runqueueworker"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One problem, for the template."""

    text: str
    label: str = ""
    """What the link says; empty if this user may not see the page."""
    url: str = ""
    command: str = ""
    resumes: str = ""
    """The queue that a button resumes."""


def troubles(
    site: AdminSite, request: HttpRequest, problems: Iterable[Problem], pauses: Paused, *, may_resume: bool
) -> list[Trouble]:
    """Return the problems with their cures. ``pauses`` tell who has paused a queue, and why."""
    return [_trouble(site, request, problem, pauses, may_resume) for problem in problems]


def _trouble(
    site: AdminSite, request: HttpRequest, problem: Problem, pauses: Paused, may_resume: bool
) -> Trouble:
    text = str(problem)
    if problem.kind == "paused":
        # To resume everything, the page of pauses asks first.
        said = pauses.queues_said.get(problem.queue) if problem.queue else pauses.everything
        url = "" if problem.queue else page_url(site, request, Pause, "changelist")
        label = _("Pauses") if url else ""
        return Trouble(said or text, label, url, resumes=problem.queue if may_resume else "")
    if problem.kind in {"no_worker", "few_workers", "silent", "lost"}:
        command = _START if problem.kind in {"no_worker", "few_workers"} else ""
        url = page_url(site, request, Worker, "changelist")
        return Trouble(text, _("Workers") if url else "", url, command)
    if problem.kind == "failures":
        url = _view(site, request, Job, "job_failures") or _list(
            site, request, status="failed", finished="hour"
        )
        return Trouble(text, _("Failures") if url else "", url)
    if problem.kind == "unreachable":
        url = _view(site, request, JobStat, "jobstat_database")
        return Trouble(text, _("Database") if url else "", url)
    url = page_url(site, request, Queue, "change", problem.queue) or _list(site, request, queue=problem.queue)
    label = _("Queue %(name)s") % {"name": problem.queue}
    return Trouble(text, label if url else "", url, _START if problem.kind == "unserved" else "")


def _list(site: AdminSite, request: HttpRequest, **filters: str) -> str:
    url = page_url(site, request, Job, "changelist")
    return f"{url}?{urlencode(filters)}" if url else ""


def _view(site: AdminSite, request: HttpRequest, model: type[Job | JobStat], name: str) -> str:
    if not page_url(site, request, model, "changelist"):
        return ""
    try:
        return reverse(f"admin:django_pgqueue_{name}", current_app=site.name)
    except NoReverseMatch:
        return ""
