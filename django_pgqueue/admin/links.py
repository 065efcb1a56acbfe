"""URLs of other pages of the same admin site, for users who may view them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.utils import quote
from django.urls import NoReverseMatch, reverse

from ..models import JobStat

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite
    from django.db.models import Model
    from django.http import HttpRequest

__all__ = ["page_url", "task_url"]


def page_url(site: AdminSite, request: HttpRequest, model: type[Model], page: str, *arguments: Any) -> str:
    """Return the URL of a page of ``model``; empty if the site has none, or if this user may not view it.
    For the page "add", the user must be allowed to add a row. A project may have replaced a class that has
    more pages than Django's own.
    """
    if not site.is_registered(model):
        return ""
    admin = site.get_model_admin(model)
    if not (admin.has_add_permission(request) if page == "add" else admin.has_view_permission(request)):
        return ""
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
    try:
        return reverse(name, args=[quote(argument) for argument in arguments], current_app=site.name)
    except NoReverseMatch:
        return ""


def task_url(site: AdminSite, request: HttpRequest, path: str) -> str:
    """Return the URL of the page of a task; empty if the site has none, or if this user may not view it."""
    if not page_url(site, request, JobStat, "changelist"):
        return ""
    try:
        return reverse("admin:django_pgqueue_jobstat_task", args=[path], current_app=site.name)
    except NoReverseMatch:  # the project has replaced the page of statistics
        return ""
