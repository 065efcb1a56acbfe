"""The server takes sessions away, has no free ones, and has locked the tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from django.db import connection

from tests.app import ledger_tasks as tasks
from tests.support.own_server import OwnServer

from ..harness.audit import Audit
from ..harness.scenario import Scenario
from ..harness.stage import Stage
from ..harness.worlds import at_database, server_of_its_own
from .server import in_transaction

__all__ = ["SCENARIOS", "only_atomic_jobs_ran_again", "terminate_all"]

MOST_SESSIONS = 40
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


@contextmanager
def with_few_sessions(folder: Path) -> Iterator[OwnServer]:
    """Run a server that allows few sessions."""
    with server_of_its_own(folder) as server:
        with server.connect() as own:
            own.execute(f"ALTER SYSTEM SET max_connections = {MOST_SESSIONS}")
        server.stop()
        server.start()
        with at_database(**server.database):
            yield server


def terminate(stage: Stage) -> None:
    """Terminate sessions at random: those of the loops, the listeners, the heartbeats, the jobs, the load."""
    in_transaction(stage)
    with stage.havoc.fault(TERMINATED):
        for _ in range(15):
            sessions = _others()
            _terminate(stage.choice.sample(sessions, min(len(sessions), stage.choice.randint(1, 4))))
            time.sleep(stage.choice.uniform(0.0, 0.2))
    stage.all_up()


def exhaust(stage: Stage) -> None:
    """Terminate all sessions, and let somebody else take their places for some seconds."""
    in_transaction(stage)
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
    stage.all_up()


def lock(stage: Stage) -> None:
    """Change the table of jobs, and hold the lock for longer than a worker waits for it."""
    in_transaction(stage, 0.5)
    for change in ("ADD COLUMN chaos integer", "DROP COLUMN chaos"):
        fault = stage.havoc.fault("locked tables", explains=False)
        with fault, stage.world.connect() as own, own.transaction():
            own.execute(f"ALTER TABLE pgqueue_job {change}")
            time.sleep(LOCKED)
        stage.over(stage.load.enqueue(lambda number: tasks.sync_effect.bind(number, 0.0)))
    stage.all_up()


def cancel(stage: Stage) -> None:
    """Cancel statements of the workers, as their statement timeout does."""
    stage.occupy(0.5)
    with stage.havoc.fault("cancelled statements", explains=False), connection.cursor() as cursor:
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            cursor.execute(_CANCEL)
            time.sleep(stage.choice.uniform(0.0, 0.01))
    stage.all_up()


def only_atomic_jobs_ran_again(stage: Stage, audit: Audit, *, of: str = "") -> list[str]:
    """Return which jobs ran again although only the transactions of atomic ones were lost.

    ``of``: the kind of fault, if this is true of one kind only.
    """
    paths = {row.pk: row.task_path for row in audit.rows}
    return [
        f"a lost session let a job run again that has no transaction:\n    {first}\n    {second}"
        for first, second, kind in audit.duplicates
        if of in {"", kind} and paths[first.job] != tasks.atomic_effect.module_path
    ]


def terminate_all() -> None:
    """Terminate the sessions of everybody else."""
    _terminate(_others())


def _others() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(_OTHERS)
        return [pid for (pid,) in cursor.fetchall()]


def _terminate(pids: list[int]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::integer[]) AS pid", [pids])


SCENARIOS = [
    Scenario(
        name="lost sessions",
        promises=("no-second-run", "reconnects"),
        expects="""
            Whichever sessions are terminated, and however long the server has no free one, the processes
            live on and connect again. Only atomic jobs run again, whose transactions were lost, and they lose
            no attempt. While the tables are locked or changed, jobs wait. A statement of a worker that is
            cancelled, as by its timeout, is repeated.
        """,
        faults=(terminate, exhaust, lock, cancel),
        world=with_few_sessions,
        check=only_atomic_jobs_ran_again,
        within={TERMINATED: 3.0, EXHAUSTED: 5.0, "locked tables": 5.0, "cancelled statements": 3.0},
    ),
]
