"""All pages of the queue in the admin, found by the names of their URLs.

So a new page is tested as soon as it has a name. If its address has a part that is not known here, its test
fails and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import Model
from django.urls import URLPattern, URLResolver, reverse

from django_pgqueue.models import Job, JobBatch, Limit, Queue, Worker

__all__ = ["NAMES", "PREFIX", "address", "change", "page"]

PREFIX = "django_pgqueue_"


def _patterns(found: list[Any]) -> list[URLPattern]:
    patterns: list[URLPattern] = []
    for each in found:
        patterns += _patterns(each.url_patterns) if isinstance(each, URLResolver) else [each]
    return [each for each in patterns if each.name and each.name.startswith(PREFIX)]


_PATTERNS = {str(pattern.name): pattern for pattern in _patterns(admin.site.get_urls())}

#: The names, without the prefix of the app.
NAMES = sorted(name.removeprefix(PREFIX) for name in _PATTERNS)


def address(name: str) -> str:
    """Return the address of a page, with values from the data of the demonstration."""
    parts = list(_PATTERNS[PREFIX + name].pattern.converters)
    return reverse(f"admin:{PREFIX}{name}", args=[_value(name, part) for part in parts])


def change(row: Model) -> str:
    """Return the address of the page of a row."""
    return page(f"{row._meta.model_name}_change", quote(str(row.pk)))


def page(name: str, *parts: Any) -> str:
    """Return the address of a page, with these parts."""
    return reverse(f"admin:{PREFIX}{name}", args=parts)


def _value(name: str, part: str) -> Any:
    known: dict[str, Callable[[str], Any]] = {
        "object_id": _object,
        "fingerprint": lambda _: _failed().error_fingerprint,
        "task_path": lambda _: _failed().task_path,
        "path": lambda _: _failed().task_path,
    }
    if part not in known:
        raise LookupError(f"Add to known a value for <{part}> in the address of {name}.")
    return known[part](name)


def _failed() -> Job:
    return Job.objects.filter(status="failed", queue_name__startswith="demo-").latest("pk")


def _object(name: str) -> Any:
    """Return the key of a row that the page has something to say about."""
    model = apps.get_model("django_pgqueue", name.split("_")[0])
    if model is Queue:
        return "demo-orders"
    rows = model._default_manager.all()
    if model is JobBatch:
        rows = rows.filter(name__contains="Monday")
    if model is Limit:  # one that can be deleted, if there is one
        return min(rows, key=lambda row: row.is_declared).pk
    if model is Worker:
        rows = rows.filter(host="demo-app-1", pid=4211)
    if model is Job:
        wanted = {"cancel": "pending", "run_now": "pending", "edit": "pending", "extend": "running"}
        rows = rows.filter(status=wanted.get(name.split("_")[1], "failed"), queue_name__startswith="demo-")
    return rows.latest("pk").pk
