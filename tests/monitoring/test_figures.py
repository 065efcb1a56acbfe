"""Figures of spans, the depth and age of queues, the workers, and whether all this is healthy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import override_settings
from django.utils import timezone

from django_pgqueue import enqueue, pause
from django_pgqueue.monitoring import health as health_module
from django_pgqueue.monitoring import queues as depth_module
from django_pgqueue.monitoring.health import HealthProblem, health
from django_pgqueue.monitoring.queues import Depth, depths
from django_pgqueue.monitoring.spans import (
    DAY,
    HOUR,
    MONTH,
    SPANS,
    WEEK,
    TimeSpan,
    breakdown,
    series,
    totals,
)
from django_pgqueue.monitoring.workers import Crew, Vital, busy_text
from django_pgqueue.postgres.session import SUPERVISOR
from django_pgqueue.postgres.session import connect as open_session
from django_pgqueue.postgres.timeout import TimeLimitReached
from tests.app.tasks import noop
from tests.support.factories import JobFactory, WorkerFactory
from tests.support.keys import add_many
from tests.support.plans import fill
from tests.support.sessions import Connect
from tests.support.statistics import count, roll_up

pytestmark = pytest.mark.django_db(transaction=True)


def ago(**time: float) -> Any:
    return timezone.now() - timedelta(**time)


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
@pytest.mark.parametrize("is_rolled_up", [True, False])
def test_a_chart_and_a_table_count_everything_once(
    connect: Connect, span: TimeSpan, is_rolled_up: bool
) -> None:
    one = connect(autocommit=True)
    length = span.length / timedelta(minutes=1)
    back = [0, 5, length / 2, length * 0.9]
    count(one, back, 2)
    count(one, back, 1, task="tests.app.tasks.add")
    count(one, [5], 5, queue="mail")
    count(one, [length * 2.5], 100)
    if is_rolled_up:
        assert roll_up(one) == 8
    points = series("default", span)
    assert len(points) == span.length / span.step
    assert points[1].start - points[0].start == span.step
    assert sum(point.done for point in points) == sum(point.attempts for point in points) == 17
    assert points[-1].done >= 3
    assert points[-1].waited(0.5) == pytest.approx(0.0015)
    assert sum(point.done for point in series("default", span, queue="mail")) == 5
    assert sum(point.done for point in series("default", span, task="tests.app.tasks.add")) == 4
    queues = breakdown("default", span, "queue")
    assert [(row.queue_name, row.task_path, row.done) for row in queues] == [
        ("default", "", 12),
        ("mail", "", 5),
    ]
    tasks = breakdown("default", span, "task", queue="default")
    assert [(row.task_path.rpartition(".")[2], row.done) for row in tasks] == [("noop", 8), ("add", 4)]
    assert tasks[0].ran(0.95) == pytest.approx(1.0, abs=0.1)
    assert tasks[0].run_seconds == pytest.approx(8.0)
    assert len(breakdown("default", span, "task", most=1)) == 1


def test_a_chart_of_nothing_has_points_and_no_percentiles() -> None:
    points = series("default", HOUR)
    assert [point.attempts for point in points] == [0] * 60
    assert points[0].waited(0.5) is None
    assert breakdown("default", DAY, "queue") == []
    assert totals("default") == []
    assert [len(series("default", span)) for span in (DAY, WEEK, MONTH)] == [96, 168, 120]


def test_depth_and_age() -> None:
    JobFactory.create(queue_name="mail", run_after=ago(minutes=10))
    JobFactory.create(queue_name="mail", priority=5, run_after=ago(minutes=20))
    JobFactory.create(queue_name="mail", priority=7, group_key="a", run_after=ago(minutes=30))
    JobFactory.create(queue_name="mail", scheduled=True)
    JobFactory.create(queue_name="mail", retrying=True)
    JobFactory.create(queue_name="slow", running=True, last_attempted_at=ago(hours=1))
    JobFactory.create(queue_name="slow", status="blocked", waiting_reason="paused by anna")
    JobFactory.create(queue_name="slow", status="blocked", waiting_reason="waits for jobs 1, 2")
    JobFactory.create(queue_name="mail", done=True)
    pause(queue="idle")
    found = depths("default", ["wanted"])
    assert list(found) == ["idle", "mail", "slow", "wanted"]
    mail, slow = found["mail"], found["slow"]
    assert (mail.ready, mail.scheduled, mail.retrying, mail.running, mail.blocked) == (3, 1, 1, 0, 0)
    assert 1800 <= mail.oldest_ready < 1860
    assert (slow.ready, slow.scheduled, slow.running, slow.blocked) == (0, 0, 1, 2)
    assert 3600 <= slow.longest_running < 3660
    assert found["idle"].is_paused
    assert found["wanted"] == Depth("wanted")
    pause(everything=True)
    assert all(depth.is_paused for depth in depths("default", ["wanted"]).values())


def test_jobs_that_wait_for_their_key_are_blocked(connect: Connect) -> None:
    add_many(connect(autocommit=True), "k", "k", "k")
    found = depths("default")["default"]
    assert (found.ready, found.blocked) == (1, 2)


def test_beyond_the_limit_counts_are_estimates(connect: Connect) -> None:
    one = connect(autocommit=True)
    one.execute("SELECT pgqueue_enqueue('tests.app.tasks.noop') FROM generate_series(1, 500)")
    one.execute("ANALYZE pgqueue_job_live")
    assert depths("default", most=500)["default"].ready == 500
    assert 400 <= depths("default", most=100)["default"].ready <= 600
    one.execute("DELETE FROM pgqueue_job_live WHERE id % 2 = 0")
    assert depths("default")["default"].ready == 250, "exact, whatever the statistics of the table say"
    one.execute("VACUUM ANALYZE pgqueue_job_live")


def test_beyond_the_limit_retries_are_told_from_what_is_scheduled(connect: Connect) -> None:
    one = connect(autocommit=True)
    fill(
        one, "pgqueue_job_live", 500, status="CASE WHEN n <= 100 THEN 'retry' ELSE 'pending' END",
        run_after="clock_timestamp() + n * interval '1 minute'",
    )  # fmt: skip
    found = depths("default")["default"]
    assert (found.scheduled, found.retrying) == (400, 100)
    found = depths("default", most=50)["default"]
    assert 300 <= found.scheduled <= 450, "although the first 50 are retries"
    assert 75 <= found.retrying <= 125
    one.execute("TRUNCATE pgqueue_job_live")
    one.execute("VACUUM ANALYZE pgqueue_job_live")


def test_the_crew() -> None:
    worker = WorkerFactory.create(slots=4)
    WorkerFactory.create(queues=["mail"], slots=2)
    WorkerFactory.create(exclude_queues=["mail"], state="draining", slots=8)
    WorkerFactory.create(heartbeat_at=ago(hours=1))
    for _ in range(6):
        JobFactory.create(running=True, worker=worker.pk)
    crew = Crew("default")
    assert [crew.count(vital) for vital in Vital] == [2, 1, 0, 1]
    assert (crew.slots, crew.busy) == (6, 4)
    assert (crew.serving("mail"), crew.serving("other")) == (2, 1)


def test_healthy() -> None:
    WorkerFactory.create()
    enqueue(noop)
    found = health("default")
    assert found.is_healthy
    assert found.probe_line.startswith("healthy: workers 1, ready jobs 1, the oldest for ")


SETTINGS = {
    "HEALTH": {"*": {"age": 60, "depth": 3}, "mail": {"age": 600}, "slow": {"workers": 2, "age": None}}
}


@pytest.fixture
def _settings() -> Iterator[None]:
    with override_settings(PGQUEUE=SETTINGS):
        yield


@pytest.mark.usefixtures("_settings")
def test_each_threshold() -> None:
    WorkerFactory.create(queues=["default", "mail", "slow"])
    for queue in ("default", "mail", "slow"):
        JobFactory.create(queue_name=queue, run_after=ago(minutes=5))
    JobFactory.create_batch(4, queue_name="many")
    problems = health("default").problems
    assert [(problem.kind, problem.queue_name) for problem in problems] == [
        ("age", "default"),
        ("depth", "many"),
        ("unserved", "many"),
        ("unserved", "slow"),
    ]
    assert [str(problem) for problem in problems] == [
        "default: the oldest ready job waits for 5 min, longer than 1 min",
        "many: more than 3 jobs are ready",
        "many: served by 0 of at least 1 worker",
        "slow: served by 1 of at least 2 workers",
    ]
    assert health("default", ["mail"]).is_healthy
    assert health("default", ["mail"], age=100).probe_line == (
        "unhealthy: mail: the oldest ready job waits for 5 min, longer than 1 min"
    )
    assert health("default", ["idle"]).problems == (
        HealthProblem("unserved", "idle", "idle: served by 0 of at least 1 worker"),
    )
    pause(everything=True)
    assert health("default").is_healthy, "the jobs wait on purpose"


def test_missing_workers_are_told_once() -> None:
    enqueue(noop)
    JobFactory.create(queue_name="mail")
    assert health("default").problems == (HealthProblem("no_worker", "", "no worker claims jobs"),)
    assert health("default").probe_line == "unhealthy: no worker claims jobs"


def test_a_worker_that_is_starting_is_told() -> None:
    """Its supervisor is connected, but none of its processes has loaded the project."""
    session = open_session("default", name=SUPERVISOR)
    try:
        assert health("default").probe_line == "unhealthy: no worker claims jobs yet, but one is starting"
        worker = WorkerFactory.create()
        assert health("default").is_healthy
        worker.delete()
    finally:
        session.close()
    assert health("default", workers=0).is_healthy
    WorkerFactory.create()
    assert health("default", workers=2).problems == (
        HealthProblem("few_workers", "", "1 worker claims jobs, at least 2 are expected"),
    )


def test_slots_that_lost_jobs_take_are_told() -> None:
    worker = WorkerFactory.create(slots=4, lost=2)
    assert health("default").problems == (
        HealthProblem("lost_jobs", "", "2 slots are taken by lost jobs, whose tasks have not ended"),
    )
    (found,) = Crew("default").workers
    assert (found.pk, found.busy, busy_text(found)) == (worker.pk, 2, "2 of 4, 2 by lost jobs")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (TimeLimitReached(), "unhealthy: the database did not answer within 2 s"),
        (OperationalError("password of 10.0.0.1"), "unhealthy: the database cannot be read"),
    ],
)
def test_a_database_that_does_not_answer_is_not_healthy(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(health_module, "depths", fail)
    assert health("default").probe_line == line
    assert [problem.kind for problem in health("default").problems] == ["unreachable"]


def test_a_threshold_above_the_usual_limit_is_counted_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def count_up_to(alias: str, names: Any, most: int) -> dict[str, Depth]:
        seen.append(most)
        return {}

    monkeypatch.setattr(health_module, "depths", count_up_to)
    health("default", depth=50_000)
    health("default")
    assert seen == [50_001, depth_module.MOST]
