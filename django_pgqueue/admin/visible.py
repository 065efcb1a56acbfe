"""Which jobs a user sees: those of ``get_queryset()`` of the admin class of jobs on the same site.

The pages of other models show jobs, too, and some figures and texts are of all jobs. So all of them ask
here. A user is restricted if the method adds a condition for him or her.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from ..models import Job
from .display import page_url

if TYPE_CHECKING:
    from collections.abc import Collection

    from django.contrib.admin import AdminSite
    from django.db.models import Model, QuerySet
    from django.http import HttpRequest


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


def visible_url(
    site: AdminSite, request: HttpRequest, alias: str, model: type[Model], page: str, *arguments: Any
) -> str:
    """Return what ``page_url`` returns; empty for the page of a job that this user may not see."""
    url = page_url(site, request, model, page, *arguments)
    return "" if url and model is Job and hidden_of(site, request, alias, arguments) else url


def absent_text(site: AdminSite, request: HttpRequest) -> str:
    """Return what is said of a job that is not there for this user."""
    if is_restricted(site, request):
        return _("not kept any more, or not for you to see")
    return _("no longer kept")


def may_view_failures(site: AdminSite, request: HttpRequest) -> bool:
    """Return whether this user may see failures by group. A class of jobs without these pages has none."""
    if not site.is_registered(Job):
        return False
    admin: Any = site.get_model_admin(Job)
    return hasattr(admin, "has_view_failures_permission") and bool(
        admin.has_view_failures_permission(request)
    )
