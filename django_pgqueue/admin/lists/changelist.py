"""A list that stays fast with any number of rows, because it never counts all rows and uses no OFFSET.

A page starts after a row, in the order of an index (``orders``), so that the hundredth page costs as much as
the first one.

Filters that no index supports read rows one by one. They read ``WINDOW`` rows, then stop and offer to look
further back, so that a search without a match takes no longer in a long history than in a short one. Each
statement has a time limit, too: if it is reached, a smaller window is read instead, and after the smallest
one the page says that the search gave up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import PAGE_VAR, ChangeList

from ...time_limit import TimeLimitReached, time_limit
from .orders import NEWEST, read_place

if TYPE_CHECKING:
    from django.db.models import Model, OrderBy, QuerySet
    from django.db.models.expressions import Combinable
    from django.http import HttpRequest

    from .orders import Order, Place

__all__ = ["WINDOW", "KeysetChangeList"]

WINDOW = 100_000  # rows
SECONDS = 1.0  # for each statement that finds rows
#: The parts of the window that are read if the whole takes too long.
SMALLER = (10, 100)


class KeysetChangeList(ChangeList):
    """For an admin class with ``rows_for_list(rows)`` and ``searched_rows(change_list)``."""

    model_admin: Any

    #: Links to other pages as query strings; None if there is no such page.
    newest: str | None = None
    newer: str | None = None
    older: str | None = None
    #: Whether there are rows beyond the window that were not read.
    cut = False
    #: How many seconds it took in vain, if no window could be read in time.
    gave_up_after: float | None = None
    window = WINDOW

    def get_order(self) -> Order:
        """Return the order of the rows: newest first, unless a subclass overrides it."""
        return NEWEST

    def get_ordering(
        self, request: HttpRequest, queryset: QuerySet[Any]
    ) -> list[str | Combinable | OrderBy]:  # the stubs' type of the parent
        """Return a default; ``get_results`` orders the rows of the page."""
        return ["-pk"]

    def get_ordering_field_columns(self) -> dict[int, Any]:
        """Mark no column as sorted."""
        return {}

    def get_results(self, request: HttpRequest) -> None:
        """Read one page, and one more row to find out whether there is another page."""
        self.order = self.get_order()
        if self._is_for_action(request):
            self._describe([])
            return
        place = read_place(self.order, request.GET.get(PAGE_VAR, ""))
        found, end = self._find_in_time(place)
        more = len(found) > self.list_per_page
        found = found[: self.list_per_page]
        if place is not None and place.backward:
            found.reverse()
        self._link(found, place, more, end)
        self._describe(self._rows([values[-1] for values in found]))

    def _is_for_action(self, request: HttpRequest) -> bool:
        """Return whether Django only wants to know which rows match, for an action, and shows no list."""
        is_sent = request.method == "POST" and ACTION_CHECKBOX_NAME in request.POST
        return is_sent and bool(self.model_admin.get_actions(request))

    def _find_in_time(self, place: Place | None) -> tuple[list[tuple[Any, ...]], tuple[Any, ...] | None]:
        """Return what ``_find`` returns for the largest window that can be read within the time limit."""
        windows = [self.window, *(max(1, self.window // part) for part in SMALLER)]
        for self.window in windows:
            try:
                with time_limit(self.root_queryset.db, SECONDS):
                    return self._find(place)
            except TimeLimitReached:
                continue
        self.gave_up_after = SECONDS * len(windows)
        return [], None

    def _find(self, place: Place | None) -> tuple[list[tuple[Any, ...]], tuple[Any, ...] | None]:
        """Return the places of the rows of the page and of one more, and the end of the window, if it has
        one.
        """
        rows, end = self.queryset, None
        searched: QuerySet[Any] | None = self.model_admin.searched_rows(self)
        if searched is not None:
            last = self.order.keys(searched, place, self.window + 1, skip=self.window - 1)
            if len(last) == 2:  # the last row of the window, and one beyond it
                end = last[0]
                rows = rows.filter(self.order.up_to(end, place is not None and place.backward))
        return self.order.keys(rows, place, self.list_per_page + 1), end

    def _rows(self, keys: list[int]) -> list[Model]:
        """Return the rows with these keys.

        Race: a row may change or be deleted after its key was found. A changed row is shown with its new
        values, even if it no longer matches the filters. A deleted row is left out.
        """
        rows = self.model_admin.rows_for_list(self.root_queryset.filter(pk__in=keys)) if keys else []
        by_key = {row.pk: row for row in rows}
        return [by_key[key] for key in keys if key in by_key]

    def _link(
        self, found: list[tuple[Any, ...]], place: Place | None, more: bool, end: tuple[Any, ...] | None
    ) -> None:
        """Set the links to other pages. ``end`` is the end of the window, if it has one."""
        self.cut = end is not None and not more
        if not found and place is None and end is None:
            return
        here = place.values if place else end
        first, last = (found[0], found[-1]) if found else (here, here)
        if place is not None and place.backward:
            self.older = self._page(last)
            self.newer = self._page(first if more else end, backward=True)
        else:
            self.older = self._page(last if more else end)
            self.newer = self._page(first, backward=True) if place else None
        self.newest = self.get_query_string() if place or self.newer else None

    def _describe(self, found: list[Model]) -> None:
        """Set the attributes that Django's templates and views read, without counting all rows."""
        self.result_list = found
        self.result_count = self.full_result_count = len(found)
        self.show_full_result_count = False
        self.show_admin_actions = bool(found)
        self.can_show_all = self.multi_page = False

    def _page(self, values: tuple[Any, ...] | None, *, backward: bool = False) -> str | None:
        if values is None:
            return None
        return self.get_query_string({PAGE_VAR: self.order.address(values, backward=backward)})
