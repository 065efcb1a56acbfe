"""The statements that change existing jobs, for one job or for the jobs of a queryset.

``{ids}`` in a statement stands for an array of ids. Each statement returns how many jobs it changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import EmptyResultSet
from django.db import connections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet

__all__ = ["CANCEL", "EDIT", "EXTEND", "RETRY", "RUN_NOW", "change_all", "change_one", "edit_values"]

CANCEL = "SELECT pgqueue_cancel_v1({ids})"
RETRY = "SELECT pgqueue_retry_v1({ids})"
RUN_NOW = "SELECT pgqueue_run_now_v1({ids})"
EXTEND = "SELECT count(*) FROM pgqueue_extend_v1({ids}, %s)"
EDIT = "SELECT pgqueue_edit_v1({ids}, %s::integer, %s::timestamptz, %s::double precision, %s)"


def change_one(statement: str, alias: str, pk: int, *more: Any) -> int:
    """Run the statement on the job ``pk`` of the database ``alias``."""
    return _run(alias, statement.format(ids="ARRAY[%s::bigint]"), [pk, *more])


def change_all(statement: str, jobs: QuerySet[Any], *more: Any) -> int:
    """Run the statement on the jobs of a queryset, in the database that the router selects for writing."""
    jobs._for_write = True  # type: ignore[attr-defined]  # so that .db asks the router where to write
    alias = jobs.db
    query = jobs.values("pk").query
    if not (query.is_sliced or query.select_for_update):  # rows are locked in the requested order
        query.clear_ordering(force=True)
    try:
        ids, parameters = query.get_compiler(alias).as_sql()
    except EmptyResultSet:
        return 0
    return _run(alias, statement.format(ids=f"ARRAY({ids})"), [*parameters, *more])


def edit_values(priority: Any, run_after: Any, queue_name: Any) -> tuple[Any, ...]:
    """Return the parameters of ``EDIT``. None leaves a value as it is.

    Raise ``TypeError`` if there is nothing to change, and ``InvalidTask`` for a bad value.
    """
    from .. import validation

    if priority is None and run_after is None and queue_name is None:
        raise TypeError("edit() changes nothing: give it a priority, run_after or queue_name.")
    moment, delay = validation.run_after(run_after)
    return (
        None if priority is None else validation.priority(priority),
        moment,
        None if delay is None else delay.total_seconds(),
        None if queue_name is None else validation.queue_name(queue_name),
    )


def _run(alias: str, query: str, parameters: Sequence[Any]) -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute(query, parameters)
        changed: int = cursor.fetchone()[0]
    return changed
