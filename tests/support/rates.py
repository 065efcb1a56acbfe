"""Rates, for tests of the gate: setting one, moving its state, and counting starts in windows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django_pgqueue.jobs.limits import target_of

from .jobs import value
from .sessions import Connection

__all__ = ["most_in_window", "move_state", "set_rate", "starts_of", "state_ahead", "wait_of"]


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


def starts_of(connection: Connection, key: str) -> list[datetime]:
    """Return when the jobs of a key have started, by the stamps in their rows."""
    query = (
        "SELECT last_attempted_at FROM pgqueue_job"
        " WHERE limit_key = %s AND last_attempted_at IS NOT NULL ORDER BY 1"
    )
    return [row[0] for row in connection.execute(query, (key,)).fetchall()]


def most_in_window(starts: list[datetime], window: timedelta) -> int:
    """Return the largest number of starts in any window of this length."""
    most = first = 0
    for last, start in enumerate(starts):
        while starts[first] < start - window:
            first += 1
        most = max(most, last - first + 1)
    return most
