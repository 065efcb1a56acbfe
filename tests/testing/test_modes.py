"""Immediate mode and dummy mode: each way to enqueue obeys, and all options are accepted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync
from django.conf import global_settings
from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError, connection, transaction
from django.test import SimpleTestCase, TestCase

from django_pgqueue import Batch, aenqueue, aenqueue_many, chain, enqueue, enqueue_many
from django_pgqueue.checks.backends import default_elsewhere
from django_pgqueue.compat import TaskResultDoesNotExist, TaskResultStatus
from django_pgqueue.models import Job
from django_pgqueue.tasks import routing
from django_pgqueue.tasks.routing import default_backend
from django_pgqueue.testing import (
    DummyBackend,
    ImmediateBackend,
    assert_enqueued,
    assert_not_enqueued,
    dummy_jobs,
    enqueued,
    immediate_jobs,
    run_jobs,
)
from tests.app import inline_tasks as tasks
from tests.app.models import Entry

see = tasks.see

WAYS: dict[str, Callable[[Any], Any]] = {
    "enqueue": lambda value: enqueue(see, value),
    "aenqueue": lambda value: async_to_sync(aenqueue)(see, value),
    "enqueue_many": lambda value: enqueue_many([see.bind(value)]),
    "aenqueue_many": lambda value: async_to_sync(aenqueue_many)([see.bind(value)]),
    "task.enqueue": see.enqueue,
    "task.aenqueue": lambda value: async_to_sync(see.aenqueue)(value),
}
in_each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
OPTIONS: dict[str, Any] = {
    "priority": 3, "queue_name": "mail", "metadata": {"a": 1}, "group_key": "acme", "limit_key": "k",
    "unique_key": "u", "database": "default",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    tasks.SEEN.clear()


@pytest.mark.django_db
@in_each_way
def test_immediate_mode_runs_the_job_with_its_row(way: Callable[[Any], Any]) -> None:
    with immediate_jobs():
        way(1)
        assert tasks.SEEN == [1]
        assert Job.objects.get().status == "done"
    way(2)
    assert tasks.SEEN == [1]


@pytest.mark.django_db
def test_what_enqueue_returns_shows_how_the_job_ended(immediate_jobs: None) -> None:
    result: Any = enqueue(tasks.describe, 7).result
    assert result["seven"] == 7
    assert tasks.describe.enqueue(7).status == TaskResultStatus.SUCCESSFUL


@pytest.mark.django_db
@pytest.mark.parametrize("mode", [immediate_jobs, dummy_jobs])
def test_all_options_are_accepted(mode: Any) -> None:
    with mode():
        job = enqueue(see.using(**OPTIONS), 1)
        later = enqueue(see.using(run_after=timedelta(hours=1)), 2)
    assert (job.priority, job.queue_name, job.metadata, job.group_key) == (3, "mail", {"a": 1}, "acme")
    assert (job.limit_key, job.unique_key) == ("tests.app.inline_tasks.see/k", "u")
    assert later.status == "pending"
    assert later.run_after - later.enqueued_at == timedelta(hours=1)
    assert ([1] if mode is immediate_jobs else []) == tasks.SEEN


@pytest.mark.django_db
def test_a_failure_is_raised_where_the_job_is_enqueued_or_stored_only() -> None:
    with immediate_jobs(), pytest.raises(tasks.Fatal):
        enqueue(tasks.end, "fail")
    with immediate_jobs(raise_failures=False):
        assert enqueue(tasks.end, "fail").status == "failed"
    assert [job.status for job in Job.objects.all()] == ["failed", "failed"]


def roll_back() -> None:
    with transaction.atomic():
        enqueue(see, "rolled back")
        raise ZeroDivisionError


@pytest.mark.parametrize("kind", [
    pytest.param(1, marks=pytest.mark.django_db, id="in a TestCase"),
    pytest.param(2, marks=pytest.mark.django_db(transaction=True), id="autocommit"),
])  # fmt: skip
def test_jobs_run_at_the_commit(kind: int) -> None:
    with immediate_jobs():
        with transaction.atomic():
            with transaction.atomic():
                job = enqueue(tasks.count_entries)
            Entry.objects.create(key="written after the enqueue")
            assert (job.status, tasks.SEEN) == ("pending", [])
        assert tasks.SEEN == [1]
        job.refresh_from_db()
        assert job.status == "done"
        with pytest.raises(ZeroDivisionError):
            roll_back()
        with transaction.atomic():
            with pytest.raises(ZeroDivisionError):
                roll_back()
            enqueue(see, 2)
        assert tasks.SEEN == [1, 2]
        with pytest.raises(tasks.Fatal), transaction.atomic():
            enqueue(tasks.end, "fail")
    assert "savepoint_commit" not in connection.__dict__


@pytest.mark.django_db
def test_a_block_without_a_savepoint_is_a_transaction_as_well(immediate_jobs: None) -> None:
    with transaction.atomic(savepoint=False):
        with transaction.atomic():
            enqueue(see, 1)
        with transaction.atomic(savepoint=False):
            enqueue(see, 2)
        assert tasks.SEEN == []
    assert tasks.SEEN == [1, 2]
    with pytest.raises(tasks.Fatal), transaction.atomic(savepoint=False):
        enqueue(tasks.end, "fail")
    enqueue(see, 3)
    with pytest.raises(ZeroDivisionError):
        transaction.atomic(savepoint=False)(roll_back)()
    assert connection.needs_rollback, "Django cannot undo such a block"
    assert tasks.SEEN == [1, 2, 3]


@pytest.mark.django_db
@pytest.mark.parametrize("savepoint", [True, False])
def test_an_error_of_the_database_at_the_commit_does_not_break_the_test(
    savepoint: bool, immediate_jobs: None
) -> None:
    @transaction.atomic(savepoint=savepoint)
    def commit() -> None:
        Entry.objects.create(key="committed")
        enqueue(tasks.violate)

    with pytest.raises(IntegrityError):
        commit()
    assert Entry.objects.get().key == "committed"
    assert "savepoint_commit" not in connection.__dict__
    assert "savepoint_rollback" not in connection.__dict__
    with pytest.raises(ZeroDivisionError):
        roll_back()


@pytest.mark.django_db
def test_jobs_may_run_before_the_commit() -> None:
    with immediate_jobs(at_once=True), transaction.atomic():
        enqueue(see, 1)
        assert tasks.SEEN == [1]
    with immediate_jobs(at_once=True, raise_failures=False), transaction.atomic():
        assert enqueue(tasks.end, "fail").status == "failed"


@pytest.mark.django_db
def test_jobs_of_jobs_run_as_well(immediate_jobs: None) -> None:
    enqueue(tasks.see_and_enqueue, 3)
    enqueue(tasks.enqueue_atomically, "inner")
    assert {job.status for job in Job.objects.all()} == {"done"}
    assert tasks.SEEN == ["at the end of the block", "inner"]


@in_each_way
def test_dummy_mode_keeps_jobs_in_memory(way: Callable[[Any], Any], dummy_jobs: list[Job]) -> None:
    with enqueued() as jobs:
        way(1)
    assert [job.args for job in dummy_jobs] == [[1]]
    assert jobs == dummy_jobs
    assert assert_enqueued(see, args=[1], run_after=None) is dummy_jobs[0]
    assert_not_enqueued(see, args=[2])
    assert tasks.SEEN == []


def test_results_of_dummy_mode(dummy_jobs: list[Job]) -> None:
    result = see.using(queue_name="mail").enqueue(1)
    assert result.status == TaskResultStatus.READY
    result.refresh()
    assert see.get_result(result.id).task.queue_name == "mail"
    with pytest.raises(TaskResultDoesNotExist, match="dummy mode"):
        see.get_result("999999")


def test_calls_are_checked_in_dummy_mode_too(dummy_jobs: list[Job]) -> None:
    with pytest.raises(TypeError):
        enqueue(see)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="JSON"):
        enqueue(see, object())
    with pytest.raises(TypeError):
        enqueue_many([see.bind(1), see.bind(object())])
    assert dummy_jobs == []


@dummy_jobs()
class OfAClass(SimpleTestCase):
    def test_a_class_is_decorated(self) -> None:
        enqueue(see, 1)
        assert_enqueued(see, count=1)

    def test_each_test_begins_without_jobs(self) -> None:
        assert_not_enqueued(see)


@immediate_jobs()
class WithData(TestCase):
    job: Job

    @classmethod
    def setUpTestData(cls) -> None:
        super().setUpTestData()
        assert cls is WithData
        with transaction.atomic():
            cls.job = enqueue(see, "data")

    def test_jobs_of_the_data_have_run(self) -> None:
        self.job.refresh_from_db()
        assert self.job.status == "done"


class OfAMethod(TestCase):
    @immediate_jobs()
    def test_a_method_is_decorated(self) -> None:
        enqueue(see, 1)
        assert tasks.SEEN == [1]

    @immediate_jobs()
    async def test_an_async_method_is_decorated(self) -> None:
        await aenqueue(see, 1)
        assert tasks.SEEN == [1]

    def test_others_are_not(self) -> None:
        enqueue(see, 1)
        assert tasks.SEEN == []


@pytest.mark.parametrize(("path", "backend"), [
    ("django_pgqueue.testing.DummyBackend", DummyBackend),
    ("django_pgqueue.testing.ImmediateBackend", ImmediateBackend),
    ("{django}.backends.dummy.DummyBackend", DummyBackend),
    ("{django}.backends.immediate.ImmediateBackend", ImmediateBackend),
])  # fmt: skip
def test_tasks_is_obeyed(
    path: str, backend: type[Any], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django_pgqueue.compat import BaseTaskBackend

    django = BaseTaskBackend.__module__.partition(".backends")[0]
    settings.TASKS = {"default": {"BACKEND": path.format(django=django)}}
    made = default_backend()
    assert type(made) is backend
    assert type(see.get_backend()) is backend
    if isinstance(made, DummyBackend):
        enqueue(see, 1)
        made.clear()
        assert_not_enqueued(see)
    if "django_pgqueue" not in path:
        from django.test.utils import _TestState

        with monkeypatch.context() as patch:
            patch.delattr(_TestState, "saved_data")
            assert type(default_backend()).__name__ == "PgQueueBackend", "outside of tests nothing changes"


@pytest.mark.skipif(django.VERSION < (6, 0), reason="Django has no TASKS")
def test_tasks_with_the_value_of_django_are_not_set(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """django-configurations overrides each setting that the project does not set with that of Django."""
    settings.TASKS = global_settings.TASKS
    monkeypatch.setattr(routing, "_default", None)
    assert type(default_backend()).__name__ == "PgQueueBackend"
    (message,) = default_elsewhere()
    assert "TASKS is not set" in message.msg


def test_a_backend_of_ours_is_preferred_to_a_stand_in(settings: Any) -> None:
    settings.TASKS = {
        "default": {"BACKEND": "django_pgqueue.compat.DjangoTask"},
        "queue": {"BACKEND": "django_pgqueue.backend.PgQueueBackend"},
    }
    assert type(default_backend()).__name__ == "PgQueueBackend"


def test_queues_and_options_stay_and_modes_nest(settings: Any) -> None:
    entry = {
        "BACKEND": "django_pgqueue.backend.PgQueueBackend",
        "QUEUES": ["mail"],
        "OPTIONS": {"database": "other"},
    }
    settings.TASKS = {"default": entry}
    with dummy_jobs():
        assert type(default_backend()) is DummyBackend
        assert default_backend().queues == {"mail"}
        assert default_backend().home() == "other"
        with immediate_jobs():
            assert isinstance(default_backend(), ImmediateBackend)
        assert type(default_backend()) is DummyBackend
    assert {"default": entry} == settings.TASKS


@pytest.mark.django_db
def test_options_of_the_backend_for_all_tests(settings: Any) -> None:
    backend = "django_pgqueue.testing.ImmediateBackend"
    settings.TASKS = {"default": {"BACKEND": backend, "OPTIONS": {"at_once": True, "raise_failures": False}}}
    with transaction.atomic():
        job = enqueue(tasks.end, "raise")
        assert Job.objects.get(pk=job.pk).attempts == 1  # not at the commit, and the failure is only stored
    with dummy_jobs() as kept:  # a mode replaces them
        enqueue(tasks.end, "raise")
        assert len(kept) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [({"at_once": "yes"}, "at_once must be True or False"), ({"at_onse": True}, "Did you mean 'at_once'")],
)
def test_bad_options_are_refused(settings: Any, options: dict[str, Any], words: str) -> None:
    backend = "django_pgqueue.testing.ImmediateBackend"
    settings.TASKS = {"default": {"BACKEND": backend, "OPTIONS": options}}
    with pytest.raises(ImproperlyConfigured, match=words):
        default_backend()


# --- Jobs that wait for others, and batches


@pytest.mark.django_db
@pytest.mark.parametrize("at_once", [False, True])
def test_immediate_mode_goes_through_jobs_that_wait(at_once: bool) -> None:
    with immediate_jobs(at_once=at_once):
        with Batch("import") as batch:
            enqueue(tasks.see.using(after=batch), "last")
            enqueue(tasks.see.using(after=batch, if_failed="run"), "any end")
            first, _ = chain([tasks.see.using(batch=batch).bind(1), tasks.see.using(batch=batch).bind(2)])
            batch.add([tasks.see.bind(3)])
        assert tasks.SEEN == [1, 2, 3, "last", "any end"]
        batch.refresh()
        assert (batch.outcome, batch.counts()) == ("done", (3, 3, 0, 0))
        enqueue(tasks.see.using(after=first), "at once")
        assert tasks.SEEN[-1] == "at once"
        waiting = Batch.open()
        enqueue(tasks.see.using(batch=waiting, run_after=timedelta(hours=1)), 4)
        enqueue(tasks.see.using(after=waiting, if_failed="run"), "after the cancel")
        assert tasks.SEEN[-1] == "at once"
        assert waiting.cancel() == 1
        assert tasks.SEEN[-1] == "after the cancel"


@pytest.mark.django_db
def test_immediate_mode_leaves_what_was_due_before() -> None:
    before = enqueue(tasks.see, 1)
    child = enqueue(tasks.see.using(after=before), 2)
    run_jobs(limit=1)
    with immediate_jobs():
        enqueue_many([see.bind(3), see.bind(4)])
    assert tasks.SEEN == [1, 3, 4]
    assert [ran.id for ran in run_jobs()] == [child.pk]
