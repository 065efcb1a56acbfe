"""The models: what Django dumps can be loaded again, rows and sequences, and what a job refuses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.apps import apps
from django.core import serializers
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import connection, models
from django.utils import timezone

from django_pgqueue import enqueue
from django_pgqueue.models import (
    Edge,
    FailureCount,
    FailureGroup,
    FailureNote,
    Job,
    JobProgress,
    JobStat,
    Limit,
    Pause,
    RaisedAlert,
    Schedule,
    ScheduleRun,
    StatRollup,
    Step,
    UniqueWindow,
)
from django_pgqueue.models.fields import ArrayColumn
from django_pgqueue.models.job import JobStack
from django_pgqueue.models.queue import RateState
from tests.app.tasks import noop
from tests.receipts.models import Order, Receipt
from tests.support.factories import (
    ERROR,
    BatchFactory,
    JobFactory,
    JobStatFactory,
    QueueFactory,
    ScheduleFactory,
    WorkerFactory,
)
from tests.support.jobs import next_id

MODELS = list(apps.get_app_config("django_pgqueue").get_models())
FORMATS = ["json", "xml"]  # JSON Lines are written and read as JSON is


def make_a_row_of_every_model() -> None:
    now = timezone.now()
    batch = BatchFactory.create(name="über <&>")
    parent = JobFactory.create(args=[1, "ü\n<x>", None], kwargs={"a": {"b": [1.5]}}, batch=batch)
    child = JobFactory.create(parents=[parent])
    for state in ("scheduled", "retrying", "running", "done", "failed", "cancelled", "expired"):
        JobFactory.create(**{state: True})
    QueueFactory.create(retention=timedelta(days=3, microseconds=1))
    WorkerFactory.create(queues=["a", 'b,"c'], exclude_queues=[], started_jobs=[parent.pk])
    JobStatFactory.create()
    ScheduleFactory.create(live_jobs=[child.pk], every=timedelta(seconds=90), cron=None)
    ScheduleRun.objects.create(
        schedule=Schedule.objects.get(), run_at=now, job_id=child.pk, outcome="enqueued"
    )
    StatRollup.objects.create(
        span="hour", start=now, queue_name="q", task_path="a.b", done=1, failed=0, retried=0, cancelled=0,
        wait_histogram=[0, 2**40], run_histogram=[], wait_seconds=0.1, run_seconds=0,
    )  # fmt: skip
    Pause.objects.create(kind="queue", name="mail")
    Limit.objects.create(name="n", concurrency=3)
    RateState.objects.create(key="n/1", tat=now)
    UniqueWindow.objects.create(unique_key="k", job_id=parent.pk, until=now)
    FailureGroup.objects.create(
        fingerprint="f", error_class="E", message="m", traceback="t", sample_job=parent.pk, first_seen=now,
        last_seen=now, tasks=["a.b"], versions=["", "1.0"],
    )  # fmt: skip
    FailureCount.objects.create(
        span="hour", start=now, fingerprint="f", task_path="a.b", queue_name="q", version="1"
    )
    FailureNote.objects.create(
        fingerprint="f", task_path="a.b", queue_name="q", version="1", failed=1, retried=0, job_id=parent.pk,
        error_class="E", message="m", traceback="t",
    )  # fmt: skip
    RaisedAlert.objects.create(kind="look", text="t", raised_at=now)
    JobProgress.objects.create(job=parent, done=1, total=3, note="ü")
    JobStack.objects.create(job_id=parent.pk, lease=1, lines="File x")
    Step.objects.create(job_id=parent.pk, name="s", result=[1, {"a": None}])


def content(model: type[models.Model]) -> list[dict[str, Any]]:
    """Return the rows, with times as exact as JSON has them."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.replace(microsecond=value.microsecond // 1000 * 1000)
        return value

    rows = model._base_manager.order_by("pk").values(*[field.name for field in model._meta.concrete_fields])
    return [{name: plain(value) for name, value in row.items()} for row in rows]


def empty() -> None:
    """Empty the tables, as in a new database. The test is rolled back, and the sequences with it."""
    tables = ", ".join(model._meta.db_table for model in MODELS)
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(f"TRUNCATE {tables} RESTART IDENTITY")


@pytest.fixture
def dump(tmp_path: Path) -> Callable[..., str]:
    """Dump apps or models, and return the path of the file."""

    def dump(*labels: str, kind: str = "json") -> str:
        path = tmp_path / f"dump.{kind}"
        call_command("dumpdata", *labels, format=kind, output=str(path), verbosity=0)
        return str(path)

    return dump


def load(path: str) -> None:
    call_command("loaddata", path, verbosity=0)


@pytest.mark.django_db
@pytest.mark.promise("dumps")
def test_a_dump_of_every_model_can_be_loaded(dump: Callable[..., str]) -> None:
    """And new rows come after those that were loaded."""
    make_a_row_of_every_model()
    last = BatchFactory.create()
    before = {model: content(model) for model in MODELS}
    assert [model for model, rows in before.items() if not rows] == []
    for path in [dump("django_pgqueue", kind=kind) for kind in FORMATS]:
        empty()
        load(path)
        for model in MODELS:
            assert content(model) == before[model]
    # Django has set the sequence of the jobs to the last job, which is less.
    assert enqueue(noop).pk > last.pk
    assert BatchFactory.create().pk > last.pk
    Pause.objects.create(kind="queue", name="other")
    JobStatFactory.create(task_path="other")
    assert Edge.objects.count() == 1


