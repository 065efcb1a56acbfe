"""The block of the largest groups of failures, for the overview and the page of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.utils import quote
from django.urls import reverse

from ...figures.failures import groups
from ...figures.health import PATIENCE
from ...figures.spans import DAY
from ...time_limit import within
from .rows import row

if TYPE_CHECKING:
    from ...figures.spans import Span
    from ..base import DatabaseAdmin

__all__ = ["failure_block"]

MOST = 5


def failure_block(admin: DatabaseAdmin[Any], span: Span = DAY, task: str = "") -> dict[str, Any]:
    """Return what ``failures_block.html`` shows as ``failures``, of all tasks or of one. ``admin`` is the
    admin of jobs.
    """
    site, prefix = admin.admin_site, f"admin:{admin.opts.app_label}_{admin.opts.model_name}"

    def url(page: str, *arguments: str) -> str:
        return reverse(f"{prefix}_{page}", args=arguments, current_app=site.name)

    found = within(admin.database, PATIENCE, lambda: groups(admin.database, span, task=task, most=MOST))
    if found is None:
        return {"url": url("failures"), "is_slow": True, "groups": []}
    rows = [row(each, url("failure", quote(each.fingerprint)), span) for each in found]
    return {"url": url("failures"), "is_slow": False, "groups": rows}
