"""The server takes sessions away, has none free, or its disk is full; their role has short timeouts, or a
pooler has them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psycopg
from django.db import DatabaseError, Error, connection, connections, transaction

from django_pgqueue.models import Worker
from tests.app import ledger_tasks as tasks
from tests.app.models import Entry
from tests.support.jobs import fetch, sql
from tests.support.machines import SmallDisk, lacks_small_disks, small_disk
from tests.support.poolers import lacks_pgbouncer
from tests.support.servers import OwnServer
from tests.support.sessions import Connection, open_raw
from tests.support.waiting import until

from ..harness.audit import Audit
from ..harness.scenario import Scenario
from ..harness.stage import EFFECTS, PATIENCE, Stage
from ..harness.worlds import behind_a_pooler, change_settings, server_of_its_own
from .processes import SHORT_LEASE, kill_process, kill_supervisor
from .server import LOG_FULL, only_what_was_lost_ran_again

SLOW_HEARTBEAT = {"HEARTBEAT": 3.0}
"""A worker whose lock is free, as after the end of its session, is dead after 2.5 heartbeats of silence, and
its jobs run elsewhere. On a busy machine, it takes seconds to connect again.
"""

FEW_SESSIONS = {"max_connections": "40"}
LOCKED = 3.0
"""Seconds: longer than a worker waits for a lock."""
TERMINATED, EXHAUSTED = "terminated sessions", "no free session"

_OTHERS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND backend_type = 'client backend' AND application_name <> 'chaos' ORDER BY pid"
)

_CANCEL = (
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name LIKE 'pgqueue%' AND state <> 'idle'"
)


def terminate(stage: Stage) -> None:
    """Terminate sessions at random: those of the loops, the listeners, the heartbeats, the jobs, the load."""
    stage.occupy(3.0, tasks.atomic_effect)
    with stage.havoc.fault(TERMINATED):
        for _ in range(15):
            sessions = _others()
            _terminate(stage.choice.sample(sessions, min(len(sessions), stage.choice.randint(1, 4))))
            time.sleep(stage.choice.uniform(0.0, 0.2))


def exhaust(stage: Stage) -> None:
    """Terminate all sessions, and let somebody else take their places for some seconds."""
    stage.occupy(3.0, tasks.atomic_effect)
    connection.ensure_connection()
    with stage.havoc.fault(EXHAUSTED), ExitStack() as hogs:
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            terminate_all()
            try:
                while True:
                    hogs.enter_context(psycopg.connect(stage.world.url, application_name="chaos"))
            except psycopg.OperationalError:
                time.sleep(0.1)


def lock(stage: Stage) -> None:
    """Change the table of jobs, and hold the lock for longer than a worker waits for it.

    If a worker has a partition that the change waits for, and waits for the table, an operator repeats it.
    """
    stage.occupy(0.5, tasks.atomic_effect)
    for change in ("ADD COLUMN chaos integer", "DROP COLUMN chaos"):
        with stage.havoc.fault("locked tables", explains=False), stage.world.connect() as own:

            def is_changed(change: str = change, own: Connection = own) -> bool:
                with suppress(psycopg.errors.DeadlockDetected), own.transaction():
                    own.execute(f"ALTER TABLE pgqueue_job {change}")
                    time.sleep(LOCKED)
                    return True
                return False

            until(is_changed, seconds=PATIENCE, what=change)
        stage.over(stage.load.enqueue(lambda number: tasks.sync_effect.bind(number, 0.0)))


def cancel(stage: Stage) -> None:
    """Cancel statements of the workers, as their statement timeout does."""
    stage.occupy(0.5)
    with stage.havoc.fault("cancelled statements", explains=False):
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            sql(_CANCEL)
            time.sleep(stage.choice.uniform(0.0, 0.01))


def terminate_all() -> None:
    """Terminate the sessions of everybody else."""
    _terminate(_others())


def _others() -> list[int]:
    return [pid for (pid,) in fetch(_OTHERS)]


def _terminate(pids: list[int]) -> None:
    sql("SELECT pg_terminate_backend(pid) FROM unnest(%s::integer[]) AS pid", pids)


WAITED, RAN = "lock_timeout", "statement_timeout"
TABLE_LOCKED = 1.5
"""Seconds: much longer than the role may wait, and shorter than a worker waits in its own sessions."""


def end_while_locked(stage: Stage, setting: str) -> None:
    """Give the role of all new sessions a timeout. Let an atomic job end, and the load enqueue, while nobody
    can write to the table of jobs for longer than that.
    """
    with stage.havoc.fault(setting), stage.world.connect() as own:
        own.execute("SET application_name = 'chaos'")  # so that it is not ended
        own.execute(f"ALTER ROLE CURRENT_USER SET {setting} = 200")
        terminate_all()
        try:
            run = stage.occupy(0.5, tasks.atomic_effect)
            with own.transaction():
                # Those of the history, one after the other, would be a deadlock with a worker.
                own.execute("LOCK TABLE pgqueue_job_live IN SHARE ROW EXCLUSIVE MODE")
                time.sleep(TABLE_LOCKED)
            until(lambda: stage.run_after(run), seconds=PATIENCE, what=f"the job runs again: {run}")
        finally:
            own.execute(f"ALTER ROLE CURRENT_USER RESET {setting}")
            terminate_all()
    stage.over(run.number)


def restart_pooler(stage: Stage) -> None:
    """Stop the pooler, which closes all connections, and start it again."""
    stage.occupy()
    with stage.havoc.fault("pooler stopped"):
        stage.world.stop()
        stage.world.start()
    until(_is_connected, seconds=PATIENCE, what="a session through the pooler")


def end_sessions(stage: Stage) -> None:
    """End all sessions of the pooler at the server. Its clients find out when they use one."""
    stage.occupy()
    with stage.havoc.fault("sessions of the pooler ended"), open_raw() as direct:
        direct.execute(f"SELECT pg_terminate_backend(pid) FROM ({_OTHERS}) AS others")
    until(_is_connected, seconds=PATIENCE, what="a session through the pooler")


def _is_connected() -> bool:
    connections.close_all()
    with suppress(Error):
        Worker.objects.exists()
        return True
    return False


def relied_on_no_session(stage: Stage, audit: Audit) -> list[str]:
    """Return which workers had prepared a statement, and whether none of them has seen the pooler."""
    logs = {path.name: path.read_text() for path in stage.ledger.folder.parent.glob("worker-*.log")}
    problems = [f"{name}: a statement was prepared" for name, log in logs.items() if "prepared stat" in log]
    if not any("is behind a transaction pooler" in log for log in logs.values()):
        problems.append("no worker has seen the pooler")
    return problems


SCENARIOS = [
    Scenario(
        name="lost sessions",
        promises=("no-second-run", "reconnects"),
        faults=(terminate, exhaust, lock, cancel),
        settings=SLOW_HEARTBEAT,
        world=partial(server_of_its_own, settings=FEW_SESSIONS),
        check=only_what_was_lost_ran_again,
        within={TERMINATED: 3.0, EXHAUSTED: 5.0, "locked tables": 5.0, "cancelled statements": 3.0},
    ),
    Scenario(
        name="timeouts of the role",
        promises=("own-timeouts",),
        faults=(partial(end_while_locked, setting=WAITED), partial(end_while_locked, setting=RAN)),
        settings=SLOW_HEARTBEAT,
        world=server_of_its_own,
        check=only_what_was_lost_ran_again,
        within={WAITED: 3.0, RAN: 3.0},
    ),
    Scenario(
        name="pooler",
        promises=("pooler-calls", "pooler-worker"),
        faults=(restart_pooler, end_sessions, kill_process, kill_supervisor),
        settings={"BACKOFF_BASE": 0.5, "POLL_INTERVAL": 0.2, **SHORT_LEASE},
        world=behind_a_pooler,
        lacks=lacks_pgbouncer,
        check=relied_on_no_session,
        within={
            "pooler stopped": 5.0,
            "sessions of the pooler ended": 5.0,
            "killed process": 5.0,
            "killed supervisor": 8.0 + 5.0,
        },
    ),
]


# --- The disk of the server is full: that of its tables, or that of its log, which stops the server


TABLES = "no space for tables"
FULL = "No space left on device"
LONG = 3.0
"""Seconds for which the disk stays full after everybody has seen it."""
MEGABYTES = 112
"""Of each of both disks. A new server needs a quarter of that for its tables."""


class World(NamedTuple):
    """A server with two small disks, one for its tables and one for its log."""

    server: OwnServer
    tables: SmallDisk
    log: SmallDisk


@contextmanager
def with_small_disks(folder: Path) -> Iterator[World]:
    """Run a server on small disks."""
    with server_of_its_own(folder) as server, ExitStack() as stack:
        # It would restart by itself, find the disk full once more, and stop at any time after that.
        sizes = {"min_wal_size": "32MB", "max_wal_size": "48MB"}
        change_settings(server, {**sizes, "restart_after_crash": "off"})
        server.stop()
        disks = [
            stack.enter_context(small_disk(server.data / name, MEGABYTES)) for name in ("base", "pg_wal")
        ]
        stack.callback(lambda: server.stop("immediate") if server.is_running() else None)
        server.start()
        connections.close_all()
        yield World(server, *disks)


def fill_tables(stage: Stage) -> None:
    """Leave no space for the tables. The server lives, and refuses what needs space."""
    world: World = stage.world
    for kind in EFFECTS:
        stage.occupy(LONG, kind)
    with stage.havoc.fault(TABLES):
        world.tables.fill()
        try:
            assert FULL in str(until(_refusal, what="the disk is full")).partition("\n")[0]
            _wait_for_the_workers(stage)
        finally:
            world.tables.free()


def fill_log(stage: Stage) -> None:
    """Leave no space for the log. The server stops itself, and cannot start before there is space."""
    world: World = stage.world
    for kind in EFFECTS:
        stage.occupy(LONG, kind)
    with stage.havoc.fault(LOG_FULL):
        world.log.fill()
        try:
            until(lambda: _is_gone(world.server), what="the server stops")
            time.sleep(LONG)
        finally:
            world.log.free()
        world.server.start()
    connections.close_all()


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


SCENARIOS += [
    Scenario(
        name="full disk",
        promises=("full-disk",),
        faults=(fill_tables, fill_log),
        settings={"BACKOFF_BASE": 0.5},
        world=with_small_disks,
        lacks=lacks_small_disks,
        check=only_what_was_lost_ran_again,
        within={TABLES: 5.0, LOG_FULL: 5.0},
    )
]