#: Rows that name a job, also one that is no longer kept.
NAMING: dict[str, Callable[[int], dict[str, Any]]] = {
    "job": lambda named: {"pk": named, "fields": {"task_path": "a.b"}},
    "job in line": lambda named: {"pk": 7, "fields": {"task_path": "a.b", "wait_position": named}},
    "jobbatch": lambda named: {"pk": named, "fields": {}},
    "uniquewindow": lambda named: {"pk": 7, "fields": {"job_id": named, "until": "2030-01-01T00:00:00Z"}},
    "worker": lambda named: {"pk": 7, "fields": {
        "host": "h", "pid": 1, "slots": 1, "version": "1", "started_jobs": f"[{named}, 1]"}},
}  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("distance", [1, 1000, 1001, 10**12])
@pytest.mark.parametrize("row", NAMING)
@pytest.mark.promise("dumps-and-ids")
def test_ids_in_a_load_are_not_given_out_again(row: str, distance: int) -> None:
    named = next_id() + distance
    given = {"model": f"django_pgqueue.{row.split()[0]}", **NAMING[row](named)}
    (loaded,) = serializers.deserialize("python", [given])
    loaded.save()
    assert next_id() == named + 1


@pytest.mark.django_db
def test_a_load_does_not_set_the_sequence_back(dump: Callable[..., str]) -> None:
    JobFactory.create()
    path = dump("django_pgqueue.Job")
    before = next_id()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM pgqueue_job")
    load(path)
    assert next_id() == before + 1


@pytest.mark.django_db
def test_payloads_are_loaded_with_their_jobs(dump: Callable[..., str]) -> None:
    order = Order.objects.create()
    row = Receipt.objects.create(order=order, email="a@b.c")
    path = dump("django_pgqueue", "receipts")
    Receipt.objects.all().delete()
    empty()
    load(path)
    assert [*Job.objects.values_list("pk", flat=True)] == [row.pk]
    assert Receipt.objects.get().job_id == row.pk
    assert Receipt.objects.create(order=order, email="b@b.c").pk > row.pk


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_serialized_rollback_restores_the_queue() -> None:
    """What Django does around a test with ``serialized_rollback``."""
    make_a_row_of_every_model()
    managed = [model for model in MODELS if model._meta.managed]  # the others, a flush leaves alone
    before = {model: content(model) for model in managed}
    last = next_id()
    text = connection.creation.serialize_db_to_string()
    call_command("flush", verbosity=0, interactive=False, inhibit_post_migrate=True)
    connection.creation.deserialize_db_from_string(text)
    for model in managed:
        assert content(model) == before[model]
    assert next_id() >= last
    assert JobStat.objects.count() == 1


@pytest.mark.parametrize("text", ["", "a", "{}", "7", '"x"'])
def test_a_text_that_is_no_list_is_refused(text: str) -> None:
    field = ArrayColumn("bigint")
    field.name = "live_jobs"
    with pytest.raises(ValidationError, match=r"live_jobs: .* is not a list in JSON"):
        field.to_python(text)


# -- what a job says of itself, and the operations that it refuses

STATES = ["scheduled", "retrying", "running", "done", "failed", "cancelled"]


@pytest.mark.django_db
@pytest.mark.promise("only-the-queue-changes-jobs")
def test_a_job_is_neither_saved_nor_deleted() -> None:
    job = JobFactory.create()
    with pytest.raises(TypeError, match=r"job\.cancel\(\)"):
        job.save()
    job.refresh_from_db()
    with pytest.raises(TypeError, match="only the queue changes its state"):
        job.save()
    with pytest.raises(TypeError, match="RETENTION"):
        job.delete()
    assert Job.objects.filter(pk=job.pk, status="pending").exists()


@pytest.mark.django_db
@pytest.mark.parametrize("options", [{}, *({state: True} for state in STATES)])
def test_querysets_of_jobs_are_not_deleted(options: dict[str, bool]) -> None:
    jobs = Job.objects.filter(pk=JobFactory.create(**options).pk)
    for delete in (jobs.delete, jobs.all()[:1].delete, async_to_sync(jobs.adelete)):
        with pytest.raises(TypeError, match=r"cannot be deleted.*job\.cancel\(\).*RETENTION"):
            delete()
    assert jobs.exists()
    with pytest.raises(AttributeError):
        Job.objects.delete()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("attempts", "errors", "worker", "expected"),
    [
        (0, {}, None, []),
        (1, {}, 9, ["9"]),
        (2, {1: 7}, 9, ["7", "9"]),
        (2, {1: 7, 2: 8}, None, ["7", "8"]),
        # Twenty errors of forty attempts are kept, say: the list is as long as the attempts all the same.
        (5, {1: 7, 4: 8}, 9, ["7", "?", "?", "8", "9"]),
        # It was done at the first attempt, and retried by hand.
        (2, {}, 9, ["?", "9"]),
        (3, {2: 8}, 9, ["?", "8", "9"]),
    ],
)
def test_worker_ids_are_as_many_as_attempts(
    attempts: int, errors: dict[int, int], worker: int | None, expected: list[str]
) -> None:
    kept = [{**ERROR, "attempt": attempt, "worker": by} for attempt, by in errors.items()]
    assert JobFactory.build(attempts=attempts, errors=kept, worker=worker).worker_ids == expected
