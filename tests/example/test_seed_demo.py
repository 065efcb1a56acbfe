"""``manage.py seed_demo``: rows of every kind, which the queue leaves as they are."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import Count

from django_pgqueue.maintenance.rounds import Rounds
from django_pgqueue.models import (
    FailureGroup,
    Job,
    JobBatch,
    JobStat,
    Limit,
    Pause,
    Queue,
    Schedule,
    StatRollup,
    Worker,
)
from django_pgqueue.monitoring.workers import Vital, vital, with_vitals
from django_pgqueue.postgres.session import connect
from example_project.demo.management.commands.seed_demo import Command
from example_project.demo.shop.shop import QUEUE
from tests.support.factories import JobFactory, WorkerFactory

ROWS = 3_000
TABLES = (
    "job step edge progress tally batch queue schedule schedule_run limit rate pause window worker stat"
    " stat_rollup failure_note failure_group failure_count"
)


def run(*arguments: str, **options: Any) -> str:
    out = StringIO()
    call_command(Command(), *arguments, stdout=out, **options)
    return out.getvalue()


def rows(query: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def left() -> dict[str, int]:
    counts = {table: rows(f"SELECT count(*) FROM pgqueue_{table}")[0][0] for table in TABLES.split()}
    return {table: count for table, count in counts.items() if count}


def counted(column: str) -> int:
    """Return a figure of all statistics. A minute may end, and be added to the sums, at any moment."""
    totals = StatRollup.objects.filter(span="total").values_list(column, flat=True)
    pending = JobStat.objects.filter(rolled_up=False).values_list(column, flat=True)
    return int(sum(totals) + sum(pending))


@pytest.mark.django_db(transaction=True)
def test_there_is_every_kind_of_job_and_upkeep_leaves_them_as_they_are() -> None:
    assert "jobs in" in run("--rows", str(ROWS))
    assert ROWS < Job.objects.count() < 1.1 * ROWS
    assert set(Job.objects.values_list("status", flat=True)) == set(Job.Status.values)
    vitals = {vital(worker) for worker in with_vitals(Worker.objects.all())}
    assert vitals == set(Vital)
    for model in (JobBatch, Limit, Pause, Queue, Schedule):
        assert model.objects.exists()
    failed = Job.objects.filter(status="failed")
    groups = FailureGroup.objects.exclude(failed=0).values_list("fingerprint", "failed")
    assert dict(groups) == dict(failed.values_list("error_fingerprint").annotate(n=Count("pk")).order_by())
    assert FailureGroup.objects.count() >= 5

    ran = Job.objects.exclude(finished_at=None).exclude(last_attempted_at=None).exclude(queue_name=QUEUE)
    for status in ("done", "failed"):
        assert counted(status) == ran.filter(status=status).count(), "the statistics count exactly these jobs"

    # All but the jobs of the dead worker, which recovery takes.
    dead = next(worker.pk for worker in with_vitals(Worker.objects.all()) if vital(worker) == Vital.DEAD)
    taken = [*Job.objects.filter(worker=dead, status="running").values_list("pk", flat=True), 0]
    jobs = f"SELECT * FROM pgqueue_job WHERE id <> ALL (ARRAY{taken}) ORDER BY id"
    before, done = rows(jobs), counted("done")
    session = connect("default")
    try:
        rounds = Rounds()
        for now in (100.0, 200.0, 300.0):
            rounds.run(session, now)
    finally:
        session.close()
    assert rows(jobs) == before
    assert counted("done") == done

    run("--clear")
    assert left() == {}


@pytest.mark.django_db
def test_a_database_that_is_in_use_is_refused() -> None:
    own = JobFactory.create(queue_name="default")
    WorkerFactory.create(host="app-1")
    with pytest.raises(
        CommandError, match="1 live workers would see these jobs, and it has jobs of your own"
    ):
        run("--rows", "1000")
    assert Job.objects.count() == 1
    run("--rows", "1000", "--yes")
    assert Job.objects.count() > 1000
    run("--clear")
    assert list(Job.objects.all()) == [own]
    assert Worker.objects.count() == 1


@pytest.mark.django_db
def test_the_heartbeats_are_sent_until_somebody_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 1:
            raise KeyboardInterrupt
        Worker.objects.update(heartbeat_at="2026-01-01 00:00+00")

    monkeypatch.setattr("time.sleep", sleep)
    run("--rows", "1000", "--stay")
    assert {vital(worker) for worker in with_vitals(Worker.objects.all())} == set(Vital)
