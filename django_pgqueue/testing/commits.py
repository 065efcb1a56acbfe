"""What is the commit of the code under test: in a ``TestCase``, the end of its outermost block.

Django has no hook for that end. But it releases the savepoint of a block that ends well, with a method of
the connection, so that method is replaced while calls wait for it.

- A block of ``atomic(savepoint=False)`` has no savepoint. Django itself enters such blocks, for example when
  it deletes rows or changes a many-to-many relation, and receivers of its signals enqueue jobs in them. So
  the outermost block gets a name in place of a savepoint, which the database does not know.
- If the release raises a ``DatabaseError``, Django rolls back to the savepoint. But an error of a call comes
  after the release, and a rollback to a savepoint that is gone would break the transaction of the test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, Error, connections, transaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["at_commit"]

_NO_SAVEPOINT = "pgqueue_no_savepoint"
_METHODS = ("savepoint_commit", "savepoint_rollback")


def at_commit(alias: str, call: Callable[[], None]) -> None:
    """Make a call at the commit of the code under test; at once if it is in no transaction of its own."""
    connection = connections[alias]
    blocks = connection.atomic_blocks
    if blocks and not blocks[0]._from_testcase:  # type: ignore[attr-defined]
        transaction.on_commit(call, using=alias)
    elif depth := _depth(connection):
        _watch(connection, depth)
        # Django drops the call if a block around it is rolled back.
        transaction.on_commit(_Call(call), using=alias)
    else:
        call()


def _depth(connection: BaseDatabaseWrapper) -> int:
    """Return how many ``atomic`` blocks there are within those of the test."""
    blocks: list[Any] = connection.atomic_blocks
    return sum(not block._from_testcase for block in blocks)


def _watch(connection: BaseDatabaseWrapper, depth: int) -> None:
    """Wait for the release after which only the blocks of the test are left."""
    savepoints: list[Any] = connection.savepoint_ids
    if savepoints[-depth] is None:
        savepoints[-depth] = _NO_SAVEPOINT
    if _METHODS[0] in connection.__dict__:
        return
    release, roll_back = connection.savepoint_commit, connection.savepoint_rollback

    def release_and_call(sid: str) -> None:
        if sid != _NO_SAVEPOINT:
            release(sid)
        if not _depth(connection):
            _replace(connection)
            _call_all(connection)

    def roll_back_if_there(sid: str) -> None:
        if sid == _NO_SAVEPOINT:  # Django then marks the transaction, as it does for a block without one
            raise Error("This block has no savepoint.")
        roll_back(sid)

    _replace(connection, release_and_call, roll_back_if_there)


def _replace(connection: BaseDatabaseWrapper, *methods: Callable[[str], None]) -> None:
    """Replace both methods of the connection, or restore them."""
    for name in _METHODS:
        connection.__dict__.pop(name, None)
    connection.__dict__.update(zip(_METHODS, methods, strict=False))


class _Call:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call

    def __call__(self) -> None:
        self.call()


def _call_all(connection: BaseDatabaseWrapper) -> None:
    registered: list[Any] = connection.run_on_commit
    ours = [each for each in registered if isinstance(each[1], _Call)]
    connection.run_on_commit = [each for each in registered if each not in ours]
    try:
        for _, call, _ in ours:
            call()
    except DatabaseError:
        # Django now calls both methods once: it rolls back, and releases the savepoint.
        _replace(connection, lambda _: _replace(connection), lambda _: None)
        raise
