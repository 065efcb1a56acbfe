"""Rebuild indexes that are mostly empty, one at a time, beside the work (``REINDEX INDEX CONCURRENTLY``).

The index of a table that once had a million rows stays as large as it was then. Vacuum lets later entries use
its empty pages, so an ordinary index needs nothing; a rebuild pays if most of it will not be used again. The
doctor names such indexes, and with PGQUEUE["REINDEX"] supervisors rebuild them.

A rebuild takes minutes, waits for all older transactions of the database, and cannot run in a transaction.
Therefore it has a thread and a session of its own, with an advisory lock in place of the row of a duty: a
transaction that held the row would keep dead rows meanwhile. Behind a transaction pooler there are no session
locks, and nothing is rebuilt.
"""

from __future__ import annotations

import random
from contextlib import closing
from threading import Thread
from time import monotonic
from typing import Any, NamedTuple

import psycopg
from django.template.defaultfilters import filesizeformat
from psycopg import sql

from .. import conf
from ..formatting import get_logger
from ..postgres import fetch_rows, sql_of
from ..postgres.session import Session, connect

logger = get_logger(__name__)

EVERY = 3600.0  # seconds between two searches of a supervisor
AGAIN = 86400.0  # seconds until the next rebuild: an index that did not shrink is as large as it must be
#: Smaller indexes are not worth the work. A row of an index that is not bloated takes about a tenth of this.
INDEX_BYTES = 64 * 2**20
INDEX_BYTES_OF_ROW = 500
#: Milliseconds. Other sessions do not wait for the lock with which it waits for older transactions.
_BOUNDS = {"lock_timeout": "60000", "statement_timeout": "1800000", "transaction_timeout": "0"}
_BOUNDS_SQL = sql_of(__file__, "bounds")
_BLOATED_SQL = sql_of(__file__, "bloated")
_LOCK_SQL = "SELECT pg_try_advisory_lock(_pgqueue_lock_key('reindex', ''))"


class BloatedIndex(NamedTuple):
    """An index that is mostly empty, or what an interrupted rebuild has left (``is_leftover``)."""

    schema: str
    name: str
    bytes: int
    live_rows: int
    is_leftover: bool
    may_rebuild: bool
    """Whether this role may rebuild it: it owns the table, or, from PostgreSQL 17 on, may MAINTAIN it."""

    @property
    def identifier(self) -> sql.Identifier:
        """Its name in a statement."""
        return sql.Identifier(self.schema, self.name)


def bloated_indexes(source: str | Session) -> list[BloatedIndex]:
    """Return rebuilds' leftovers, then mostly empty indexes, largest first. ``source``: alias or session."""
    limits = {"index_bytes": INDEX_BYTES, "index_bytes_of_row": INDEX_BYTES_OF_ROW}
    if isinstance(source, Session):
        return [BloatedIndex(*row) for row in source.rows(_BLOATED_SQL, limits)]
    return [BloatedIndex(*row) for row in fetch_rows(source, _BLOATED_SQL, limits)]


class ReindexRounds:
    """When a supervisor searches next. It does nothing unless PGQUEUE["REINDEX"] is on."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._thread: Thread | None = None
        self._rebuilt: dict[str, float] = {}  # the indexes, and when
        self.next_round = 0.0

    def run(self, now: float) -> None:
        """Search in a thread, if it is due; not at the start, when all supervisors of a deploy would."""
        if now < self.next_round:
            return
        is_first = not self.next_round
        self.next_round = now + EVERY * random.uniform(0.5, 1.0)
        if is_first or not conf.current().reindex or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = Thread(target=self._in_thread, name="pgqueue reindex", daemon=True)
        self._thread.start()

    def _in_thread(self) -> None:
        try:
            with closing(connect(self._alias, name="pgqueue reindex")) as session:
                rebuild(session, self._rebuilt)
        except psycopg.Error as error:
            logger.warning("an index could not be rebuilt; the next search tries again: %s", error)


def rebuild(session: Session, rebuilt: dict[str, float]) -> list[str]:
    """Drop what interrupted rebuilds have left, and rebuild the bloated indexes that are not in ``rebuilt``,
    which is updated. Return the names of the indexes that were rebuilt now.

    Race: two supervisors search at the same time. Each index is searched after the lock was taken.
    """
    if session.pooled:
        logger.warning("no indexes are rebuilt behind a transaction pooler, which has no session locks")
        return []
    session.rows(_BOUNDS_SQL, ([*_BOUNDS], [*_BOUNDS.values()]))
    done: list[str] = []
    if session.value(_LOCK_SQL):
        while index := _next(session, rebuilt):
            if index.is_leftover:
                # Race: a user rebuilds the same index, whose copy looks like a leftover. That session has
                # locked the table, so this waits, and either gives up or finds no index of this name.
                _execute(session, "DROP INDEX CONCURRENTLY IF EXISTS {}", index)
                logger.info("dropped %s, which an interrupted rebuild had left", index.name)
            elif _rebuild(session, index, rebuilt):
                done.append(index.name)
    return done


def _next(session: Session, rebuilt: dict[str, float]) -> BloatedIndex | None:
    since = monotonic() - AGAIN
    for index in bloated_indexes(session):
        if index.may_rebuild and (index.is_leftover or rebuilt.get(index.name, since) <= since):
            return index
    return None


def _rebuild(session: Session, index: BloatedIndex, rebuilt: dict[str, float]) -> bool:
    """Rebuild an index. Return False if it took too long; what that has left is found next."""
    began = rebuilt[index.name] = monotonic()
    try:
        _execute(session, "REINDEX INDEX CONCURRENTLY {}", index)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled) as error:
        logger.warning("%s was not rebuilt, which is tried again in a day: %s", index.name, error)
        return False
    left = session.value("SELECT pg_relation_size(%s::regclass)", (index.identifier.as_string(),))
    logger.info(
        "rebuilt %s in %.1f s: %s instead of %s",
        index.name, monotonic() - began, filesizeformat(left), filesizeformat(index.bytes),
    )  # fmt: skip
    return True


def _execute(session: Session, statement: Any, index: BloatedIndex) -> None:
    session.connection.execute(sql.SQL(statement).format(index.identifier))
