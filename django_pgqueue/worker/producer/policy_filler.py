"""Fill in the policy of jobs that were enqueued with plain SQL, from their task, when they are claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from ... import conf
from ...definition import find_task
from ...exceptions import UnknownTask

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...lifecycle.claimed import Claimed
    from ...session import Session

__all__ = ["PolicyFiller"]

_FILL_SQL = (
    "SELECT pgqueue_fill_policy_v1(%s::bigint[], %s::bigint[], %s::integer[], %s::integer[], %s::text[],"
    " %s::double precision[])"
)


class PolicyFiller:
    """Holds the rows without a policy until the session can be used. ``release`` requeues rows."""

    def __init__(self, release: Callable[[list[Claimed]], None]) -> None:
        self._release = release
        self._rows: list[Claimed] = []

    def sort_out(self, rows: list[Claimed]) -> list[Claimed]:
        """Return the rows that have a policy, and keep the others."""
        without = [row for row in rows if row.on_lost is None]
        if not without:
            return rows
        self._rows += without
        return [row for row in rows if row.on_lost is not None]

    def fill(self, session: Session) -> list[Claimed]:
        """Return the rows that were kept, with their policies."""
        rows, self._rows = self._rows, []
        try:
            return _fill(session, rows) if rows else rows
        except psycopg.Error:
            self._release(rows)  # the worker holds them, but nobody will run them
            raise


def _fill(session: Session, rows: list[Claimed]) -> list[Claimed]:
    """Return the rows with the policy of their tasks, which is also written to the table before they run.

    A row whose task is unknown here does not change: it will be requeued. If a job must not run twice, this
    waits for the disk, also for its claim, which did not know that.
    """
    settings = conf.current()
    filled: dict[int, Claimed] = {}
    expiries: dict[int, float | None] = {}
    for row in rows:
        try:
            task = find_task(row.task_path)
        except UnknownTask:
            continue
        expiries[row.id] = task.expires_after.total_seconds() if task.expires_after is not None else None
        filled[row.id] = row._replace(
            max_attempts=row.max_attempts or task.max_attempts or settings.max_attempts,
            timeout=row.timeout or task.timeout or settings.timeout,
            on_lost=task.on_lost,
        )
    if not filled:
        return rows
    news = list(filled.values())
    parameters = (
        [row.id for row in news],
        [row.lease for row in news],
        [row.max_attempts for row in news],
        [row.timeout for row in news],
        [row.on_lost for row in news],
        [expiries[row.id] for row in news],
    )
    durable = any(row.on_lost == "fail" for row in news)
    (answer,) = session.run((_FILL_SQL, parameters), durable=durable)
    expired = {job_id for (job_id,) in answer}
    return [
        filled[row.id]._replace(expired=row.id in expired or row.expired) if row.id in filled else row
        for row in rows
    ]
