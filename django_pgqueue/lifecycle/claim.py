"""The claim: a Django queryset with ``select_for_update(skip_locked=True)``, wrapped in one UPDATE.

A worker reads ranges. A range is one (queue, priority), bounded below by the mark that the worker holds for
it (``worker/producer/ranges.py``) and above by the clock. The ranges are passed as arrays in the order in
which they are to be drained, and one statement takes rows from them until it has enough. The nested loop
returns and locks one row at a time, so the outer LIMIT does not lock more rows than it returns.

Three things look odd but are on purpose. The statuses are literals, because a generic plan cannot match a
parameter with the predicate of the partial index. The rows are selected by ``= ANY (ARRAY(..))``: a join with
``picked``, whose size a generic plan overestimates, becomes a hash join over the table. The commit of a claim
is asynchronous: losing a claim in a server crash is harmless, because the lease comes from the memory of the
worker and is never reused. A finish is always durable.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import NamedTuple

from django.db import connections, transaction
from django.db.models import F
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan
from django.db.models.functions import Now

from ..models import LiveJob

__all__ = ["Claimed", "claim_sql"]


class Claimed(NamedTuple):
    """The row of a claimed job as the server sent it: times and JSON are text, parsed when needed."""

    id: int
    lease: int
    task_path: str
    args: str
    kwargs: str
    queue_name: str
    priority: int
    run_after: str
    attempts: int
    forgiven_attempts: int
    max_attempts: int | None
    timeout: int | None
    on_lost: str | None
    crash_count: int
    metadata: str
    expires_at: str | None
    expired: bool | None
    enqueued_at: str
    started_at: str
    last_attempted_at: str
    errors: str
    waited: float  # seconds from run_after to the claim


# Placeholder values for the parameters while Django compiles; each is found again in the compiled list.
_LIMIT = 987_654_321
_SENTINELS = {
    "~queue~": "range.queue_name",
    31_999: "range.priority",
    datetime(1971, 2, 3, tzinfo=UTC): "range.mark",
    -424_242: "range.mark_id",
    "pending": "'pending'",
    "retry": "'retry'",
}


@cache
def claim_sql(alias: str) -> str:
    """Return the statement; it takes ``queues, priorities, marks, mark_ids, limit, worker, lease``."""
    due = (
        LiveJob._default_manager.using(alias)
        .filter(
            TupleGreaterThan(Tuple(F("run_after"), F("id")), (datetime(1971, 2, 3, tzinfo=UTC), -424_242)),
            status__in=["pending", "retry"],
            queue_name="~queue~",
            priority=31_999,
            run_after__lte=Now(),
        )
        .order_by("run_after", "id")
        .values_list("id")
        .select_for_update(skip_locked=True, no_key=True)
    )
    # Django refuses to compile select_for_update() outside a transaction. Nothing is sent in this one. If the
    # connection was opened only for this, it is closed: the thread that claims has its own connection.
    connection = connections[alias]
    was_open = connection.connection is not None
    try:
        with transaction.atomic(using=alias):
            compiled, parameters = due[:_LIMIT].query.get_compiler(alias).as_sql()
    finally:
        if not was_open:
            connection.close()
    pick = compiled % tuple(_SENTINELS[parameter] for parameter in parameters)
    pick = pick.replace(f"LIMIT {_LIMIT}", "LIMIT %(limit)s")
    table = connections[alias].ops.quote_name(LiveJob._meta.db_table)
    returned = ", ".join(
        {
            "lease": "%(lease)s::bigint",
            "expired": "job.expires_at <= clock_timestamp()",
            # Not extract(): that calculates a numeric, which takes longer.
            "waited": "date_part('epoch', clock_timestamp() - job.run_after)",
        }.get(field, f"job.{field}")
        for field in Claimed._fields
    )
    return f"""
        WITH picked AS MATERIALIZED (
            SELECT due.id
            FROM unnest(%(queues)s::text[], %(priorities)s::smallint[], %(marks)s::timestamptz[],
                %(mark_ids)s::bigint[]) AS range (queue_name, priority, mark, mark_id)
            CROSS JOIN LATERAL ({pick}) AS due
            LIMIT %(limit)s
        )
        UPDATE {table} AS job SET
            status = 'running', attempts = job.attempts + 1, worker = %(worker)s, lease = %(lease)s,
            started_at = coalesce(job.started_at, clock_timestamp()), last_attempted_at = clock_timestamp(),
            deadline = clock_timestamp() + job.timeout * interval '1 second', waiting_reason = ''
        WHERE job.id = ANY (ARRAY(SELECT picked.id FROM picked))
        RETURNING {returned}
    """  # noqa: S608 - consists of constants and of SQL that Django compiled
