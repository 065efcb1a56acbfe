"""Limits and rates, for tests of the gate: jobs with keys, and the state of a rate."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from django_pgqueue.jobs.limits import target_of

from .jobs import add_in_one, value
from .sessions import Connection


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
    options = [{} if key is None else {"limit_key": key} for key in keys]
    return add_in_one(connection, options, path="tests.app.tasks.noop")


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


def set_rate(
    connection: Connection, name: str, starts: int, per: timedelta, burst: int = 1, **more: Any
) -> None:
    """Run the statement of ``set_limit(name=.., rate_limit=..)``."""
    connection.execute(
        "SELECT pgqueue_set_limit(%s, %s, %s::integer, NULL, %s, %s, %s)",
        (*target_of(name), more.get("running"), starts, per, burst),
    )


def move_state(connection: Connection, key: str, seconds: float) -> None:
    """Let the clock run for so many seconds, as far as a rate and its alarm clocks know."""
    connection.execute(
        "UPDATE pgqueue_rate SET tat = tat - %s * interval '1 second' WHERE key = %s", (seconds, key)
    )
    connection.execute(
        "UPDATE pgqueue_job_live SET run_after = run_after - %s * interval '1 second'"
        " WHERE limit_key = %s AND waiting_reason = 'waits for its rate limit' AND status <> 'blocked'",
        (seconds, key),
    )


def state_ahead(connection: Connection, key: str) -> float:
    """Return by how many seconds the state of a rate is ahead of the clock."""
    query = "SELECT extract(epoch FROM tat - clock_timestamp())::float8 FROM pgqueue_rate WHERE key = %s"
    return float(value(connection, query, key))


def wait_of(connection: Connection, job: int) -> float:
    """Return in how many seconds a job is due."""
    query = "SELECT extract(epoch FROM run_after - clock_timestamp())::float8 FROM pgqueue_job WHERE id = %s"
    return float(value(connection, query, job))


def most_in_window(starts: list[datetime], window: timedelta) -> int:
    """Return the largest number of starts in any window of this length."""
    most = first = 0
    for last, start in enumerate(starts):
        while starts[first] < start - window:
            first += 1
        most = max(most, last - first + 1)
    return most
