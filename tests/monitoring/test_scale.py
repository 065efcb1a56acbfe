"""How many slots and workers the jobs want, for autoscalers: by SQL, command, view and metrics."""

from __future__ import annotations

import json
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DataError
from django.test import RequestFactory, override_settings
from django.utils import timezone
from prometheus_client import generate_latest

from django_pgqueue import pause, views
from django_pgqueue.metrics import registry
from django_pgqueue.models import Job
from django_pgqueue.monitoring.workers import scale_hint
from tests.management.test_subcommands import run
from tests.support import schedules
from tests.support.databases import sharded
from tests.support.factories import JobFactory, JobStatFactory, WorkerFactory
from tests.support.jobs import sql
from tests.test_metrics import scrape

pytestmark = pytest.mark.django_db


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
