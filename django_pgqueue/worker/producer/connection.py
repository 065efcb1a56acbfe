"""How a worker enters its database, at its start and whenever it has lost its connection."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING

import psycopg

from ... import conf
from ...lifecycle.finish import FINISH_SQL, Outcome, finish_parameters
from ...session import connect
from .. import registry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...session import Session
    from ..options import WorkerOptions

__all__ = ["enter"]

logger = logging.getLogger(__name__)

_STRANGERS_SQL = """
    SELECT id, lease FROM pgqueue_job_live
    WHERE worker = %s AND status = 'running' AND NOT id = ANY (%s::bigint[])
"""


def enter(options: WorkerOptions, worker: int, supervisor: int, held: Iterable[int]) -> Session:
    """A session in which the worker is registered and holds its lock.

    ``held``: the jobs that it knows of. Raises ``psycopg.Error`` where the server cannot be had.
    """
    session = connect(options.alias)
    try:
        registry.register(session, worker, supervisor, options)
        _give_back_strangers(session, worker, held)
    except psycopg.Error:
        session.close()
        raise
    if session.pooled:
        _say_that_it_polls(options.alias)
    return session


@cache
def _say_that_it_polls(alias: str) -> None:
    """Once in the life of the process, however often it connects."""
    logger.warning(
        "the database %r is behind a transaction pooler: the worker polls every %g s, without "
        "notifications; a direct connection starts jobs sooner",
        alias,
        conf.current().poll_interval,
    )


def _give_back_strangers(session: Session, worker: int, held: Iterable[int]) -> None:
    """Claims that were committed but whose answer was lost with the connection: nobody runs them."""
    rows = session.rows(_STRANGERS_SQL, (worker, list(held)))
    if rows:
        outcomes = [Outcome(job_id, lease, "release") for job_id, lease in rows]
        session.run((FINISH_SQL, finish_parameters(outcomes, keep_errors=1)))
