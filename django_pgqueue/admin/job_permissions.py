"""What a user may do with jobs: the admin class of jobs on the same site says it, as the project has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..models import Job

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite
    from django.http import HttpRequest

__all__ = ["may_with_jobs"]


def may_with_jobs(site: AdminSite, request: HttpRequest, name: str) -> bool:
    """Return whether this user has a permission for jobs, named by its codename without the model."""
    method = f"has_{name}_permission"
    if site.is_registered(Job) and hasattr(site.get_model_admin(Job), method):
        return bool(getattr(site.get_model_admin(Job), method)(request))
    return request.user.has_perm(f"{Job._meta.app_label}.{name}_{Job._meta.model_name}")
