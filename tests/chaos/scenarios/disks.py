"""The disk of the server is full: that of its tables, or that of its log, which stops the server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
from django.db import DatabaseError, connections, transaction

from tests.app import ledger_tasks as tasks
from tests.app.models import Entry
from tests.support.machines import SmallDisk, lacks_small_disks, small_disk
from tests.support.servers import OwnServer
from tests.support.waiting import until

from ..harness.audit import Audit
from ..harness.scenario import Scenario
from ..harness.stage import Stage
from ..harness.worlds import server_of_its_own
from .sessions import only_atomic_jobs_ran_again

TABLES, LOG = "no space for tables", "no space for the log"
FULL = "No space left on device"
LONG = 3.0
"""Seconds for which the disk stays full after everybody has seen it."""
MEGABYTES = 112
"""Of each of both disks. A new server needs a quarter of that for its tables."""


class World:
    """A server with two small disks, one for its tables and one for its log."""

    def __init__(self, server: OwnServer, tables: SmallDisk, log: SmallDisk) -> None:
        self.server = server
        self.tables = tables
        self.log = log


@contextmanager
def with_small_disks(folder: Path) -> Iterator[World]:
    """Run a server on small disks."""
    with server_of_its_own(folder) as server, ExitStack() as stack:
        with server.connect() as own:
            # It would restart by itself, find the disk full once more, and stop at any time after that.
            for name, value in {
                "min_wal_size": "32MB", "max_wal_size": "48MB", "restart_after_crash": "off",
            }.items():  # fmt: skip
                own.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        server.stop()
        disks = [
            stack.enter_context(small_disk(server.data / name, MEGABYTES)) for name in ("base", "pg_wal")
        ]
        stack.callback(_stop, server)
        server.start()
        connections.close_all()
        yield World(server, *disks)


def fill_tables(stage: Stage) -> None:
    """Leave no space for the tables. The server lives, and refuses what needs space."""
    world: World = stage.world
    _occupy(stage)
    with stage.havoc.fault(TABLES):
        world.tables.fill()
        try:
            assert FULL in str(until(_refusal, what="the disk is full")).partition("\n")[0]
            _wait_for_the_workers(stage)
        finally:
            world.tables.free()
    _all_up(stage)


def fill_log(stage: Stage) -> None:
    """Leave no space for the log. The server stops itself, and cannot start before there is space."""
    world: World = stage.world
    _occupy(stage)
    with stage.havoc.fault(LOG):
        world.log.fill()
        try:
            until(lambda: _is_gone(world.server), what="the server stops")
            time.sleep(LONG)
        finally:
            world.log.free()
        world.server.start()
    connections.close_all()
    _all_up(stage)


def _occupy(stage: Stage) -> None:
    """Enqueue jobs of each kind that end while the disk is full, and wait until they have begun."""
    kinds = [tasks.sync_effect, tasks.async_effect, tasks.atomic_effect]
    for task in kinds:
        call = task.using(priority=10)
        stage.begun(stage.load.enqueue(lambda number, call=call: call.bind(number, LONG)))  # type: ignore[misc]


def _refusal() -> DatabaseError | None:
    """Return how the server refuses to write, if it does. What it has written is rolled back."""
    try:
        with transaction.atomic():
            Entry.objects.bulk_create(Entry(key="filler", note="x" * 500) for _ in range(100))
            transaction.set_rollback(True)
    except DatabaseError as error:
        connections.close_all()
        return error
    return None


def _wait_for_the_workers(stage: Stage) -> None:
    """Wait until each worker has met the full disk, and some seconds longer."""
    for command in stage.commands:
        command.logged(FULL)
    time.sleep(LONG)


def _is_gone(server: OwnServer) -> bool:
    """Let the server begin a new piece of its log, and return whether it has stopped."""
    with suppress(psycopg.OperationalError), server.connect() as own:
        own.execute("SELECT pg_logical_emit_message(true, 'chaos', 'x')")
        own.execute("SELECT pg_switch_wal()")
    return not server.is_running()


def _all_up(stage: Stage) -> None:
    stage.all_up()
    ended = [command for command in stage.started if command.process.poll() is not None]
    assert not ended, ended[0].log


def _stop(server: OwnServer) -> None:
    if server.is_running():
        server.stop("immediate")


def _check(stage: Stage, audit: Audit) -> list[str]:
    """The server that stops itself may also lose claims, as in any crash."""
    return only_atomic_jobs_ran_again(stage, audit, of=TABLES)


SCENARIOS = [
    Scenario(
        name="full disk",
        promises=("full-disk",),
        expects="""
            While the disk of the server is full, an enqueue fails with an error that says so, or the server
            stops itself. Workers live on, keep what they cannot report, and try again at least every 5
            seconds. When there is space again, nothing is lost: reports are sent, jobs are done within 5
            seconds, and only atomic jobs that were rolled back run again, without an attempt less, and jobs
            whose claims the stop has lost.
        """,
        faults=(fill_tables, fill_log),
        settings={"BACKOFF_BASE": 0.5},
        world=with_small_disks,
        lacks=lacks_small_disks,
        check=_check,
        within={TABLES: 5.0, LOG: 5.0},
    )
]
