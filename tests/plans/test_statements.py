"""Each statement of the tables reads no more than its entry says, with a custom and with a generic plan."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from tests.support.foreign import register, sql_claim
from tests.support.plans import CLAIM_INDEX, LIVE, MODES, fill, reads
from tests.support.sessions import Connection, open_raw
from tests.support.waiting import until

from . import backlogs, counts, lists, parts
from .table import Plan, Room, Statement

pytestmark = pytest.mark.django_db

ROOMS = [*backlogs.ROOMS, *counts.ROOMS, *parts.ROOMS, *lists.ROOMS]

_HELD = """
    SELECT pid, backend_type, state, query FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
"""


class Rooms:
    """The rows of one room at a time. They are made once for all statements in a row."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._room: Room | None = None

    def enter(self, room: Room | None) -> None:
        """Make the rows of a room, unless they are there, after those of another one are removed."""
        if room is self._room:
            return
        for left in (self._room, room):  # other tests may have left dead rows
            if left is not None:
                self.connection.execute(f"TRUNCATE {left.tables} CASCADE")
        self._room = room
        if room is not None:
            room.make(self.connection)


@pytest.fixture(scope="module")
def rooms(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Rooms]:
    with django_db_blocker.unblock():
        connection = open_raw()
    with connection:
        rooms = Rooms(connection)
        yield rooms
        rooms.enter(None)


@pytest.fixture
def one(rooms: Rooms, room: Room) -> Connection:
    """Remove the dead rows that other statements have left. A snapshot, such as that of autovacuum, keeps
    them.
    """
    rooms.enter(room)
    if room.vacuum:
        until(lambda: not rooms.connection.execute(_HELD).fetchall(), what="no held snapshot")
        rooms.connection.execute(f"VACUUM (INDEX_CLEANUP on) {room.vacuum}")
    return rooms.connection


@pytest.mark.promise("why-cost")
@pytest.mark.parametrize(("room", "statement", "mode"), [case for room in ROOMS for case in room.cases()])
def test_a_statement_reads_no_more_than_it_may(
    one: Connection, statement: Statement | Plan, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for target, value in statement.patched.items():
        monkeypatch.setattr(target, value)
    one.execute(f"SET plan_cache_mode = {mode}")
    statement.check(one)


@pytest.mark.parametrize("room", [backlogs.DUE], ids=["due jobs"])
@pytest.mark.parametrize("mode", MODES)
def test_a_claim_by_sql_passes_over_dead_entries_only_once(one: Connection, mode: str) -> None:
    one.execute(f"SET plan_cache_mode = {mode}")
    dead = 4_000
    fill(one, LIVE, dead, queue_name="'dead'")
    worker = register(one)
    with open_raw(autocommit=False) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")  # takes a snapshot, so that the entries cannot be marked as dead
        one.execute(f"DELETE FROM {LIVE} WHERE queue_name = 'dead'")
        fill(one, LIVE, 1, queue_name="'dead'")
        with reads(one) as counts:
            assert len(sql_claim(one, worker, 50, ["dead"])) == 1
    one.execute(f"DELETE FROM {LIVE} WHERE queue_name = 'dead'")
    assert dead <= counts.of(CLAIM_INDEX) <= 1.2 * dead, counts
