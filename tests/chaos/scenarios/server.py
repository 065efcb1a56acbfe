"""The server goes away under load, and comes back."""

from __future__ import annotations

import time

from django.db import connections

from tests.app import ledger_tasks as tasks
from tests.support.waiting import until

from ..harness.accounts import Fault, Run
from ..harness.audit import Audit
from ..harness.scenario import Scenario
from ..harness.stage import PATIENCE, Stage
from ..harness.worlds import server_of_its_own

__all__ = ["SCENARIOS"]

LEASE = 8.0  # seconds; live workers send a heartbeat within it even on a busy machine
CRASHED, RESTARTED, AWAY = "server crashed", "server restarted", "server away for longer than the lease"
LATE = 2.0
"""Maximum seconds until a claim is on disk, on a busy machine. The server writes 5 times a second."""


def crash(stage: Stage) -> None:
    """Let the server crash, and start it again."""
    _restart(stage, CRASHED, "immediate")


def restart(stage: Stage) -> None:
    """Stop the server in order, and start it again."""
    _restart(stage, RESTARTED, "fast")


def stay_away(stage: Stage) -> None:
    """Stop the server for longer than the lease. Afterwards a job runs on until its lease, counted from the
    return, would be over if its worker were taken for dead.
    """
    end = time.monotonic() + LEASE + 1.0
    long = stage.load.enqueue(lambda number: tasks.sync_effect.bind(number, 2 * LEASE + 4.0))
    stage.begun(long)
    with stage.havoc.fault(AWAY):
        stage.world.stop()
        time.sleep(end - time.monotonic())
        stage.world.start()
    connections.close_all()
    stage.all_up()
    stage.over(long)


def _restart(stage: Stage, kind: str, mode: str) -> None:
    run = outside_a_transaction(stage, 1.5)
    atomic = in_transaction(stage, 1.5)
    with stage.havoc.fault(kind):
        stage.world.stop(mode)
        ended(stage, run)
        stage.world.start()
    connections.close_all()
    reported(stage, run)
    stage.all_up()
    stage.over(atomic.number)  # or else the next fault of the long form would hit it again and again


def outside_a_transaction(stage: Stage, seconds: float = 2.0) -> Run:
    """Enqueue a job that runs for some seconds without the server, and wait until it has begun."""
    task = stage.choice.choice([tasks.sync_effect, tasks.async_effect]).using(priority=10)
    return stage.begun(stage.load.enqueue(lambda number: task.bind(number, seconds)))


def ended(stage: Stage, run: Run) -> None:
    """Wait until the run has come to its end, which cannot be reported then."""
    until(
        lambda: any(other.lease == run.lease and other.ended for other in stage.accounts().runs),
        seconds=PATIENCE,
        what=f"the run ends: {run}",
    )


def reported(stage: Stage, run: Run) -> None:
    """Wait until the job has finished, and see that this run was reported: its worker has kept the report.

    Its claim was not lost, because something durable was committed after it.
    """
    job = stage.over(run.number)
    assert job.lease == run.lease, f"the report of a run was lost, and job {job.pk} ran again: {run}"


def in_transaction(stage: Stage, seconds: float = 3.0) -> Run:
    """Enqueue an atomic job, whose transaction is open for some seconds, and wait until it has begun."""
    task = tasks.atomic_effect.using(priority=10)
    return stage.begun(stage.load.enqueue(lambda number: task.bind(number, seconds)))


def only_what_was_lost_ran_again(stage: Stage, audit: Audit) -> list[str]:
    """Return which jobs ran again although neither their transaction nor their claim was lost.

    A run of an atomic task may have come to its end, which the ledger notes before the COMMIT. All other
    reports are kept until the server is back.
    """
    paths = {row.pk: row.task_path for row in audit.rows}
    crashes = [fault for fault in audit.accounts.faults if fault.kind == CRASHED]
    return [
        f"a job ran again that had lost nothing:\n    {first}\n    {second}"
        for first, second, _ in audit.duplicates
        if paths[first.job] != tasks.atomic_effect.module_path
        and not any(_lost_claim(first, crash) for crash in crashes)
    ]


def _lost_claim(run: Run, crash: Fault) -> bool:
    return crash.before - LATE <= run.claimed_at <= crash.after


SCENARIOS = [
    Scenario(
        name="server restarts",
        promises=("server-restart",),
        expects="""
            While the server is away, even for longer than the lease, running jobs go on, and are reported
            when it is back: nobody takes them from a worker that lives. An atomic job whose transaction is
            lost runs again, without an attempt less. New jobs are done within 3 seconds of the server's
            return, or within 10 seconds if it was away for longer than the lease. A crash may lose the last
            claims, whose jobs then run again.
        """,
        faults=(crash, restart, stay_away),
        settings={"BACKOFF_BASE": 0.5, "LEASE": LEASE, "HEARTBEAT": 1.0},
        world=server_of_its_own,
        check=only_what_was_lost_ran_again,
        within={CRASHED: 3.0, RESTARTED: 3.0, AWAY: 10.0},
    ),
]
