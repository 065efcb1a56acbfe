"""Whether a queue is healthy, its health in one sentence, and how many workers its jobs want."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DataError, OperationalError
from django.test import RequestFactory, override_settings
from django.utils import timezone
from prometheus_client import generate_latest

from django_pgqueue import pause, views
from django_pgqueue.metrics import registry
from django_pgqueue.models import Job, JobStat
from django_pgqueue.monitoring import depth as depth_module, health as module
from django_pgqueue.monitoring.depth import Depth
from django_pgqueue.monitoring.health import Health, HealthProblem, full_health, health, read
from django_pgqueue.monitoring.workers import Crew, busy_text, scale_hint
from django_pgqueue.postgres.session import SUPERVISOR, connect as open_session
from django_pgqueue.postgres.timeout import TimeLimitReached
from tests.management.test_subcommands import run
from tests.support import schedules
from tests.support.databases import sharded
from tests.support.factories import JobFactory, JobStatFactory, WorkerFactory, ago
from tests.support.figures import classes
from tests.support.jobs import sql
from tests.support.waiting import until
from tests.test_metrics import scrape

pytestmark = pytest.mark.django_db(databases=["default", "other"])


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

    def within_a_minute() -> tuple[Health, float, float] | None:
        JobStat.objects.all().delete()
        stat = JobStatFactory.create(minute=minute(1), done=60_000)
        read_now = full_health("default"), read("default").per_second
        seconds = (timezone.now() - minute(1)).total_seconds()
        return (*read_now, seconds) if minute(1) == stat.minute else None

    found, rate, seconds = until(within_a_minute)
    assert found.is_healthy
    assert found.line.startswith("Healthy: 2 workers, ")
    assert found.line.endswith(" jobs/s, the oldest ready job waits 2 min")
    assert rate == pytest.approx(60_000 / seconds, rel=0.1)
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
        (growing, ("grows", "default", GROWS)),
    ],
)  # fmt: skip
def test_what_a_person_wants_to_know(happen: Callable[[], None], problem: tuple[str, ...] | None) -> None:
    """The other problems are on the overview, where `tests/admin/test_overview.py` has their words."""
    WorkerFactory.create()
    happen()
    found = full_health("default")
    assert [(each.kind, each.queue_name) for each in found.problems] == ([problem[:2]] if problem else [])
    assert all(each.text.startswith(problem[2]) for each in found.problems if problem)
    assert found.headline.startswith("1 problem" if problem else "Healthy: ")


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


# --- How many slots and workers the jobs want, for autoscalers: by SQL, command, view and metrics


def busy() -> None:
    """Jobs of mail take 3 s each; of another queue, nothing is known."""
    JobStatFactory.create(minute=timezone.now() - timedelta(minutes=5), queue_name="mail", done=9, failed=1,
                          run_seconds=30)  # fmt: skip
    JobFactory.create_batch(50, queue_name="mail", run_after=timezone.now() - timedelta(minutes=1))
    JobFactory.create_batch(2, queue_name="mail", running=True)
    JobFactory.create_batch(6, queue_name="other")
    JobFactory.create(queue_name="other", scheduled=True)


def test_the_slots_that_jobs_want() -> None:
    """Two run, 50 of 3 s are to run within a minute, and six of a second."""
    busy()
    hint = scale_hint("default", slots=2)
    slots = {row.queue_name: (row.ready, row.running, row.run_seconds, row.slots) for row in hint.queues}
    assert slots == {"mail": (50, 2, 3.0, 2 + 2.5), "other": (6, 0, 1.0, pytest.approx(0.1))}
    assert (hint.slots, hint.workers) == (5, 3)
    assert scale_hint("default", ["mail"], drain_within=10).slots == 17
    assert scale_hint("default", slots=2, most=2).workers == 2
    assert scale_hint("default", ["nothing"], least=1).workers == 1


def test_an_empty_queue_wants_nothing_and_a_single_job_wants_a_slot() -> None:
    assert scale_hint("default", slots=8).workers == 0
    JobFactory.create(scheduled=True)
    assert scale_hint("default").workers == 0, "nothing is due"
    JobStatFactory.create(done=1000, run_seconds=0)
    JobFactory.create()
    assert scale_hint("default", slots=8).workers == 1


def test_what_is_paused_wants_a_slot_only_while_it_runs() -> None:
    busy()
    pause(queue="mail")
    pause(queue="other")
    assert {row.queue_name: row.slots for row in scale_hint("default").queues} == {"mail": 2.0, "other": 0.0}
    pause(everything=True)
    assert scale_hint("default").slots == 2


def test_a_schedule_that_is_due_wakes_the_first_worker() -> None:
    """Without a worker, it does not fire, so its job would never be ready."""
    schedules.create("later")
    assert scale_hint("default").slots == 0
    schedules.overdue(name="nightly")
    assert scale_hint("default").slots == 1
    assert scale_hint("default", ["mail"]).slots == 0


@pytest.mark.parametrize("within", ["0", "-1 minute", None])
def test_a_span_that_cannot_be_right(within: str | None) -> None:
    with pytest.raises(DataError, match="must be longer than 0 seconds"):
        sql("SELECT pgqueue_wanted_slots(NULL, %s::interval)", within)


def get(path: str) -> Any:
    with override_settings(PGQUEUE={"MONITORING_TOKEN": "t" * 32}):
        return views.scale(RequestFactory().get(path, headers={"Authorization": f"Bearer {'t' * 32}"}))


def test_every_surface_says_the_same() -> None:
    busy()
    assert run("scale-hint", "--slots", "2").strip() == "3"
    document = json.loads(run("scale-hint", "--json", "--queue", "mail"))
    assert (document["workers"], document["queues"][0]["queue_name"]) == (5, "mail")
    assert run("scale-hint", "--max", "1", "--drain-within", "1h").strip() == "1"
    assert json.loads(get("/").content)["slots"] == 5
    assert json.loads(get("/?queue=other&drain_within=2").content)["slots"] == 3
    assert get("/?drain_within=x").status_code == get("/?drain_within=0").status_code == 400
    assert get("/?database=nowhere").status_code == 404
    assert views.scale(RequestFactory().get("/")).status_code == 401
    found = scrape("default")
    assert found["pgqueue_wanted_slots", "default", "mail"] == 4.5


def test_no_surface_gives_digits_of_more_jobs_than_are_counted() -> None:
    JobFactory.create(queue_name="other")
    sql("INSERT INTO pgqueue_job (task_path, queue_name) SELECT 'a.b', 'mail' FROM generate_series(1, 10001)")
    for document in (json.loads(run("scale-hint", "--json")), json.loads(get("/").content)):
        found = {row["queue_name"]: (row["ready"], row["more"]) for row in document["queues"]}
        assert found == {"mail": (10_000, ["ready"]), "other": (1, [])}


# --- What monitoring systems read of several shards


BOTH = ["default", "other"]


def look(view: Any, address: str = "/") -> Any:
    request = RequestFactory().get(address)
    request.user = User(is_staff=True, is_superuser=True)
    return view(request)


@pytest.mark.django_db(databases=BOTH)
def test_monitoring_reads_the_shards_that_answer_and_names_the_others_in_time() -> None:
    with sharded("down", "silent"):
        for alias in BOTH:
            WorkerFactory.build(id=5, host=alias, pid=7).save(using=alias, force_insert=True)
            Job.objects.using(alias).bulk_create([JobFactory.build(id=1, queue_name="mail")])
        began = monotonic()
        response = look(views.health)
        assert monotonic() - began < 4
        assert response.status_code == 503
        assert [line.split(": ")[:2] for line in response.content.decode().splitlines()] == [
            ["default", "healthy"], ["down", "unhealthy"], ["other", "healthy"], ["silent", "unhealthy"],
        ]  # fmt: skip
        assert look(views.health, "/?database=other").status_code == 200

        began = monotonic()
        text = generate_latest(registry()).decode()
        assert monotonic() - began < 4
        for alias, is_up in (("default", 1), ("other", 1), ("down", 0), ("silent", 0)):
            assert f'pgqueue_up{{database="{alias}"}} {is_up}.0' in text
            ready = f'pgqueue_jobs{{database="{alias}",queue="mail",state="ready"}}'
            assert (ready in text) == bool(is_up)

        document = json.loads(look(views.scale).content)
        assert [(row["queue_name"], row["ready"]) for row in document["queues"]] == [("mail", 2)]
        assert all(alias in document["unanswered"] for alias in ("down", "silent"))
        one = json.loads(look(views.scale, "/?database=other").content)
        assert ([row["ready"] for row in one["queues"]], "unanswered" in one) == ([1], False)
