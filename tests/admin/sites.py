"""Other admin sites: one for another database, one that hides jobs, and one with Django's own class of
statistics. A test names the URLs of one of them.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import path

from django_pgqueue.admin import JobAdmin
from django_pgqueue.models import Job, JobBatch, JobStat

#: The classes of this package, by their models.
CLASSES: dict[Any, Any] = {
    model: type(shown)
    for model, shown in admin.site._registry.items()
    if model._meta.app_label == "django_pgqueue"
}


class OwnJobAdmin(JobAdmin):
    """Hides the queue "hidden" from all but superusers."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        """Return the jobs of this user."""
        jobs = super().get_queryset(request)
        user: Any = request.user
        return jobs if user.is_superuser else jobs.exclude(queue_name="hidden")


class PlainSite(admin.AdminSite):
    """A class of its own, because an order for many jobs names the class of its site."""


def _site(made: admin.AdminSite, classes: dict[Any, Any]) -> admin.AdminSite:
    for model, shown in classes.items():
        made.register(model, shown)
    return made


def _urls(site: admin.AdminSite) -> ModuleType:
    """Return what can be the root of URLs, with a site in place of the usual one."""
    made = ModuleType(f"urls of {site.name}")
    made.urlpatterns = [path("admin/", site.urls)]  # type: ignore[attr-defined]
    return made


other_site = _site(
    admin.AdminSite(name="ops"),
    {
        model: type(f"Other{shown.__name__}", (shown,), {"using": "other"})
        for model, shown in CLASSES.items()
        if model is not JobBatch  # this site has no page for it
    },
)
urlpatterns = [path("admin/", admin.site.urls), path("ops/", other_site.urls)]
other_urls = _urls(other_site)

hiding_site = _site(admin.AdminSite(name="admin"), CLASSES | {Job: OwnJobAdmin})
hiding_urls = _urls(hiding_site)

plain_urls = _urls(_site(PlainSite(), {Job: JobAdmin, JobStat: admin.ModelAdmin}))
