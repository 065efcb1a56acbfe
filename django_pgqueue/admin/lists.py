"""Lists that stay fast with a long history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import MAXYEAR, datetime, timedelta
from functools import cached_property, partial, reduce
from operator import or_
from time import monotonic
from typing import Any, ClassVar, NamedTuple, TypeAlias

from django.conf import settings
from django.contrib.admin import SimpleListFilter
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _, gettext_lazy

from ..formatting import number
from ..postgres import fetch_rows, sql_of
from ..postgres.clock import stored
from ..postgres.timeout import within
from ..tasks.registry import known_tasks, queues_in_use
from .display import breakable, stored_time

# A list that stays fast with any number of rows, because it never counts all rows and uses no OFFSET. A page
# starts after a row, in the order of an index (``orders``), so that the hundredth page costs as much as the
# first one. Filters that no index supports read rows one by one, in windows: a statement for each, which is
# larger than the one before if that was fast. The first page answers after ``FIRST_LOOK`` with what was found
# so far. Then ``search.js``, or a link, asks for it once more (``p=first``), and like all later pages, it
# goes on until it is full or after ``PATIENCE``, and then offers to look further back. Each statement has a
# time limit, too: if it is reached, a smaller window is read instead, and after the smallest one the page
# says that the search gave up.

WINDOW = 100_000  # rows
SECONDS = 1.0  # for each statement that finds rows
PATIENCE = 2.0  # seconds after which no window is begun any more
FIRST_LOOK = 0.04  # the same for the first page
FIRST_WINDOW, SMALLEST_WINDOW = 5_000, 500  # rows, while the time of the first page lasts
AGAIN = "first"  # the address of the first page, read with patience
QUICK = 0.2  # seconds; a window that takes less is followed by one of ``GROWTH`` times as many rows
GROWTH = 4
SHRINK, MOST_SHRINKS = 10, 2


class OtherAddress(Exception):
    """A list does not do what its address asks for. ``changes`` leads to one that it does: the parameters
    with their new values, empty for none. ``words`` say what is not done; empty if all of it is.
    """

    def __init__(self, changes: dict[str, str], words: str = "") -> None:
        super().__init__(words)
        self.changes, self.words = changes, words


Values: TypeAlias = tuple[Any, ...]  # the place of a row: its values in the columns of the order


class KeysetChangeList(ChangeList):
    """For an admin class with ``rows_for_list(rows)`` and ``searched_rows(change_list)``."""

    model_admin: Any
    made_at = "created_at"  # the field with the time at which a row was made

    #: Links to other pages as query strings; None if there is no such page.
    newest: str | None = None
    newer: str | None = None
    older: str | None = None
    #: Whether there are rows beyond the windows that were not read.
    cut = False
    #: Whether the search is to go on without waiting for the user.
    goes_on = False
    #: How many rows the filters have read.
    read = 0
    #: How many seconds it took in vain, if no window could be read in time.
    gave_up_after: float | None = None
    window = WINDOW
    first_window = WINDOW  # at most, and at most ``FIRST_WINDOW``

    @property
    def read_text(self) -> str:
        """How many rows the filters have read, for people. ``search.js`` adds the earlier pages."""
        return format_html('<span data-pgqueue-read="{}">{}</span>', self.read, number(self.read))

    def get_filters(self, request: HttpRequest) -> Any:
        """Do what the address asks for. Raise OtherAddress for what no filter knows: the list would have no
        index for it, and no filter would show that it is chosen.
        """
        asked = {name: values[-1] for name, values in self.get_filters_params().items()}
        for each in self.list_filter:
            same_as = getattr(each, "same_as", None)
            if same_as is not None and (changes := same_as(asked)):
                raise OtherAddress(changes)
        served = {"pk", self.model._meta.pk.name, self.date_hierarchy}
        try:
            found = super().get_filters(request)
            unknown = [name for name in found[2] if name.partition("__")[0] not in served]
        except (DisallowedModelAdminLookup, IncorrectLookupParameters):
            unknown = list(asked)
        if unknown:
            words = _("This list has no filter by %(names)s.") % {"names": ", ".join(sorted(unknown))}
            raise OtherAddress(dict.fromkeys(unknown, ""), words)
        return found

    def get_order(self) -> KeysetOrder:
        """Return the order of the rows: newest first, unless a subclass overrides it."""
        return NEWEST

    def get_results(self, request: HttpRequest) -> None:
        """Read one page, and one more row to find out whether there is another page."""
        self.order = self.get_order()
        is_sent = request.method == "POST" and ACTION_CHECKBOX_NAME in request.POST
        if is_sent and self.model_admin.get_actions(request):  # no list: Django asks which rows match
            self._describe([])
            return
        address = request.GET.get(PAGE_VAR, "")
        place = self.order.place(self.model, address.removeprefix("-"))
        backward = place is not None and address.startswith("-")
        if backward:
            self.order = self.order.backward()
        self._is_first_look = not address
        found, end = self._find_in_time(place)
        more = len(found) > self.list_per_page
        found = found[: self.list_per_page]
        if backward:
            found.reverse()
        self._link(found, place, more, end, backward=backward)
        self._describe(self._rows([values[-1] for values in found]))

    def _find_in_time(self, place: Values | None) -> tuple[list[Values], Values | None]:
        """Return the places of the rows of the page and of one more, and the end of what was read, if any."""
        until, window, shrinks = monotonic() + PATIENCE, self.window, 0
        if self._is_first_look:
            until, window = monotonic() + FIRST_LOOK, min(FIRST_WINDOW, self.first_window, window)
        found: list[Values] = []
        end: Values | None = None
        while True:
            began, here = monotonic(), end or place
            find = partial(self._find, here, window, len(found))
            part = within(self.root_queryset.db, SECONDS, find)
            if part is None:
                if shrinks == MOST_SHRINKS or window == 1:
                    self.gave_up_after = None if end else SECONDS * (shrinks + 1)
                    return found, end
                window, shrinks = max(1, window // SHRINK), shrinks + 1
                continue
            found += part[0]
            end = part[1]
            self.read += window
            now = monotonic()
            if end is None or len(found) > self.list_per_page or now > until:
                return found, end
            if now - began < QUICK:
                window *= GROWTH
            if self._is_first_look:  # the time that is left is enough for as many rows
                window = min(window, int(self.read * (until - now) / (now - until + FIRST_LOOK)))
                if window < SMALLEST_WINDOW:
                    return found, end

    def _find(self, place: Values | None, window: int, already: int) -> tuple[list[Values], Values | None]:
        """Return the places of the rows in this window, and the end of the window, if there is one. The page
        has ``already`` so many rows.
        """
        rows, end = self.queryset, None
        searched: QuerySet[Any] | None = self.model_admin.searched_rows(self)
        if searched is not None:
            last = self.order.keys(searched, place, window + 1, skip=window - 1)
            if len(last) == 2:  # the last row of the window, and one beyond it
                end = last[0]
                rows = rows.filter(self.order.up_to(end))
        return self.order.keys(rows, place, self.list_per_page + 1 - already), end

    def _rows(self, keys: list[int]) -> list[Model]:
        """Return the rows with these keys.

        Race: a row may change or be deleted after its key was found. A changed row is shown with its new
        values, even if it no longer matches the filters. A deleted row is left out.
        """
        rows = self.model_admin.rows_for_list(self.root_queryset.filter(pk__in=keys)) if keys else []
        by_key = {row.pk: row for row in rows}
        return [by_key[key] for key in keys if key in by_key]

    def _link(
        self, found: list[Values], place: Values | None, more: bool, end: Values | None, *, backward: bool
    ) -> None:
        """Set the links to other pages."""
        self.cut = end is not None and not more
        if not found and place is None and end is None:
            return
        here = place or end
        first, last = (found[0], found[-1]) if found else (here, here)
        if backward:
            self.older = self._page(last)
            self.newer = self._page(first if more else end, backward=True)
        else:
            self.older = self._page(last if more else end)
            self.newer = self._page(first, backward=True) if place else None
        self.newest = self.get_query_string() if place or self.newer else None
        self.goes_on = self.cut and (self._is_first_look or not found)
        if self.cut and self._is_first_look:
            self.older = self.get_query_string({PAGE_VAR: AGAIN})

    def _describe(self, found: list[Model]) -> None:
        """Set the attributes that Django's templates and views read, without counting all rows."""
        self.result_list = found
        self.result_count = self.full_result_count = len(found)
        self.show_full_result_count = False
        self.show_admin_actions = bool(found)
        self.can_show_all = self.multi_page = False

    def _page(self, values: Values | None, *, backward: bool = False) -> str | None:
        if values is None:
            return None
        text = "~".join(map(str, reversed(values)))
        return self.get_query_string({PAGE_VAR: f"-{text}" if backward else text})


