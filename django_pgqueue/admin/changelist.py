"""A list that stays quick however many rows there are: it counts nothing and skips nothing.

A page begins after a row, in an order that an index has (``orders``), so that the hundredth page costs as
much as the first.

Filters that no index serves look at rows one by one. They look at ``WINDOW`` rows, then stop and offer to
look further back: a search for what is not there takes no longer in a long history than in a short one. A
search in texts has a time limit as well, and says so when it has reached it.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from django.contrib.admin.views.main import PAGE_VAR, ChangeList

from .orders import NEWEST, read_place
from .time_limit import TimeLimitReached, time_limit

if TYPE_CHECKING:
    from django.db.models import Model, OrderBy, QuerySet
    from django.db.models.expressions import Combinable
    from django.http import HttpRequest

    from .orders import Order, Place

__all__ = ["WINDOW", "KeysetChangeList"]

WINDOW = 100_000  # rows


class KeysetChangeList(ChangeList):
    """For an admin class with ``rows_for_list(rows)`` and ``searched_rows(change_list)``."""

    model_admin: Any

    #: Links to other pages, None where there are none: query strings.
    newest: str | None = None
    newer: str | None = None
    older: str | None = None
    #: Whether rows were left unread because the window was full.
    cut = False
    #: The seconds after which the search gave up, if it did.
    gave_up_after: float | None = None
    window = WINDOW

    def get_order(self) -> Order:
        """The order of the rows: newest first, unless a subclass knows better."""
        return NEWEST

    def get_time_limit(self) -> float | None:
        """How many seconds each statement that looks for rows may take, if there is a limit."""
        return None

    def get_ordering(
        self, request: HttpRequest, queryset: QuerySet[Any]
    ) -> list[str | Combinable | OrderBy]:  # the stubs' type of the parent
        """None yet: ``get_results`` puts the rows into the order of the page."""
        return ["-pk"]

    def get_ordering_field_columns(self) -> dict[int, Any]:
        """No column is marked as sorted."""
        return {}

    def get_results(self, request: HttpRequest) -> None:
        """Read one page, and one row more to see whether there is another."""
        self.order = self.get_order()
        place = read_place(self.order, request.GET.get(PAGE_VAR, ""))
        limit = self.get_time_limit()
        try:
            with time_limit(self.root_queryset.db, limit) if limit else nullcontext():
                found, end = self._find(place)
        except TimeLimitReached:
            found, end, self.gave_up_after = [], None, limit
        more = len(found) > self.list_per_page
        found = found[: self.list_per_page]
        if place is not None and place.backward:
            found.reverse()
        self._link(found, place, more, end)
        self._describe(self._rows([values[-1] for values in found]))

    def _find(self, place: Place | None) -> tuple[list[tuple[Any, ...]], tuple[Any, ...] | None]:
        """The places of the rows of the page and one more, and where the window ended, if it did."""
        rows, end = self.queryset, None
        searched: QuerySet[Any] | None = self.model_admin.searched_rows(self)
        if searched is not None:
            beyond = self.order.keys(searched, place, self.window + 1, skip=self.window)
            if beyond:
                [end] = beyond
                rows = rows.filter(self.order.up_to(end, place is not None and place.backward))
        return self.order.keys(rows, place, self.list_per_page + 1), end

    def _rows(self, keys: list[int]) -> list[Model]:
        """The rows with these keys.

        Race: a row may change or vanish after its key was found. A changed one is shown as it is by now, even
        if the filters would no longer find it; one that is gone is left out.
        """
        rows = self.model_admin.rows_for_list(self.root_queryset.filter(pk__in=keys)) if keys else []
        by_key = {row.pk: row for row in rows}
        return [by_key[key] for key in keys if key in by_key]

    def _link(
        self, found: list[tuple[Any, ...]], place: Place | None, more: bool, end: tuple[Any, ...] | None
    ) -> None:
        """Set the links to other pages; ``end`` is where the window ended, if it did."""
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
        """What Django's templates and views ask for; nothing here is a count of all rows."""
        self.result_list = found
        self.result_count = self.full_result_count = len(found)
        self.show_full_result_count = False
        self.show_admin_actions = bool(found)
        self.can_show_all = self.multi_page = False

    def _page(self, values: tuple[Any, ...] | None, *, backward: bool = False) -> str | None:
        if values is None:
            return None
        return self.get_query_string({PAGE_VAR: self.order.address(values, backward=backward)})
