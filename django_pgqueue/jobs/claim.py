"""The claim: one statement (``claim.sql``) that finds due jobs, locks them and marks them as running.

A worker reads ranges. A range is one (queue, priority), bounded below by the mark that the worker holds for
it (``worker/producer/ranges.py``) and above by the clock. The statement takes rows from them, in the order in
which they are passed, until it has enough. If a (queue, priority) has jobs with a group, each range is one of
its groups, with a quota: how many jobs of it to take.

The commit of a claim is asynchronous: losing a claim in a server crash is harmless, because the lease comes
from the memory of the worker and is never reused. A finish is always durable, like a claim that has a job
which must not run twice (``on_lost = 'fail'``): without its claim, the row would not say that the job may
have started. The worker gets the answer after the commit.

Picked jobs with a limit key pass the gate (``_pgqueue_gate``), which decides which of them may start. The
jobs that a report in the same transaction has released (``_pgqueue_release``), and jobs that the gate has
let follow at the last claim, are read first in their ranges, so that they keep their place. If queues have
limits, the statement also asks how many jobs may start in them (``_pgqueue_room``), and charges their rates.

A claim stops after the job that makes it larger than ``CHARACTERS``, as if it had reached its number of
rows: a worker cannot know how large the next jobs are, and many may be as large as a job is allowed to be.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from django.template import Context, Engine

from ..postgres import sql_of

BATCH = 500  # jobs in one claim
CHARACTERS = 32_000_000  # of JSON in one claim


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
    tenant: str | None
    marks: int


class Refusals(NamedTuple):
    """What the gate did with the picked jobs that may not start."""

    moved: int = 0  # how many it moved: there may be more to claim at once
    left_behind: int = 0  # how many stay where they are, because it was unknown whether they may start
    following: tuple[int, ...] = ()  # others that may start. The next claim takes them first.
    ended: int = 0  # how many it has cancelled, or asked to stop, because their limits do not let them wait


class Answer(NamedTuple):
    """What a claim returns."""

    rows: list[Claimed]
    refusals: Refusals
    early: frozenset[int]
    """The jobs that the claim took first, whatever their time. They say nothing about the marks."""
    is_full: bool  # whether it has left out jobs because of its size


def split_answer(answer: Iterable[Any]) -> Answer:
    """Return what a claim says. A row with the id 0 is about keys; one with -1: the claim is full."""
    rows = [Claimed._make(row) for row in answer]
    more = {row.id: row for row in rows if row.id <= 0}
    if not more:
        return Answer(rows, Refusals(), frozenset(), is_full=False)
    rows = [row for row in rows if row.id > 0]
    early = frozenset(_ids(next(iter(more.values())).queue_name))
    refusals = Refusals()
    if kept := more.get(0):
        refusals = Refusals(kept.attempts, kept.forgiven_attempts, _ids(kept.task_path), kept.crash_count)
    if is_full := -1 in more:  # what it has left out of them would not be found above the marks
        left_out = early.difference(row.id for row in rows)
        refusals = refusals._replace(following=(*left_out, *refusals.following))
    return Answer(rows, refusals, early, is_full)


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(job) for job in text.split(",") if job)


# Only what is compressed is read for this. The others are a little smaller as text than they are stored.
_SIZE = " + ".join(
    f"CASE WHEN pg_column_compression({name}) IS NULL THEN pg_column_size({name})"
    f" ELSE octet_length({name}::text) END"
    for name in ("args", "kwargs", "metadata")
)
# What a report in this transaction has released, and what the last claim was given.
_FIRST = (
    "coalesce(string_to_array(nullif(current_setting('pgqueue.released', true), ''), ',')::bigint[], '{}')"
    " || %(first)s::bigint[]"
)
_RETURNED = {
    "lease": "%(lease)s::bigint AS lease",
    "expired": "job.expires_at <= clock_timestamp() AS expired",
    # Not extract(): that calculates a numeric, which takes longer.
    "waited": "date_part('epoch', clock_timestamp() - job.run_after) AS waited",
}
_REFUSED = {
    "id": "0",
    "attempts": "gate.moved",
    "forgiven_attempts": "gate.left_behind",
    "crash_count": "gate.ended",
    "task_path": "array_to_string(gate.following, ',')",
    "queue_name": f"array_to_string({_FIRST}, ',')",
}


def _columns(values: dict[str, str]) -> str:
    return ", ".join(values.get(field, "NULL") for field in Claimed._fields)


@cache
def claim_sql(*, limited: bool = False, grouped: bool = False) -> str:
    """Return the statement; it takes ``queues, priorities, marks, mark_ids, first, limit, worker, lease``. If
    queues are ``limited``, it also takes ``limited_queues, limits``; if ranges are ``grouped``, it also takes
    ``groups`` (None for the jobs without a group) and ``quotas``.
    """
    text = sql_of(__file__, "claim")
    room = "free.room" if limited else "%(limit)s"
    picked = ("id", "limit_key", "queue_name", "priority", "wait_position", *(["group_key"] * grouped))
    values = {
        "limited": limited,
        "grouped": grouped,
        "characters": str(CHARACTERS),
        "first": _FIRST,
        "columns": f"{', '.join(f'job.{name}' for name in picked)}, {_SIZE} AS size",
        "room": f"least({room}, range.quota)" if grouped else room,
        "returned": ", ".join(_RETURNED.get(field, f"job.{field}") for field in Claimed._fields),
        "refused": _columns(_REFUSED),
        "full": _columns({"id": "-1", "queue_name": _REFUSED["queue_name"]}),
        "nothing": _columns({}),
    }
    return Engine(autoescape=False).from_string(text).render(Context(values, autoescape=False)).strip()
