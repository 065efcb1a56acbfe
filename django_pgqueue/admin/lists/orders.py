"""Orders of a list that are supported by an index, and places in them.

An order is a list of columns that ends with the key. A place consists of the values of a row in these
columns. In the URL, it is a list of integers, the key first: ``p=7``, or ``p=7:1767225600000000`` for a row
with a time. A leading minus requests the rows before the place instead of those after it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db.models import Q

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.db.models import QuerySet

__all__ = ["NEWEST", "Column", "Order", "Place", "read_place"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ADDRESS = re.compile(r"(-?)(\d{1,18}(?::-?\d{1,18})*)", re.ASCII)


class Column(NamedTuple):
    """One column of an order."""

    name: str
    descending: bool = False
    is_time: bool = False


class Place(NamedTuple):
    """The row after which a page starts, or before which it ends: its values in the columns of the order."""

    values: tuple[Any, ...]
    backward: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """Columns that end with the key, and the parts of a table that have an index on them."""

    columns: tuple[Column, ...]
    split: Callable[[QuerySet[Any]], list[QuerySet[Any]]] = lambda rows: [rows]
    """Splits rows into parts, each of which has an index in this order."""

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    def keys(
        self, rows: QuerySet[Any], place: Place | None, limit: int, *, skip: int = 0
    ) -> list[tuple[Any, ...]]:
        """Return the values of up to ``limit`` rows after the place, without the first ``skip`` of them.

        Each range of the index of each part is read separately, and only as far as needed. With an OR over
        the columns, PostgreSQL would read the index from its start.
        """
        names, backward = self.names, place is not None and place.backward
        ordered = [f"{'-' if column.descending != backward else ''}{column.name}" for column in self.columns]
        ranges = [
            part.filter(bound).order_by(*ordered).values_list(*names)
            for part in self.split(rows)
            for bound in (self._after(place.values, backward) if place else [Q()])
        ]
        if not ranges:
            return []
        first, *others = [some[:limit] for some in ranges]
        if others:
            first = first.union(*others, all=True).order_by(*ordered)[:limit]
        return list(first[skip:]) if skip else list(first)

    def up_to(self, values: tuple[Any, ...], backward: bool) -> Q:
        """Return a condition for the rows up to a place. The bound on the first column ends an index scan."""
        lead = self.columns[0]
        bound = Q(**{f"{lead.name}__{self._comparison(lead, not backward)}e": values[0]})
        flipped = [*self._after(values, not backward), Q(**dict(zip(self.names, values, strict=True)))]
        return bound & reduce(or_, flipped)

    def _after(self, values: tuple[Any, ...], backward: bool) -> list[Q]:
        """Return the ranges that together contain all rows after a place, the nearest one first."""
        ranges = []
        for length in reversed(range(len(values))):
            equal = dict(zip(self.names[:length], values[:length], strict=True))
            column = self.columns[length]
            ranges.append(
                Q(**equal, **{f"{column.name}__{self._comparison(column, backward)}": values[length]})
            )
        return ranges

    @staticmethod
    def _comparison(column: Column, backward: bool) -> str:
        return "lt" if column.descending != backward else "gt"

    def address(self, values: tuple[Any, ...], *, backward: bool = False) -> str:
        """Return a place in the form for the URL."""
        *others, key = (
            (value - _EPOCH) // timedelta(microseconds=1) if column.is_time else value
            for column, value in zip(self.columns, values, strict=True)
        )
        return f"{'-' if backward else ''}{':'.join(map(str, [key, *others]))}"


NEWEST = Order((Column("pk", descending=True),))


def read_place(order: Order, address: str) -> Place | None:
    """Return the place in a URL; None for the first page and for an invalid place."""
    matched = _ADDRESS.fullmatch(address)
    if matched is None:
        return None
    key, *others = map(int, matched[2].split(":"))
    if len(others) + 1 != len(order.columns) or (key < 2 and not matched[1]):
        return None
    try:
        values = tuple(
            _EPOCH + timedelta(microseconds=number) if column.is_time else number
            for column, number in zip(order.columns, [*others, key], strict=True)
        )
    except OverflowError:
        return None
    return Place(values, backward=bool(matched[1]))
