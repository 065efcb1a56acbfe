"""Run a task inside a transaction that belongs to somebody else, such as that of Django's ``TestCase``.

A worker runs a task outside of transactions: each statement is committed at once, and so is each ``atomic``
block, which then runs its ``on_commit`` callbacks. In an open transaction, this comes as close as it can:

    callbacks: those that the task has registered run at the end of the task. They are not left to the owner
    of the transaction, which may never commit.

    a statement that fails outside of an ``atomic`` block: it breaks the whole transaction. So there is a
    savepoint before the task. If the task leaves the transaction broken, all that it wrote is undone.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.db import connections
from psycopg.pq import TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["BrokenTransaction", "is_open", "run_callbacks", "savepoints"]


class BrokenTransaction(Exception):
    """A task has handled an error of the database, but left the transaction broken."""

    def __init__(self) -> None:
        super().__init__(
            "The task has handled an error of the database outside of transaction.atomic(). A worker would "
            "go on, but here the task runs in an open transaction, such as that of a TestCase, which the "
            "error breaks. So all that the task has written was undone. Put the statement that may fail in "
            "transaction.atomic(), or use a TransactionTestCase."
        )


def is_open(alias: str) -> bool:
    """Return whether this thread is in a transaction of the database."""
    return connections[alias].in_atomic_block


@contextmanager
def savepoints() -> Iterator[None]:
    """Make a savepoint in each open transaction of this thread. Undo the block if it breaks one.

    If it does without raising, raise ``BrokenTransaction``.
    """
    made = [(connection, str(connection.savepoint())) for connection in _in_transactions()]
    places = {connection.alias: len(connection.run_on_commit) for connection, _ in made}
    was_broken = False
    try:
        yield
    finally:
        for connection, name in made:
            if _is_broken(connection):
                was_broken = True
                connection.needs_rollback = False
                connection.savepoint_rollback(name)
                del connection.run_on_commit[places[connection.alias] :]
            else:
                connection.savepoint_commit(name)
    if was_broken:
        raise BrokenTransaction


@contextmanager
def run_callbacks() -> Iterator[None]:
    """Run the ``on_commit`` callbacks that the block has registered, at its end, in their order."""
    places = {connection.alias: len(connection.run_on_commit) for connection in _in_transactions()}
    yield
    for alias, place in places.items():
        while registered := _callbacks(alias)[place:]:
            del _callbacks(alias)[place]
            registered[0][1]()


def _callbacks(alias: str) -> list[Any]:
    """Return the callbacks. Django makes a new list when a savepoint is rolled back."""
    found: list[Any] = connections[alias].run_on_commit
    return found


def _in_transactions() -> list[BaseDatabaseWrapper]:
    return [each for each in connections.all(initialized_only=True) if each.in_atomic_block]


def _is_broken(connection: BaseDatabaseWrapper) -> bool:
    pgconn = getattr(connection.connection, "pgconn", None)
    is_in_error = pgconn is not None and pgconn.transaction_status == TransactionStatus.INERROR
    return connection.needs_rollback or is_in_error
