"""Jobs with limit keys, for tests of the gate."""

from __future__ import annotations

import json
from typing import Any

from django_pgqueue.jobs.limits import target_of

from .jobs import value
from .sessions import Connection

__all__ = ["add_keyed", "add_many", "line", "release", "repair", "running", "set_limit"]


def add_keyed(connection: Connection, count: int = 1, key: str = "k", **options: Any) -> list[int]:
    """Enqueue jobs with this whole limit key one by one, as Python does."""
    given = {"path": "tests.app.tasks.noop", "queue_name": "default", "priority": 0, "run_after": None}
    given |= {"expires_at": None, "max_attempts": None, **options, "key": json.dumps({"limit_key": key})}
    query = f"""
        SELECT (_pgqueue_enqueue(
            %(path)s, '[]', '{{}}', '{{}}', %(queue_name)s, %(priority)s, %(run_after)s, NULL,
            %(expires_at)s, NULL, %(max_attempts)s, NULL, NULL, NULL, %(key)s
        )).id FROM generate_series(1, {count})
    """
    return [row[0] for row in connection.execute(query, given).fetchall()]


def add_many(connection: Connection, *keys: str | None) -> list[int]:
    """Enqueue jobs with these keys in one statement."""
    count = len(keys)
    options = [None if key is None else json.dumps({"limit_key": key}) for key in keys]
    nothing = [None] * count
    ids: list[int] = value(
        connection,
        "SELECT ids FROM _pgqueue_enqueue_many(0, %s::text[], %s::jsonb[], %s::jsonb[], %s::jsonb[],"
        " %s::text[], %s::integer[], %s::timestamptz[], %s::float8[], %s::float8[], %s::integer[],"
        " %s::integer[],"
        " %s::text[], NULL, %s::jsonb[])",
        ["tests.app.tasks.noop"] * count, ["[]"] * count, ["{}"] * count, ["{}"] * count, ["default"] * count,
        [0] * count, nothing, nothing, nothing, [1] * count, nothing, ["rerun"] * count, options,
    )  # fmt: skip
    return ids


def set_limit(connection: Connection, name: str, concurrency: int | None, on_full: str | None = None) -> None:
    """Run the statement of ``set_limit()``."""
    connection.execute("SELECT pgqueue_set_limit(%s, %s, %s, %s)", (*target_of(name), concurrency, on_full))


def release(connection: Connection, *keys: str) -> int:
    """Release the lines of these keys. Return how many jobs became claimable."""
    return int(value(connection, "SELECT _pgqueue_release(%s::text[])", list(keys)))


def repair(connection: Connection) -> int:
    """Run one round of maintenance for the lines. Return how many jobs became claimable."""
    return int(value(connection, "SELECT released FROM _pgqueue_repair_lines('', 1000)"))


def running(connection: Connection, key: str = "k") -> list[int]:
    """Return the jobs that hold the slots of a key."""
    query = "SELECT id FROM pgqueue_job_live WHERE status = 'running' AND limit_key = %s ORDER BY id"
    return [row[0] for row in connection.execute(query, (key,)).fetchall()]


def line(connection: Connection, key: str = "k") -> list[int]:
    """Return the jobs in the wait queue of a key, in the order in which they start."""
    query = (
        "SELECT id FROM pgqueue_job_live WHERE limit_key = %s AND wait_position IS NOT NULL"
        " AND status <> 'running' ORDER BY queue_name, priority DESC, wait_position"
    )
    return [row[0] for row in connection.execute(query, (key,)).fetchall()]
