"""Tasks and the database: pages that belong to the model of the statistics, whose permission they need. The
rows of the model have no pages of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import PermissionDenied

from ...models import JobStat
from ..base import ReadOnlyAdmin
from ..database_page import database_page
from .list import task_list
from .page import task_page

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern


class JobStatAdmin(ReadOnlyAdmin[JobStat]):
    """Shows how the tasks do, one of them, and the state of the database."""

    def get_urls(self) -> list[URLPattern]:
        """Return the three pages."""
        return [
            self.subpage("", self.changelist_view, "changelist"),
            self.subpage("database/", self.database_view, "database"),
            self.subpage("task/<path:task_path>/", self.task_view, "task"),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the tasks."""
        self._check(request)
        return task_list(self, request)

    def task_view(self, request: HttpRequest, task_path: str) -> HttpResponse:
        """Show one task."""
        self._check(request)
        return task_page(self, request, task_path)

    def database_view(self, request: HttpRequest) -> HttpResponse:
        """Show the state of the database."""
        self._check(request)
        return database_page(self, request)

    def _check(self, request: HttpRequest) -> None:
        if not self.has_view_permission(request):
            raise PermissionDenied
