"""How a worker enters its database, at its start and whenever it has lost its connection."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING

import psycopg

from ... import conf
from ...lifecycle.finish import FINISH_SQL, Outcome, finish_parameters
from ...session import StandbyError, connect, is_standby
from .. import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...session import Session
    from ..options import WorkerOptions
    from ..reconnect import Outage

__all__ = ["enter", "wait_for_primary"]

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


def wait_for_primary(
    alias: str, outage: Outage, sleep: Callable[[float], None], stopped: Callable[[], bool]
) -> Session | None:
    """The first session of a supervisor. A standby is waited out, and None returned if it is told to stop.

    Raises ``psycopg.OperationalError`` if there is no server at all at the start. One that goes away later
    may be a standby that restarts in order to become the primary.
    """
    waits = False
    while not stopped():
        try:
            return connect(alias)
        except psycopg.OperationalError as error:
            standby = isinstance(error, StandbyError) or is_standby(alias)
            waits = waits or standby
            if not waits:
                raise
            outage.tell("no connection yet", StandbyError() if standby else error)
            sleep(outage.pause())
    return None


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
    (rows,) = session.run((_STRANGERS_SQL, (worker, list(held))))
    if rows:
        outcomes = [Outcome(job_id, lease, "release") for job_id, lease in rows]
        session.run((FINISH_SQL, finish_parameters(outcomes, keep_errors=1)))
