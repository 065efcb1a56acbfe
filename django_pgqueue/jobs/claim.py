"""The claim: a Django queryset with ``select_for_update(skip_locked=True)``, wrapped in one UPDATE.

A worker reads ranges. A range is one (queue, priority), bounded below by the mark that the worker holds for
it (``worker/producer/ranges.py``) and above by the clock. The ranges are passed as arrays in the order in
which they are to be drained, and one statement takes rows from them until it has enough. The nested loop
returns and locks one row at a time, so the outer LIMIT does not lock more rows than it returns.

Three things look odd but are on purpose. The statuses are literals, because a generic plan cannot match a
parameter with the predicate of the partial index. The rows are selected by ``= ANY (ARRAY(..))``: a join with
``fitting``, whose size a generic plan overestimates, becomes a hash join over the table. The commit of a
claim is asynchronous: losing a claim in a server crash is harmless, because the lease comes from the memory
of the worker and is never reused. A finish is always durable. So is a claim that has a job which must not
run twice (``on_lost = 'fail'``): without its claim, the row would not say that the job may have started. The
worker gets the answer after the commit.

Picked jobs with a limit key pass the gate (``sql/gate_v1.sql``), which decides which of them may start.
Others never reach it. The jobs that a report in the same transaction has released (``sql/release_v1.sql``),
and those that the gate has let follow at the last claim, are read first in their ranges, so that they keep
their place. Race: another worker may be claiming one of them, so they are locked as well. If queues have
limits, the statement also asks how many jobs may start in them (``sql/room_v1.sql``), and charges their
rates.

If a (queue, priority) has jobs with a group, each range is one of its groups, with a quota: how many jobs of
it to take. The worker names them in turn (``worker/producer/ranges.py``).

A claim stops after the job that makes it larger than ``CHARACTERS``, as if it had reached its number of
rows: a worker cannot know how large the next jobs are, and many may be as large as a job is allowed to be.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import connections, transaction
from django.db.models import BooleanField, F, IntegerField, Q
from django.db.models.expressions import RawSQL
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan
from django.db.models.functions import Now

from ..models import LiveJob

if TYPE_CHECKING:
    from collections.abc import Iterable

BATCH = 500  # jobs in one claim
CHARACTERS = 32_000_000  # of JSON in one claim


# ----------------------------------------------------------------------------
# What a claim returns: the rows of the claimed jobs, and what the gate did with others.


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
    group_key: str | None
    context: str | None
    marks: int


class Refusals(NamedTuple):
    """What the gate did with the picked jobs that may not start."""

    moved: int = 0
    """How many it moved: there may be more to claim at once."""
    left_behind: int = 0
    """How many stay where they are, because nobody could tell whether they may start."""
    following: tuple[int, ...] = ()
    """Others that may start. The next claim takes them first."""
    ended: int = 0
    """How many it has cancelled, or asked to stop, because their limits do not let them wait."""


class Answer(NamedTuple):
    """What a claim returns."""

    rows: list[Claimed]
    refusals: Refusals
    early: frozenset[int]
    """The jobs that the claim took first, whatever their time. They say nothing about the marks."""
    is_full: bool
    """Whether it has left out jobs because of its size."""


def split_answer(answer: Iterable[Any]) -> Answer:
    """Return the claimed rows, and what two more rows tell: the one whose id is 0 about keys, and the one
    whose id is -1 that the claim is full.
    """
    rows = [Claimed._make(row) for row in answer]
    more = {row.id: row for row in rows if row.id <= 0}
    if not more:
        return Answer(rows, Refusals(), frozenset(), is_full=False)
    rows = [row for row in rows if row.id > 0]
    early = frozenset(_ids(next(iter(more.values())).queue_name))
    refusals = Refusals()
    if told := more.get(0):
        refusals = Refusals(told.attempts, told.forgiven_attempts, _ids(told.task_path), told.crash_count)
    if is_full := -1 in more:  # what it has left out of them would not be found above the marks
        left_out = early.difference(row.id for row in rows)
        refusals = refusals._replace(following=(*left_out, *refusals.following))
    return Answer(rows, refusals, early, is_full)


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(job) for job in text.split(",") if job)


# Placeholder values for the parameters while Django compiles; each is found again in the compiled list.
_LIMIT = 987_654_321
_SENTINELS = {
    "~queue~": "range.queue_name",
    "~group~": "range.group_key",
    31_999: "range.priority",
    datetime(1971, 2, 3, tzinfo=UTC): "range.mark",
    -424_242: "range.mark_id",
    "pending": "'pending'",
    "retry": "'retry'",
}
# The database computes this column. The model does not have it: `check` of a GeneratedField needs a server.
_IS_PLAIN = RawSQL("NOT is_grouped", (), BooleanField())
_PICKED = ("id", "limit_key", "queue_name", "priority", "wait_position")
# Only what is compressed is read for this. The others are a little smaller as text than they are stored.
_SIZE = " + ".join(
    f"CASE WHEN pg_column_compression({name}) IS NULL THEN pg_column_size({name})"
    f" ELSE octet_length({name}::text) END"
    for name in ("args", "kwargs", "metadata")
)
_SIZE_OF = RawSQL(_SIZE, (), IntegerField())  # noqa: S611 - a constant

# What a report in this transaction has released, and what the last claim was told.
_FIRST = (
    "coalesce(string_to_array(nullif(current_setting('pgqueue.released', true), ''), ',')::bigint[], '{}')"
    " || %(first)s::bigint[]"
)
_PICK = """picked AS MATERIALIZED (
            WITH released AS MATERIALIZED (
                SELECT {released} FROM {table} AS job
                WHERE job.status IN ('pending', 'retry') AND job.id = ANY ({first})
                FOR NO KEY UPDATE SKIP LOCKED
            )
            SELECT due.*
            FROM unnest(%(queues)s::text[], %(priorities)s::smallint[], %(marks)s::timestamptz[],
                %(mark_ids)s::bigint[]{groups}) AS range (queue_name, priority, mark, mark_id{group_names})
            {rooms}
            CROSS JOIN LATERAL (
                SELECT * FROM released
                WHERE released.queue_name = range.queue_name
                    AND released.priority = range.priority{same_group}
                UNION ALL
                SELECT * FROM ({pick}) AS pick
                WHERE pick.limit_key IS NULL OR pick.id NOT IN (SELECT released.id FROM released){more}
            ) AS due
            LIMIT {limit}
        )"""

# If there are groups, a range may be one group of a (queue, priority), read by the index of the groups.
_GROUPS = {
    "groups": ",\n                %(groups)s::text[], %(quotas)s::integer[]",
    "group_names": ", group_key, quota",
    "same_group": "\n                    AND released.group_key IS NOT DISTINCT FROM range.group_key",
    "more": """
                UNION ALL
                SELECT * FROM ({pick}) AS pick
                WHERE pick.limit_key IS NULL OR pick.id NOT IN (SELECT released.id FROM released)""",
}
_NO_GROUPS = dict.fromkeys(_GROUPS, "")

# A queue without room is not read, and several ranges of a queue share its room.
_LIMITED = """room AS MATERIALIZED (
            SELECT * FROM pgqueue_room_v1(%(limited_queues)s::text[], %(limits)s::integer[])
        ), {pick}, allowed AS MATERIALIZED (
            SELECT * FROM (
                SELECT picked.*, row_number() OVER (PARTITION BY picked.queue_name) AS nth FROM picked
            ) AS picked
            WHERE picked.nth <= coalesce(
                (SELECT room.room FROM room WHERE room.queue_name = picked.queue_name), %(limit)s)
        )"""
_FITTING = """, sized AS MATERIALIZED (
            SELECT one.*, sum(one.size) OVER (ROWS UNBOUNDED PRECEDING) - one.size AS before
            FROM {allowed} AS one
        ), fitting AS (
            SELECT * FROM sized WHERE sized.before < {characters}
        )"""
_ROOM = """CROSS JOIN LATERAL (
                SELECT least(
                    %(limit)s, (SELECT room.room FROM room WHERE room.queue_name = range.queue_name)) AS room
            ) AS free"""
_ROOM_FOR_ALL = "least(%(limit)s, (SELECT room.room FROM room WHERE room.queue_name = '*'))"

_CLAIM = """WITH {pick}, gate AS MATERIALIZED (
            SELECT verdict.*
            FROM (
                SELECT array_agg(fitting.id) AS ids, array_agg(fitting.limit_key::text) AS keys,
                    array_agg(fitting.queue_name::text) AS queues, array_agg(fitting.priority) AS priorities,
                    array_agg(fitting.wait_position) AS lines
                FROM fitting WHERE fitting.limit_key IS NOT NULL
            ) AS asked
            CROSS JOIN LATERAL pgqueue_gate_v1(
                asked.ids, asked.keys, asked.queues, asked.priorities, asked.lines) AS verdict
            WHERE asked.ids IS NOT NULL
        ), claimed AS (
            UPDATE {table} AS job SET
                status = 'running', attempts = job.attempts + 1, worker = %(worker)s, lease = %(lease)s,
                started_at = coalesce(job.started_at, clock_timestamp()),
                last_attempted_at = clock_timestamp(),
                deadline = clock_timestamp() + job.timeout * interval '1 second', waiting_reason = ''
            WHERE job.id = ANY (ARRAY(
                SELECT fitting.id FROM fitting WHERE fitting.limit_key IS NULL
                UNION ALL
                SELECT unnest(gate.granted) FROM gate
            ))
            RETURNING {returned}
        )
        SELECT * FROM claimed
        UNION ALL
        SELECT {told} FROM gate
        WHERE gate.moved > 0 OR gate.left_behind > 0 OR {first} <> '{{}}'
        UNION ALL
        SELECT {full} FROM (SELECT FROM sized WHERE sized.before >= {characters} LIMIT 1) AS too_large