# Orders of a list that are supported by an index, and places in them. A place consists of the values of a row
# in the columns of the order. In the URL, the key comes first: ``p=7``, or ``p=7~2026-01-01 00:00:00+00:00``
# in an order by time. A leading minus requests the rows before the place instead of those after it.
@dataclass(frozen=True, slots=True)
class KeysetOrder:
    """Columns as in ``order_by()``, the key last, and the parts of a table that have an index on them."""

    columns: tuple[str, ...]
    split: Callable[[QuerySet[Any]], list[QuerySet[Any]]] = lambda rows: [rows]
    """Splits rows into parts, each of which has an index in this order."""

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.removeprefix("-") for column in self.columns]

    def backward(self) -> KeysetOrder:
        """Return the opposite order."""
        columns = (column[1:] if column.startswith("-") else f"-{column}" for column in self.columns)
        return replace(self, columns=tuple(columns))

    def place(self, model: type[Model], address: str) -> Values | None:
        """Return the place in a URL; None for the first page and for an invalid place."""
        fields: list[Any] = [model._meta.get_field(name) for name in self.names]
        try:
            texts = zip(fields, reversed(address.split("~")), strict=True)
            return tuple(field.to_python(text) for field, text in texts)
        except (ValueError, ValidationError):
            return None

    def keys(self, rows: QuerySet[Any], place: Values | None, limit: int, *, skip: int = 0) -> list[Values]:
        """Return the values of up to ``limit`` rows after the place, without the first ``skip`` of them.

        Each range of the index of each part is read separately, and only as far as needed. With an OR over
        the columns, PostgreSQL would read the index from its start.
        """
        ranges = [
            part.filter(bound).order_by(*self.columns).values_list(*self.names)[:limit]
            for part in self.split(rows)
            for bound in (self._after(place) if place else [Q()])
        ]
        if not ranges:
            return []
        first, *others = ranges
        if others:
            first = first.union(*others, all=True).order_by(*self.columns)[:limit]
        return list(first[skip:])

    def up_to(self, place: Values) -> Q:
        """Return a condition for the rows up to a place. The bound on the first column ends an index scan."""
        order, here = self.backward(), Q(**dict(zip(self.names, place, strict=True)))
        return order._beyond(0, place, "e") & reduce(or_, order._after(place), here)

    def _after(self, place: Values) -> list[Q]:
        """Return the ranges that together contain all rows after a place, the nearest one first."""
        return [
            Q(**dict(zip(self.names, place[:length], strict=False))) & self._beyond(length, place)
            for length in reversed(range(len(place)))
        ]

    def _beyond(self, column: int, place: Values, bound: str = "") -> Q:
        """Return the condition that a column is after its value; with "e" as ``bound``, also at it."""
        comparison = "lt" if self.columns[column].startswith("-") else "gt"
        return Q(**{f"{self.names[column]}__{comparison}{bound}": place[column]})


