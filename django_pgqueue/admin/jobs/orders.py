"""The order of the list of jobs for each status: the jobs that matter most come first.

These orders use existing indexes. Waiting jobs are in the order of the claim, for each queue; in its index,
those with a group stand apart. Jobs that are over have an index on the time when they ended; in
the kept leaf, it starts with the queue. Running jobs are few, and are sorted. Blocked jobs, and jobs with any
status, are in the order of their key, newest first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections
from django.db.models import BooleanField
from django.db.models.expressions import Col, F

from ...models.job import Status
from ...queue_names import KEPT_QUEUES
from ..lists.orders import NEWEST, Column, Order
from .filters import KEPT_SHELF, LIVE_SHELF

if TYPE_CHECKING:
    from django.db.models import QuerySet

__all__ = ["MOST_QUEUES", "order_of_jobs"]

#: The jobs of at most this many queues are merged. With more queues, the list is in the order of the key.
MOST_QUEUES = 30

_SOME_OF_KEPT = KEPT_QUEUES + "SELECT kept.queue_name FROM kept LIMIT %s"  # noqa: S608 - constants

_TO_RUN = (Column("priority", descending=True), Column("run_after", is_time=True), Column("id"))
_STARTED = (Column("last_attempted_at", is_time=True), Column("id"))
_FINISHED = (Column("finished_at", descending=True, is_time=True), Column("id", descending=True))


class _Grouped(F):
    """Whether a job has a group: a column of the table that is not a field of the model, because PostgreSQL
    computes it. A condition on ``group_key`` would not be the one that the index of the claim begins with.
    """

    conditional = True

    def resolve_expression(self, query: Any = None, *args: Any, **kwargs: Any) -> Col:
        """Return the column of the jobs of this query."""
        column = BooleanField()
        column.set_attributes_from_name("is_grouped")
        return Col(query.get_initial_alias(), column)


_GROUPED = _Grouped("is_grouped")


def order_of_jobs(alias: str, status: str, queue: str) -> Order:
    """Return the order for jobs with this status and queue; both may be empty."""
    if status not in Status.values:
        return NEWEST
    state = Status(status)
    if state == Status.RUNNING:
        return Order(_STARTED)
    if not (state.is_claimable or state.is_terminal):
        return NEWEST
    queues = [queue] if queue else _queues(alias, state)
    if len(queues) > MOST_QUEUES:
        return NEWEST

    def waiting(jobs: QuerySet[Any]) -> list[QuerySet[Any]]:
        kinds = [~_GROUPED, _GROUPED]
        return [jobs.filter(kind, queue_name=name) for name in queues for kind in kinds]

    def over(jobs: QuerySet[Any]) -> list[QuerySet[Any]]:
        past = jobs.filter(shelf__gt=LIVE_SHELF, shelf__lt=KEPT_SHELF)
        kept = [jobs.filter(shelf=KEPT_SHELF, queue_name=name, status=state) for name in queues]
        return kept if state == Status.FAILED else [past, *kept]

    return Order(_FINISHED, over) if state.is_terminal else Order(_TO_RUN, waiting)


def _queues(alias: str, state: Status) -> list[str]:
    """Return the queues that may have such jobs, at most one more than MOST_QUEUES."""
    with connections[alias].cursor() as cursor:
        if state.is_terminal:
            cursor.execute(_SOME_OF_KEPT, [MOST_QUEUES + 1])
        else:
            cursor.execute("SELECT pgqueue_queues_between_v1('', NULL, NULL)")
        return [name for (name,) in cursor.fetchall()]