"""
# What starts in a limited queue is charged to its rate. This gives no row.
_CHARGE = """        UNION ALL
        SELECT {nothing} FROM (
            SELECT pgqueue_charge_queues_v1(
                %(limited_queues)s::text[],
                (SELECT array_agg(claimed.queue_name::text) FROM claimed)) AS rates
            OFFSET 0
        ) AS charged WHERE charged.rates < 0
"""
# A claim that must not be lost waits for the disk, as far as the server is configured for that. reset_val is
# what is configured, whatever the session has set. It is not read for other claims: a join may read all
# settings first. This gives no row.
_MUST_LAST = """        UNION ALL
        SELECT {nothing} FROM (
            SELECT set_config(
                'synchronous_commit',
                (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'), true) AS level
            FROM claimed WHERE claimed.on_lost = 'fail' LIMIT 1
        ) AS durable WHERE durable.level IS NULL
"""


@cache
def claim_sql(alias: str, *, limited: bool = False, grouped: bool = False) -> str:
    """Return the statement; it takes ``queues, priorities, marks, mark_ids, first, limit, worker, lease``. If
    queues are ``limited``, it also takes ``limited_queues, limits``; if ranges are ``grouped``, it also takes
    ``groups`` (None for the jobs without a group) and ``quotas``.
    """
    table = connections[alias].ops.quote_name(LiveJob._meta.db_table)
    pick = _pick_sql(alias, table, limited=limited, grouped=grouped)
    returned = {
        "lease": "%(lease)s::bigint AS lease",
        "expired": "job.expires_at <= clock_timestamp() AS expired",
        # Not extract(): that calculates a numeric, which takes longer.
        "waited": "date_part('epoch', clock_timestamp() - job.run_after) AS waited",
    }
    told = {
        "id": "0",
        "attempts": "gate.moved",
        "forgiven_attempts": "gate.left_behind",
        "crash_count": "gate.ended",
        "task_path": "array_to_string(gate.following, ',')",
        "queue_name": f"array_to_string({_FIRST}, ',')",
    }
    full = {"id": "-1", "queue_name": told["queue_name"]}
    fields, statement = Claimed._fields, _CLAIM + _MUST_LAST
    if limited:
        statement += _CHARGE
    return statement.format(
        nothing=", ".join(["NULL"] * len(fields)),
        table=table,
        pick=pick,
        returned=", ".join(returned.get(field, f"job.{field}") for field in fields),
        first=_FIRST,
        told=", ".join(told.get(field, "NULL") for field in fields),
        full=", ".join(full.get(field, "NULL") for field in fields),
        characters=CHARACTERS,
    )


def _pick_sql(alias: str, table: str, *, limited: bool, grouped: bool) -> str:
    """Return the part of the statement that reads the ranges."""
    columns = (*_PICKED, "group_key") if grouped else _PICKED
    parts = {
        "table": table,
        "released": ", ".join([*columns, f"{_SIZE} AS size"]),
        "first": _FIRST,
        "rooms": _ROOM if limited else "",
        "limit": _ROOM_FOR_ALL if limited else "%(limit)s",
    }
    room = "free.room" if limited else "%(limit)s"
    plain = _compiled(alias, columns, grouped=False).replace(f"LIMIT {_LIMIT}", f"LIMIT {room}")
    if grouped:
        plain = plain.replace(f"LIMIT {room}", f"LIMIT least({room}, range.quota)")
        plain = plain.replace(" WHERE ", " WHERE range.group_key IS NULL AND ", 1)
        group = _compiled(alias, columns, grouped=True)
        group = group.replace(f"LIMIT {_LIMIT}", f"LIMIT least({room}, range.quota)")
        parts |= {**_GROUPS, "pick": plain, "more": _GROUPS["more"].format(pick=group)}
    else:
        parts |= {**_NO_GROUPS, "pick": plain}
    pick = _PICK.format(**parts)
    if limited:
        pick = _LIMITED.format(pick=pick)
    return pick + _FITTING.format(allowed="allowed" if limited else "picked", characters=CHARACTERS)


def _compiled(alias: str, columns: tuple[str, ...], *, grouped: bool) -> str:
    """Return the query of one range as Django compiles it, in which the columns of ``range`` are named."""
    due = (
        LiveJob._default_manager.using(alias)
        .filter(
            TupleGreaterThan(Tuple(F("run_after"), F("id")), (datetime(1971, 2, 3, tzinfo=UTC), -424_242)),
            Q(group_key="~group~") if grouped else _IS_PLAIN,
            status__in=["pending", "retry"],
            queue_name="~queue~",
            priority=31_999,
            run_after__lte=Now(),
        )
        .order_by("run_after", "id")
        .annotate(size=_SIZE_OF)
        .values_list(*columns, "size")
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
    return str(compiled % tuple(_SENTINELS[parameter] for parameter in parameters))