NEWEST = KeysetOrder(("-id",))

# Spans of time in the address of a list: a period that ends now, such as ``finished=day``, or from one time
# to another, such as ``finished=2026-11-23T10:00..2026-11-23T12:00``. Of the two times, one may be missing.
# The second one is not in the span. A day stands for its midnight, and a time without an offset is in the
# current time zone.

PERIODS = {
    "hour": (timedelta(hours=1), gettext_lazy("last hour")),
    "day": (timedelta(days=1), gettext_lazy("last 24 hours")),
    "week": (timedelta(days=7), gettext_lazy("last 7 days")),
}
_BETWEEN = ".."


class Span(NamedTuple):
    """From one time to another; None if it has no start or no end."""

    start: datetime | None = None
    end: datetime | None = None

    def __str__(self) -> str:
        start, end = (stored_time(each) if each else "" for each in self)
        if not end:
            return _("since %(start)s") % {"start": start}
        if not start:
            return _("before %(end)s") % {"end": end}
        return _("from %(start)s to %(end)s") % {"start": start, "end": end}


def read_span(text: str) -> Span | None:
    """Return the span that a text names; None if it is not one with two dots."""
    start, dots, end = text.partition(_BETWEEN)
    if not dots or not (start or end):
        return None
    try:
        return Span(_moment(start), _moment(end))
    except (ValueError, OverflowError):
        return None


def span_form(request: HttpRequest, name: str, text: str) -> dict[str, Any]:
    """Return the form for a span: the values of its two fields, in the time zone of the page, and the other
    parameters of the page, from the first page of a list on.
    """
    span, fields = read_span(text) or Span(), {}
    for part, moment in (("from", span.start), ("to", span.end)):
        local = timezone.localtime(moment) if moment is not None and timezone.is_aware(moment) else moment
        fields[part] = "" if local is None else f"{local:%Y-%m-%dT%H:%M}"
    own = {name, f"{name}_from", f"{name}_to", PAGE_VAR}
    others = [(key, value) for key, values in request.GET.lists() if key not in own for value in values]
    return {"parameter_name": name, "fields": fields, "others": others}


def is_span(text: str) -> bool:
    """Return whether a text is the name of a period, or from one time to another."""
    return text in PERIODS or read_span(text) is not None


