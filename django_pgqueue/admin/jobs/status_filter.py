"""The filter by status, with how many jobs are in each of them.

The numbers are those of all jobs, and all viewers share them (``figures.states``). With another filter, with
a search, and in a list of which a subclass shows a part only, they would not tell what a choice leads to, so
they are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from ...figures.states import NOW
from ...models.job import Status
from .. import display
from .filters import on_shelves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.models import QuerySet
    from django.http import HttpRequest

    from ...figures.states import StateCount

__all__ = ["PAUSE", "StatusFilter"]

PAUSE = 5  # seconds until the list is read again


class StatusFilter(admin.SimpleListFilter):
    """Filter by the status of the job."""

    title = _("status")
    parameter_name = "status"

    def __init__(self, request: HttpRequest, *args: Any) -> None:
        super().__init__(request, *args)
        self.request = request

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return all states, even if there are no such jobs."""
        return Status.choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the jobs with the chosen status."""
        status = self.value() if self.value() in Status.values else None
        return on_shelves(status, queryset).filter(status=status) if status else queryset

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Return the states, each with the number of its jobs."""
        everything, *states = super().choices(changelist)
        yield everything
        is_whole = set(changelist.get_filters_params()) <= {self.parameter_name} and not changelist.query
        if not is_whole or changelist.root_queryset.query.where:
            yield from states
            return
        counts, source = NOW.of(changelist.root_queryset.db), self.request.get_full_path()
        for status, choice in zip(Status.values, states, strict=True):
            number = format_html(
                '<span class="pgqueue-count" id="pgqueue-count-{}" data-pgqueue-source="{}"'
                ' data-pgqueue-pause="{}">{}</span>',
                status, source, PAUSE, _text(counts.get(status)),
            )  # fmt: skip
            yield {**choice, "display": format_html("{} {}", choice["display"], number)}


def _text(count: StateCount | None) -> str:
    if count is None:
        return ""
    return display.number(count.number) if count.is_exact else display.about(count.number)
