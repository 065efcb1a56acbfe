"""The limits of queues on the overview, in short form: how many jobs run of those that may, and the rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _

from ... import wording
from ...figures.health import PATIENCE
from ...models import Limit
from ...time_limit import within
from .. import display
from ..links import page_url
from .rows import Cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.contrib.admin import AdminSite
    from django.http import HttpRequest

    from ...figures.verdict import State
    from .rows import QueueRow

__all__ = ["add_limits"]

_ALL = "*"


def add_limits(
    site: AdminSite, request: HttpRequest, state: State, rows: Sequence[QueueRow]
) -> tuple[Cell | None, bool]:
    """Add its limit to each row. Return the limit of all queues, and whether they were read in time."""
    names = [_ALL, *(f"queue:{row.name}" for row in rows)]
    alias = state.alias
    found = within(alias, PATIENCE, lambda: Limit.objects.using(alias).in_bulk(names))
    if found is None:
        return None, False
    depths = state.depths or {}

    def cell(limit: Limit, running: int) -> Cell:
        return Cell(_in_short(limit, running), page_url(site, request, Limit, "change", limit.pk))

    for row in rows:
        if limit := found.get(f"queue:{row.name}"):
            row.cells["limit"] = cell(limit, depths[row.name].running if row.name in depths else 0)
    every = found.get(_ALL)
    if every is None:
        return None, True
    return cell(every, sum(depth.running for depth in depths.values())), True


def _in_short(limit: Limit, running: int) -> str:
    parts = []
    if limit.running is not None:
        numbers = {"running": display.number(running), "allowed": display.number(limit.running)}
        parts.append(_("%(running)s of %(allowed)s run") % numbers)
    if limit.starts is not None and limit.period is not None:
        parts.append(_("at most %(rate)s") % {"rate": wording.rate(limit.starts, limit.period)})
    return ", ".join(parts)
