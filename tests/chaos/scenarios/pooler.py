"""A pooler in transaction mode between everything and the server."""

from __future__ import annotations

from django.db import Error, connections

from django_pgqueue.models import Worker
from tests.support.poolers import lacks_pgbouncer
from tests.support.sessions import open_raw
from tests.support.waiting import until

from ..harness.audit import Audit
from ..harness.scenario import Scenario
from ..harness.stage import PATIENCE, Stage
from ..harness.worlds import behind_a_pooler
from .processes import SHORT_LEASE, kill_process, kill_supervisor

__all__ = ["SCENARIOS"]

_TERMINATE = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


def restart_pooler(stage: Stage) -> None:
    """Stop the pooler, which closes all connections, and start it again."""
    stage.occupy()
    with stage.havoc.fault("pooler stopped"):
        stage.world.stop()
        stage.world.start()
    _all_up(stage)


def end_sessions(stage: Stage) -> None:
    """End all sessions of the pooler at the server. Its clients find out when they use one."""
    stage.occupy()
    with stage.havoc.fault("sessions of the pooler ended"), open_raw() as direct:
        direct.execute(_TERMINATE)
    _all_up(stage)


def _all_up(stage: Stage) -> None:
    """Connect again, as often as the pooler gives a session that was ended, and wait for the workers."""
    until(_is_connected, seconds=PATIENCE, what="a session through the pooler")
    stage.all_up()


def _is_connected() -> bool:
    connections.close_all()
    try:
        return Worker.objects.count() >= 0
    except Error:
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
        name="pooler",
        promises=("pooler-calls", "pooler-worker"),
        expects="""
            With pgbouncer in transaction mode between everything and the server, nothing relies on a session:
            each transaction gets another one. If the pooler is restarted, or loses its connections, running
            jobs go on, and new jobs are done within 5 seconds. The jobs of a killed process run again as soon
            as its supervisor sees it, and those of a killed supervisor after its lease.
        """,
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
