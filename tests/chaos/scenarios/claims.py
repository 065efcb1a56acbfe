"""A crash of the server that loses the last claims, because they do not wait for the disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from django.db import connection, connections

from django_pgqueue.models import Job
from django_pgqueue.models.changes import run_now
from django_pgqueue.tasks.task import Task
from tests.app import ledger_tasks as tasks
from tests.support.own_server import OwnServer

from ..harness.accounts import Run
from ..harness.audit import Audit
from ..harness.scenario import Scenario
from ..harness.stage import Stage
from ..harness.worlds import server_of_its_own

__all__ = ["SCENARIOS"]

CRASHED = "server crashed with claims in memory"
REFUSED = "the lease was lost, so its outcome (done) was refused"
TAKEN_UP = "claimed running jobs again, whose claims the server has lost"
LAZY = {
    "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "bgwriter_lru_maxpages": "0",
    "autovacuum": "off",
}  # fmt: skip
"""With these, the server writes claims to the disk only with the next durable commit, or every 10 seconds."""
JOBS = 5
TRIES = 4
"""Crashes, at most, until one has lost claims: some other commit may have written them."""


@contextmanager
def with_lazy_disk(folder: Path) -> Iterator[OwnServer]:
    """Run a server that keeps what need not be durable in memory for long."""
    with server_of_its_own(folder) as server:
        with server.connect() as own:
            for name, value in LAZY.items():
                own.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        server.stop()
        server.start()
        connections.close_all()
        yield server


def lose_claims(stage: Stage) -> None:
    """Let the server crash after the claims of some jobs, until a crash has lost claims."""
    for _ in range(TRIES):
        if _crash_after_claims(stage):
            return
    raise AssertionError(f"{TRIES} crashes have lost no claim")


def _crash_after_claims(stage: Stage) -> bool:
    """Return whether a claim was lost.

    Whatever has to be on the disk is committed before the claims that may be lost: the jobs, which wait for
    long, and the claim of the job that must not run twice. All jobs end after the crash.
    """
    before = _said(stage, TAKEN_UP)
    with stage.load.held():
        stage.all_over()
        often = [_enqueue(stage, tasks.sync_effect.using(run_after=timedelta(hours=1))) for _ in range(JOBS)]
        once = _enqueue(stage, tasks.runs_once)
        stage.begun(once)
        with connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit = off")
            run_now(waiting := Job.objects.filter(shelf=0, args__0__in=often))
        for number in often:
            stage.begun(number)
        with stage.havoc.fault(CRASHED):
            stage.world.stop("immediate")
            stage.world.start()
        connections.close_all()
        run_now(waiting)  # they wait for long again, if the crash has lost that as well
        for number in (once, *often):
            stage.over(number)
    stage.all_up()
    return _said(stage, TAKEN_UP) > before or any(len(_runs(stage, number)) > 1 for number in often)


def _enqueue(stage: Stage, task: Task[[int, float], None]) -> int:
    return stage.load.enqueue(lambda number: task.bind(number, 4.0))


def _runs(stage: Stage, number: int) -> list[Run]:
    return [run for run in stage.accounts().runs if run.number == number]


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


SCENARIOS = [
    Scenario(
        name="lost claims",
        promises=("overlap-one-report", "on-lost-never-again"),
        expects="""
            The server crashes before the claims of the last moment are on disk. A worker claims such jobs
            again while they run. If another one is sooner, they run again, and only one report of each is
            accepted. A job that must not run twice was claimed durably, so it runs once and is done.
        """,
        faults=(lose_claims,),
        world=with_lazy_disk,
        check=claims_that_had_to_last,
    ),
]
