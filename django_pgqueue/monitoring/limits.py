"""Limits with what runs and waits under them, and in words: for the admin and for ``pgqueue limits``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import IntegerField, QuerySet
from django.db.models.expressions import RawSQL
from django.utils.translation import gettext as _

from ..formatting import number, rate
from ..jobs.limits import target_of
from ..models import Limit
from ..postgres import sql_of
from ..postgres.timeout import time_limit
from ..tasks.registry import known_tasks
from .depth import MOST, depths
from .queues import PATIENCE

_RUNNING, WAITING = (sql_of(__file__, f"limit_{name}") for name in ("running", "waiting"))


def limit_figures(alias: str) -> list[Any]:
    """Return all limits by name, each ``with_running``. Raise ``TimeLimitReached``.

    ``waiting_now``: the jobs in its wait queues, more than ``MOST`` if there are more; for a queue, or all
    jobs, the ready jobs. ``target``: its kind, as ``pgqueue_set_limit`` takes it, and its name there.
    """
    waiting = RawSQL(f"({WAITING})", (MOST + 1, MOST + 1), IntegerField())  # noqa: S611 - a constant
    with time_limit(alias, PATIENCE):
        rows = with_running(Limit.objects.using(alias)).annotate(waiting_now=waiting).order_by("name")
        found: list[Any] = list(rows)
        ready = {name: depth.ready for name, depth in depths(alias).items()} if found else {}
    tasks = known_tasks()
    for row in found:
        kind, name = row.target = target_of(row.name)
        if kind == "all":
            row.waiting_now = sum(ready.values())
        elif kind == "queue":
            row.waiting_now = ready.get(name, 0)
        elif name in tasks:
            row.target = "task", name
    return found


def with_running(limits: QuerySet[Limit]) -> QuerySet[Any]:
    """Annotate limits with the number of jobs that hold their slots, as ``running_now``."""
    running = RawSQL(f"({_RUNNING})", (), IntegerField())  # noqa: S611 - a constant
    rows: QuerySet[Any] = limits.annotate(running_now=running)
    return rows


def rate_text(limit: int | None, per: timedelta | None, burst: int | None) -> str:
    """Return a rate in words; "" without one."""
    if limit is None or per is None:
        return ""
    words = rate(limit, per)
    if burst is None or burst == 1:
        return words
    return _("%(rate)s, burst %(burst)s") % {"rate": words, "burst": number(burst)}


def numbers_text(limit: Limit, prefix: str = "") -> str:
    """Return how many jobs may run at once, and the rate. ``prefix``: "declared_" for those in the code."""
    concurrency = getattr(limit, f"{prefix}concurrency")
    at_once = "" if concurrency is None else number(concurrency)
    pace = rate_text(*(getattr(limit, f"{prefix}{name}") for name in ("rate", "per", "burst")))
    return "; ".join(filter(None, [at_once, pace]))


def origin(limit: Limit) -> str:
    """Return where the numbers come from."""
    if not limit.is_overridden:
        gone = _("no longer declared in code; it can be deleted")
        return _("declared in code") if limit.is_declared else gone
    both = _("set by a user; the code declares %(numbers)s") % {"numbers": numbers_text(limit, "declared_")}
    return both if limit.is_declared else _("set by a user")
