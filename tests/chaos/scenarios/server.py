"""The server goes away under load and comes back, loses the last claims, or its standby is promoted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

from django.core.management import call_command
from django.db import connections

from django_pgqueue.models import Job
from django_pgqueue.models.changes import run_now
from tests.app import ledger_tasks as tasks
from tests.support.databases import alias
from tests.support.jobs import sql
from tests.support.servers import Pair, primary_and_standby
from tests.support.waiting import until

from ..harness.audit import Audit
from ..harness.ledger import Run, by_job
from ..harness.scenario import Scenario
from ..harness.stage import OUTSIDE, PATIENCE, Stage
from ..harness.worlds import at_database, server_of_its_own

LEASE = 8.0  # seconds; live workers send a heartbeat within it even on a busy machine
LOG_FULL = "no space for the log"  # which lets the server crash
CRASHED, RESTARTED, AWAY = "server crashed", "server restarted", "server away for longer than the lease"
UNWRITTEN = 2.0
"""Maximum seconds until a claim is on disk, on a busy machine. The server writes 5 times a second."""


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
    stage.over(long)


def restart(stage: Stage, kind: str, mode: str) -> None:
    """Stop the server in this way, and start it again."""
    run = stage.occupy(1.5, *OUTSIDE)
    atomic = stage.occupy(1.5, tasks.atomic_effect)
    with stage.havoc.fault(kind):
        stage.world.stop(mode)
        ended(stage, run)
        stage.world.start()
    connections.close_all()
    reported(stage, run)
    stage.over(atomic.number)  # or else the next fault of the long form would hit it again and again


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


def only_what_was_lost_ran_again(stage: Stage, audit: Audit) -> list[str]:
    """Return which jobs ran again although neither their transaction nor their claim was lost.

    A run of an atomic task may have come to its end, which the ledger notes before the COMMIT. All other
    reports are kept until the server is back.
    """
    atomic = {row.pk for row in audit.rows if row.task_path == tasks.atomic_effect.module_path}
    crashes = [fault for fault in audit.accounts.faults if fault.kind in (CRASHED, LOG_FULL)]
    return [
        f"a job ran again that had lost nothing:\n    {first}\n    {second}"
        for first, second, _ in audit.duplicates
        if first.job not in atomic
        and not any(each.before - UNWRITTEN <= first.claimed_at <= each.after for each in crashes)
    ]


CRASHED_EARLY = "server crashed with claims in memory"
REFUSED = "the lease was lost, so its outcome (done) was refused"
TAKEN_UP = "claimed running jobs again, whose claims the server has lost"
LAZY = {
    "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "bgwriter_lru_maxpages": "0",
    "autovacuum": "off",
}  # fmt: skip
"""With these, the server writes claims to the disk only with the next durable commit, or every 10 seconds."""
JOBS = 5
TRIES = 4
"""Crashes, at most, until a run with a lost claim has come to its end.

Some other commit may have written the claims. Or the process that runs the job has claimed it again as a new
one: it gives that job back, ends, and cuts the run off.
"""


def lose_claims(stage: Stage) -> None:
    """Let the server crash after the claims of some jobs, until a run with a lost claim comes to its end."""
    if not any(_crash_after_claims(stage) for _ in range(TRIES)):
        raise AssertionError(f"after {TRIES} crashes, no run with a lost claim has come to its end")


def _crash_after_claims(stage: Stage) -> bool:
    """Return whether a run whose claim was lost has come to its end.

    Whatever has to be on the disk is committed before the claims that may be lost: the jobs, which wait for
    long, and the claim of the job that must not run twice. All jobs end after the crash.
    """
    before = _said(stage, TAKEN_UP)
    late = tasks.sync_effect.using(run_after=timedelta(hours=1))
    with stage.load.held():
        stage.all_over()
        often = [stage.load.enqueue(lambda number: late.bind(number, 4.0)) for _ in range(JOBS)]
        once = stage.occupy(4.0, tasks.runs_once).number
        sql("SET synchronous_commit = off")
        run_now(waiting := Job.objects.filter(shelf=0, args__0__in=often))
        for number in often:
            stage.begun(number)
        with stage.havoc.fault(CRASHED_EARLY):
            stage.world.stop("immediate")
            stage.world.start()
        connections.close_all()
        run_now(waiting)  # they wait for long again, if the crash has lost that as well
        for number in (once, *often):
            stage.over(number)
    stage.all_up()
    replaced = [run for runs in by_job(stage.accounts().runs).values() for run in runs[:-1]]
    ended_twice = any(run.how == "done" and run.number in often for run in replaced)
    return ended_twice or _said(stage, TAKEN_UP) > before


def _said(stage: Stage, words: str) -> int:
    return sum(command.log.count(words) for command in stage.started)


def claims_that_had_to_last(stage: Stage, audit: Audit) -> list[str]:
    """Return which jobs have run again although they must not, and which reports were accepted twice."""
    problems = []
    for row in audit.rows:
        runs = audit.runs_of.get(row.pk, [])
        if row.task_path == tasks.runs_once.module_path and len(runs) > 1:
            problems.append(f"job {row.pk} must not run twice and has run again: {runs}")
    if not audit.late and not _said(stage, TAKEN_UP):
        problems.append("no run with a lost claim has come to its end")
    said = _said(stage, REFUSED)
    if said != audit.late:
        problems.append(f"{audit.late} runs with a lost claim have ended, and {said} reports were refused")
    return problems


PROMOTED = "promoted standby"


@contextmanager
def with_a_standby(folder: Path) -> Iterator[Pair]:
    """Run a primary that waits for its standby at each durable commit. The DSN names both servers."""
    with primary_and_standby() as pair:
        with alias("pair", **pair.primary.address()) as name:
            call_command("migrate", database=name, run_syncdb=True, verbosity=0)
        pair.primary.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
        pair.primary.ask("SELECT pg_reload_conf()")
        pair.catch_up()
        with at_database(**pair.address()):
            yield pair


def fail_over(stage: Stage) -> None:
    """Let the primary crash, and promote the standby. This can happen only once."""
    pair: Pair = stage.world
    if not pair.standby.ask("SELECT pg_is_in_recovery()")[0]:
        time.sleep(1.0)
        return
    run = stage.occupy(2.0, *OUTSIDE)
    stage.occupy(3.0, tasks.atomic_effect)
    pids = stage.at_work()
    with stage.havoc.fault(PROMOTED):
        pair.primary.crash()
        ended(stage, run)
        pair.promote()
    connections.close_all()
    reported(stage, run)
    stage.all_up()
    assert stage.at_work() == pids, "a process was replaced"


SCENARIOS = [
    Scenario(
        name="server restarts",
        promises=("server-restart",),
        faults=(
            partial(restart, kind=CRASHED, mode="immediate"),
            partial(restart, kind=RESTARTED, mode="fast"),
            stay_away,
        ),
        settings={"BACKOFF_BASE": 0.5, "LEASE": LEASE, "HEARTBEAT": 1.0},
        world=server_of_its_own,
        check=only_what_was_lost_ran_again,
        within={CRASHED: 3.0, RESTARTED: 3.0, AWAY: 10.0},
    ),
    Scenario(
        name="lost claims",
        promises=("overlap-one-report", "on-lost-never-again"),
        faults=(lose_claims,),
        world=partial(server_of_its_own, settings=LAZY),
        check=claims_that_had_to_last,
    ),
    Scenario(
        name="failover",
        promises=("server-restart", "synchronous-standby"),
        faults=(fail_over,),
        world=with_a_standby,
        within={PROMOTED: 3.0},
    ),
]
