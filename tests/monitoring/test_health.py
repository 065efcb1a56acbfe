"""Whether a queue is healthy, and its health in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError
from django.test import override_settings
from django.utils import timezone

from django_pgqueue import enqueue, pause
from django_pgqueue.monitoring import depth as depth_module, health as module
from django_pgqueue.monitoring.depth import Depth
from django_pgqueue.monitoring.health import HealthProblem, full_health, health, read
from django_pgqueue.monitoring.workers import Crew, Vital, busy_text
from django_pgqueue.postgres.session import SUPERVISOR, connect as open_session
from django_pgqueue.postgres.timeout import TimeLimitReached
from tests.app.tasks import noop
from tests.support import schedules
from tests.support.factories import JobFactory, JobStatFactory, WorkerFactory, ago
from tests.support.figures import classes
from tests.support.jobs import sql

pytestmark = pytest.mark.django_db(databases=["default", "other"])


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
    assert found.probe_line.endswith(" s")
    pause(everything=True)
    assert health("default").probe_line.endswith("the oldest for 0 s; ready jobs in paused queues: 1")


THRESHOLDS = {"*": {"age": 60, "depth": 3}, "mail": {"age": 600}, "slow": {"workers": 2, "age": None}}


@override_settings(PGQUEUE={"HEALTH": THRESHOLDS})
def test_each_threshold() -> None:
    WorkerFactory.create(queues=["default", "mail", "slow"])
    for queue in ("default", "mail", "slow"):
        JobFactory.create(queue_name=queue, run_after=ago(minutes=5))
    JobFactory.create_batch(4, queue_name="many")
    late = "the oldest ready job waits for 5 min, longer than 1 min"
    assert health("default").problems == (
        HealthProblem("age", "default", f"default: {late}"),
        HealthProblem("depth", "many", "many: more than 3 jobs are ready"),
        HealthProblem("unserved", "many", "many: 0 workers serve it, at least 1 should"),
        HealthProblem("unserved", "slow", "slow: 1 worker serves it, at least 2 should"),
    )
    assert health("default", ["mail"]).is_healthy
    assert health("default", ["mail"], age=100).probe_line == f"unhealthy: mail: {late}"
    [unserved] = health("default", ["idle"]).problems
    assert unserved.text == "idle: 0 workers serve it, at least 1 should"
    pause(everything=True)
    assert health("default").is_healthy, "the jobs wait on purpose"


def test_missing_workers_are_told_once() -> None:
    enqueue(noop)
    JobFactory.create(queue_name="mail")
    assert health("default").problems == (HealthProblem("no_worker", "", "no worker claims jobs"),)
    assert health("default").probe_line == "unhealthy: no worker claims jobs"


def test_a_worker_that_is_starting_is_told() -> None:
    """Its supervisor is connected, but none of its processes has loaded the project."""
    with closing(open_session("default", name=SUPERVISOR)):
        assert health("default").probe_line == "unhealthy: no worker claims jobs yet, but one is starting"
        worker = WorkerFactory.create()
        assert health("default").is_healthy
        worker.delete()
    assert health("default", workers=0).is_healthy
    WorkerFactory.create()
    few = HealthProblem("few_workers", "", "1 worker claims jobs, at least 2 are expected")
    assert health("default", workers=2).problems == (few,)


def test_slots_that_lost_jobs_take_are_told() -> None:
    worker = WorkerFactory.create(slots=4, lost=2)
    taken = HealthProblem("lost_jobs", "", "2 slots are taken by lost jobs, whose tasks have not ended")
    assert health("default").problems == (taken,)
    (found,) = Crew("default").workers
    assert (found.pk, found.busy, busy_text(found)) == (worker.pk, 2, "2 of 4, 2 by lost jobs")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (TimeLimitReached(), "unhealthy: the database did not answer within 2 s"),
        (OperationalError("password of 10.0.0.1"), "unhealthy: the database cannot be read"),
    ],
)
def test_a_silent_database_is_unhealthy(error: Exception, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(module, "depths", fail)
    assert health("default").probe_line == line
    assert full_health("default").line == line.replace("unhealthy", "1 problem")
    assert [problem.kind for problem in health("default").problems] == ["unreachable"]


def test_a_threshold_above_the_usual_limit_is_counted_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def count_up_to(alias: str, names: Any, most: int, pauses: Any) -> dict[str, Depth]:
        seen.append(most)
        return {}

    monkeypatch.setattr(module, "depths", count_up_to)
    health("default", depth=50_000)
    health("default")
    assert seen == [50_001, depth_module.MOST]


# -- the health with the minor problems


def minute(back: int) -> datetime:
    return ago(minutes=back).replace(second=0, microsecond=0)


def test_all_is_well() -> None:
    WorkerFactory.create_batch(2)
    assert full_health("default").line == "Healthy: 2 workers, 0 jobs/min, no job is ready"
    JobFactory.create(run_after=ago(minutes=2))
    JobStatFactory.create(minute=minute(1), done=60_000)
    found = full_health("default")
    assert found.is_healthy
    assert found.line.startswith("Healthy: 2 workers, ")
    assert found.line.endswith(" jobs/s, the oldest ready job waits 2 min")
    seconds = (timezone.now() - minute(1)).total_seconds()
    assert read("default").per_second == pytest.approx(60_000 / seconds, rel=0.1)
    assert full_health("other").line == "1 problem: no worker claims jobs"


def silent() -> None:
    worker = WorkerFactory.create(heartbeat_at=ago(seconds=12))
    JobFactory.create(running=True, worker=worker.pk)


def lost() -> None:
    dead = WorkerFactory.create(heartbeat_at=ago(hours=1))
    JobFactory.create_batch(2, running=True, worker=dead.pk)
    JobFactory.create(running=True, worker=dead.pk + 1000)


def failing(failed: int = 41) -> None:
    JobStatFactory.create(minute=minute(5), failed=failed)
    JobStatFactory.create(minute=minute(70), failed=20)


def failing_seldom() -> None:
    JobStatFactory.create(minute=minute(5), done=4_080, failed=41)


def paused() -> None:
    JobFactory.create_batch(2, queue_name="mail", run_after=ago(hours=1))
    pause(queue="mail", author="ann", reason="<down>")
    pause(queue="idle")
    pause(task="tests.app.tasks.add")


def all_paused() -> None:
    JobFactory.create()
    JobFactory.create(queue_name="mail")
    pause(queue="mail")
    pause(everything=True, author="ann")


def growing() -> None:
    """Two queues grow. One of them is paused, and says so."""
    pause(queue="mail")
    sql(
        "INSERT INTO pgqueue_depth (queue_name, minute, ready, oldest_ready)"
        " SELECT queue, date_bin('1 minute', now() - make_interval(mins => back), 'epoch'),"
        " 500 - 40 * back, 90"
        " FROM unnest(ARRAY['', 'default', 'mail']) AS queue, unnest(ARRAY[0, 5, 10]) AS back"
    )
    JobFactory.create()


def skipping() -> None:
    """One schedule skipped three runs in a row, with one by hand between; one ran again; one is paused."""
    for name, outcomes in {
        "nightly": ["enqueued", "skipped", "manual", "skipped", "existing"],
        "hourly": ["skipped", "skipped", "skipped", "enqueued"],
        "twice": ["enqueued", "skipped", "skipped"],
        "off": ["skipped", "skipped", "skipped"],
    }.items():
        schedule = schedules.create(name, paused_at=ago(days=1) if name == "off" else None)
        for hour, outcome in enumerate(outcomes):
            schedules.run(schedule, outcome, ago(hours=9 - hour), job_id=900 + hour)


def slow_job() -> None:
    """A task that usually takes a second has a job of ten minutes; others are quick, rare or new."""
    for path, count in (("a.slow", 30), ("a.quick", 30), ("a.rare", 5)):
        JobStatFactory.create(minute=minute(90), task_path=path, done=count, run_histogram=classes(c10=count))
    runs = {"running": True, "worker": WorkerFactory.create(heartbeat_at=ago(hours=-1)).pk}
    since = (("a.slow", 610), ("a.slow", 130), ("a.quick", 40), ("a.rare", 600), ("a.new", 600))
    for pk, (path, seconds) in enumerate(since, 904):
        JobFactory.create(pk=pk, task_path=path, last_attempted_at=ago(seconds=seconds), **runs)


def pause_is_over() -> None:
    JobFactory.create(queue_name="mail")
    pause(queue="mail").__class__.objects.update(until=ago(seconds=1))


GROWS = "default grows: from 100 ready jobs to 500 within 10 min. 40 jobs/min arrive, and"


@pytest.mark.parametrize(
    ("happen", "problem"),
    [
        *((happen, None) for happen in (failing_seldom, partial(failing, 40), pause_is_over)),
        (silent, ("silent", "", "1 worker has sent no heartbeat for 1")),
        (lost, ("lost", "", "3 running jobs have lost their workers, and wait for recovery")),
        (failing, ("failures", "", "41 jobs failed in the last hour, 20 in the hour before")),
        (paused, ("paused", "mail", "mail: paused, and 2 jobs wait")),
        (all_paused, ("paused", "", "everything is paused")), (slow_job, ("slow_job", "", "Job ")),
        (skipping, ("skips", "", "nightly: its last 3 runs were skipped, the latest because of job 904")),
        (growing, ("grows", "default", GROWS)),
    ],
)  # fmt: skip
def test_what_a_person_wants_to_know(happen: Callable[[], None], problem: tuple[str, ...] | None) -> None:
    WorkerFactory.create()
    happen()
    found = full_health("default")
    assert [(each.kind, each.queue_name) for each in found.problems] == ([problem[:2]] if problem else [])
    assert all(each.text.startswith(problem[2]) for each in found.problems if problem)
    assert found.headline.startswith("1 problem" if problem else "Healthy: ")


def test_a_slow_job_is_named_with_what_is_usual() -> None:
    slow_job()
    [problem] = [each for each in full_health("default").problems if each.kind == "slow_job"]
    usual = "95% of its attempts end within 1.0 s"
    assert str(problem) == f"Job 904 of a.slow has run for 10 min; {usual}"
    fix = "To see what it is doing now: manage.py pgqueue stack 904"
    assert (problem.subject, problem.fix) == ("904", fix)


def test_problems_of_the_health_come_first() -> None:
    pause(queue="idle")
    JobFactory.create(queue_name="idle")
    JobStatFactory.create(minute=minute(5), failed=10)
    assert full_health("default").line == (
        "3 problems: no worker claims jobs; 10 jobs failed in the last hour, 0 in the hour before; "
        "idle: paused, and 1 job waits"
    )
    with override_settings(PGQUEUE={"HEALTH": {"*": {"workers": 0}, "wanted": {"workers": 1}}}):
        assert full_health("default").problems[0].text == "wanted: 0 workers serve it, at least 1 should"