def within_span(column: str, text: str, now: Any) -> Q:
    """Return the condition that a time is in the span that a text names; an empty one if it names none."""
    if text in PERIODS:
        return Q(**{f"{column}__gte": now - PERIODS[text][0]})
    start, end = read_span(text) or Span()
    bounds = {f"{column}__gte": start, f"{column}__lt": end}
    return Q(**{name: time for name, time in bounds.items() if time is not None})


def _moment(text: str) -> datetime | None:
    """Return the time, in the current time zone if it has no offset. Raise ValueError if it is not a time."""
    if not text.strip():
        return None
    moment = datetime.fromisoformat(text.strip().replace(" ", "+"))  # in an address, "+" is a space
    if timezone.is_aware(moment) != settings.USE_TZ:
        moment = timezone.make_aware(moment) if settings.USE_TZ else stored(moment)
    # Beyond these years, a time has no equal in every zone.
    if not 1 < moment.year < MAXYEAR:
        raise ValueError(text)
    return moment


MOST_NAMES = 200  # in a filter
BACKLOG_WINDOW = 5_000  # jobs to read at each end of the backlog, to find the tasks that have no figures yet
_TASKS = sql_of(__file__, "tasks")


@dataclass
class NamesInUse:
    """The names that a filter offers, and that a search must know."""

    alias: str

    @classmethod
    def of(cls, request: HttpRequest, alias: str) -> NamesInUse:
        """Return what a request has read once: the list, its search and an action on it all ask for it."""
        known: dict[str, NamesInUse] = request.__dict__.setdefault("pgqueue_names", {})
        return known.setdefault(alias, cls(alias))

    @cached_property
    def queues(self) -> list[str]:
        """The queues that the overview shows."""
        return sorted(queues_in_use(self.alias))

    @cached_property
    def tasks(self) -> list[str]:
        """The tasks that this process can find, that have live jobs, or that ran within a day.

        There is no index on the task. Only both ends of a backlog that is longer than twice ``WINDOW`` are
        read, so a task that has not run yet, and that this process cannot find, may be missing.
        """
        found = {path for (path,) in fetch_rows(self.alias, _TASKS, {"window": BACKLOG_WINDOW})}
        return sorted(found | set(known_tasks()))


def address(request: HttpRequest, changes: dict[str, Any]) -> str:
    """Return the query string of the page with changes; an empty value removes a parameter."""
    query = request.GET.copy()
    for name, value in changes.items():
        query.pop(name, None)
        if value:
            query[name] = value
    return f"?{query.urlencode()}"


def links(
    request: HttpRequest, parameter: str, labels: Mapping[str, Any], default: str = ""
) -> list[dict[str, Any]]:
    """Return the choices of a filter as links, like Django's own filters, which lead to the first
    page. ``labels``: their texts by their values. Without a default, an unknown value is one of them.
    """
    chosen = request.GET.get(parameter, "") or default
    if chosen not in labels:
        labels, chosen = (labels, default) if default else ({**labels, chosen: chosen}, chosen)
    first = {f"{parameter}_from": "", f"{parameter}_to": "", PAGE_VAR: ""}
    return [
        {
            "display": label,
            "selected": value == chosen,
            "query_string": address(request, {**first, parameter: value}),
        }
        for value, label in labels.items()
    ]


def names_filter(request: HttpRequest, title: Any, parameter: str, names: Sequence[str]) -> dict[str, Any]:
    """Return a filter by one of some names, for ``filtered.html``."""
    labels = {"": _("All"), **{name: breakable(name) for name in names[:MOST_NAMES]}}
    return {"title": title, "choices": links(request, parameter, labels)}


class ConditionFilter(SimpleListFilter):
    """Filter by one of a few conditions, each with its label. All are offered, also without such rows."""

    conditions: ClassVar[dict[str, tuple[Any, Q]]]

    @classmethod
    def of(cls, title: Any, parameter: str, conditions: dict[str, tuple[Any, Q]]) -> Any:
        """Return a filter with these conditions."""
        values = {"title": title, "parameter_name": parameter, "conditions": conditions}
        return type(cls.__name__, (cls,), values)

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        """Return all choices."""
        return [(key, label) for key, (label, _where) in self.conditions.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows that meet the chosen condition."""
        if self.value() is None:
            return queryset
        if (chosen := self.conditions.get(self.value() or "")) is None:
            raise no_choice(self)
        return queryset.filter(chosen[1])


def no_choice(each: SimpleListFilter) -> OtherAddress:
    """Return what is raised for a value that a filter does not know."""
    words = _("The filter by %(filter)s has no choice “%(value)s”.")
    return OtherAddress({str(each.parameter_name): ""}, words % {"filter": each.title, "value": each.value()})
