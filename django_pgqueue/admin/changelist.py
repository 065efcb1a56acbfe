"""A list that stays quick however many rows there are: it counts nothing and skips nothing.

Pages are ranges of the primary key, so that the hundredth page costs as much as the first. In the address the
page is ``p=N``: the rows before id N, newest first; ``p=-N``: those just after id N.

Filters that no index serves look at rows one by one. They look at ``WINDOW`` rows, then stop and offer to
look further back: a search for what is not there takes no longer in a long history than in a short one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.views.main import PAGE_VAR, ChangeList

if TYPE_CHECKING:
    from django.db.models import Model, OrderBy, QuerySet
    from django.db.models.expressions import Combinable
    from django.http import HttpRequest

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
    window = WINDOW

    def get_ordering(
        self, request: HttpRequest, queryset: QuerySet[Any]
    ) -> list[str | Combinable | OrderBy]:  # the stubs' type of the parent
        """By the key only: any other order would sort the history."""
        return ["-pk"]

    def get_ordering_field_columns(self) -> dict[int, Any]:
        """No column is marked as sorted."""
        return {}

    def get_results(self, request: HttpRequest) -> None:
        """Read one page, and one row more to see whether there is another."""
        rows, order = self.queryset, "-pk"
        searched: QuerySet[Any] | None = self.model_admin.searched_rows(self)
        page = self.page_num
        forward = page < 0
        bounds: dict[str, int] = {}
        if forward:
            order, bounds = "pk", {"pk__gt": -page}
        elif page > 1:
            bounds = {"pk__lt": page}
        end = None
        if searched is not None:
            pool = searched.filter(**bounds).order_by(order).values_list("pk", flat=True)
            end = pool[self.window : self.window + 1].first()
            if end is not None:
                bounds["pk__lte" if forward else "pk__gte"] = end
        page_rows = self.model_admin.rows_for_list(rows.filter(**bounds).order_by(order))
        found = list(page_rows[: self.list_per_page + 1])
        more = len(found) > self.list_per_page
        found = found[: self.list_per_page]
        if forward:
            found.reverse()
        self._link(found, page, more, end)
        self._describe(found)

    def _link(self, found: list[Model], page: int, more: bool, end: int | None) -> None:
        """Set the links to other pages; ``end`` is where the window ended, if it did."""
        self.cut = end is not None and not more
        first, last = (found[0].pk, found[-1].pk) if found else (abs(page), abs(page))
        if page < 0:
            self.older = self._page(last)
            self.newer = self._page(-first) if more else self._page(-end) if end else None
        else:
            self.older = self._page(last) if more else self._page(end) if end else None
            self.newer = self._page(-first) if page > 1 else None
        self.newest = self.get_query_string() if page > 1 or self.newer else None

    def _describe(self, found: list[Model]) -> None:
        """What Django's templates and views ask for; nothing here is a count of all rows."""
        self.result_list = found
        self.result_count = self.full_result_count = len(found)
        self.show_full_result_count = False
        self.show_admin_actions = bool(found)
        self.can_show_all = self.multi_page = False

    def _page(self, page: int) -> str:
        return self.get_query_string({PAGE_VAR: page})
