from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.db import connections
from django.test import override_settings

from django_pgqueue import Unique, acancel, aenqueue, compat, enqueue, enqueue_many, task
from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.compat import (
    BaseTaskBackend,
    InvalidTask,
    InvalidTaskBackend,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
)
from django_pgqueue.exceptions import WrongBackend
from django_pgqueue.jobs import results
from django_pgqueue.models import Job
from django_pgqueue.tasks import links
from django_pgqueue.tasks.routing import IMPLICIT, implicit_backend, resolve
from django_pgqueue.tasks.task import Task
from tests.support.factories import ERROR, JobFactory
from tests.support.waiting import run

OURS = {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}
_DJANGO = compat.DjangoTask.__module__.removesuffix(".base")
_EXCEPTIONS: Any = import_module(f"{_DJANGO}.exceptions")
DUMMY = {"BACKEND": f"{_DJANGO}.backends.dummy.DummyBackend"}
NO_PRIORITY = {"BACKEND": f"{__name__}.NoPriorityBackend"}
IMMEDIATE = {"BACKEND": f"{_DJANGO}.backends.immediate.ImmediateBackend"}


class NoPriorityBackend(BaseTaskBackend):
    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any: ...


@task(queue_name="mail", metadata={"team": "shop"})
def send(order_id: int, *, note: str = "") -> str:
    return note


@task
async def sleepy(x: int) -> str:
    return str(x)


@task(backend="other")
def elsewhere(x: int) -> None: ...


@task
def plain(x: int) -> None: ...


@pytest.fixture
def plain_task(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A task of Django's own decorator on ``TASKS["default"]``, which is not ours."""
    with override_settings(TASKS={"default": DUMMY, "pg": OURS}):
        made = sys.modules[compat.DjangoTask.__module__].task(plain.func)
        monkeypatch.setattr(sys.modules[__name__], "plain", made)
        yield made


@pytest.mark.parametrize(("tasks", "alias"), [
    ({"default": OURS}, "default"), ({"a": OURS, "default": OURS}, "default"),
    ({"default": DUMMY, "b": OURS, "a": OURS}, "b"), ({"a": DUMMY, "b": OURS}, "b"),
    *(({"default": broken, "b": OURS}, "b")
      for broken in ({"BACKEND": "no.such.Backend"}, {"BACKEND": "django.core.mail.send_mail"}, {})),
    ({"default": DUMMY}, IMPLICIT), ({}, IMPLICIT),
])  # fmt: skip
def test_a_task_without_a_backend_goes_to_the_first_of_ours(tasks: dict[str, Any], alias: str) -> None:
    with override_settings(TASKS=tasks):
        assert send.get_backend().alias == alias
        assert send.get_backend() is send.get_backend()
    assert send.get_backend() is implicit_backend()


def test_an_unknown_backend() -> None:
    with pytest.raises(InvalidTaskBackend, match="other"):
        elsewhere.get_backend()
    with pytest.raises(InvalidTaskBackend, match="nowhere"):
        send.using(backend="nowhere")
    with override_settings(TASKS={"other": OURS}):
        assert elsewhere.get_backend() is task_backends["other"]


def test_a_subclass_is_ours_and_may_refuse_async_tasks() -> None:
    class SyncOnly(PgQueueBackend):
        supports_async_task = False

    SyncOnly("x", {}).validate_task(send)
    with pytest.raises(InvalidTask, match="does not support async"):
        SyncOnly("x", {}).validate_task(sleepy)
    for flag in ("supports_defer", "supports_async_task", "supports_get_result", "supports_priority"):
        assert getattr(PgQueueBackend, flag)


def test_bad_parameters_are_refused() -> None:
    """The checks say it in the same words: tests/checks."""
    reason = r"TASKS\['pg'\]\['OPTIONS'\] has no option 'databse'"
    with pytest.raises(ImproperlyConfigured, match=reason):
        PgQueueBackend("pg", {"OPTIONS": {"databse": "x"}})
    with (
        override_settings(TASKS={"pg": {**OURS, "OPTIONS": {"databse": "x"}}}),
        pytest.raises(ImproperlyConfigured, match=reason),
    ):
        resolve("pg")


@pytest.mark.django_db
def test_queues_that_are_declared_are_the_only_ones() -> None:
    with override_settings(TASKS={"default": {**OURS, "QUEUES": ["default", "slow"]}}):
        for refused in (
            lambda: send.enqueue(1),
            lambda: enqueue(send, 1),
            lambda: send.using(queue_name="fast"),
        ):
            with pytest.raises(InvalidTask, match=r"is not valid for backend.*declares default, slow"):
                refused()
        assert enqueue(send.using(queue_name="slow"), 1).queue_name == "slow"
    assert enqueue(send, 1).queue_name == "mail"


@pytest.mark.django_db
def test_enqueue_gives_a_result() -> None:
    result = send.enqueue(5, note="x")
    job = Job.objects.get()
    assert (result.id, result.task, result.enqueued_at) == (str(job.pk), send, job.enqueued_at)
    assert (result.status, result.backend, result.is_finished) == (TaskResultStatus.READY, IMPLICIT, False)
    assert (result.args, result.kwargs) == (job.args, job.kwargs) == ([5], {"note": "x"})
    assert (result.started_at, result.finished_at, result.last_attempted_at) == (None, None, None)
    assert (result.errors, result.worker_ids, result.attempts) == ([], [], 0)


@pytest.mark.django_db
def test_get_result_finds_the_same() -> None:
    result = send.using(priority=5, metadata={"why": "late"}).enqueue(5)
    found: Any = send.get_result(result.id)
    assert found == result
    assert found.task.metadata == {"team": "shop", "why": "late"}
    assert send.get_result(send.enqueue(5).id).task == send
    result.refresh()
    assert found == result
    at = datetime(2040, 1, 1, tzinfo=UTC)
    assert send.get_result(send.using(run_after=at).enqueue(1).id).task.run_after == at
    delayed: Any = send.get_result(send.using(run_after=timedelta(hours=1)).enqueue(1).id)
    assert delayed.task.run_after == delayed.enqueued_at + timedelta(hours=1)


@pytest.mark.django_db
def test_a_result_does_not_fail_when_queues_changed() -> None:
    result = send.enqueue(1)
    with override_settings(TASKS={"default": {**OURS, "QUEUES": ["default"]}}):
        assert task_backends["default"].get_result(result.id).task.queue_name == "mail"


@pytest.mark.django_db
@pytest.mark.parametrize(
    "bad",
    [
        "", "x", "-1", "0", "5.0", "\u0661", " 5", "5 ", "5:", ":5", "other:x", "no such:5", "9" * 19,
        "9" * 5000,
    ],
)  # fmt: skip
def test_what_is_no_id(bad: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        send.get_result(bad)


@pytest.mark.django_db
def test_a_job_that_is_not_there() -> None:
    for missing in ("5", 5, str(2**63 - 1)):
        with pytest.raises(TaskResultDoesNotExist, match="does not exist, or was deleted"):
            send.get_result(missing)  # type: ignore[arg-type]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("no_such_module.run", "exists, but no task 'no_such_module.run'"),
        ("tests.test_backend.gone", "exists, but no task"),
        ("tests.test_backend.run", r"is not a task \(its type is function\)"),
    ],
)
def test_a_job_whose_task_is_not_there(path: str, reason: str) -> None:
    job = enqueue(send, 1)
    Job.objects.filter(pk=job.pk).update(task_path=path)
    with pytest.raises(TaskResultDoesNotExist, match=reason):
        send.get_result(str(job.pk))


ELSEWHERE = {**OURS, "OPTIONS": {"database": "other"}}


@pytest.mark.django_db(databases=["default", "other"])
@override_settings(TASKS={"default": OURS, "second": OURS, "elsewhere": ELSEWHERE})
def test_an_id_means_the_same_job_whichever_backend_is_asked() -> None:
    results = {
        "here": send.enqueue(1),
        "second": send.using(backend="second").enqueue(2),
        "there": send.using(backend="elsewhere").enqueue(3),
        "there by task": send.using(database="other").enqueue(4),
        "here by task": send.using(backend="elsewhere", database="default").enqueue(5),
    }
    there = {job.args[0]: job.pk for job in Job.objects.using("other").all()}
    assert results["there"].id == f"other:{there[3]}"
    assert results["there by task"].id == f"other:{there[4]}"
    assert {job.args[0] for job in Job.objects.all()} == {1, 2, 5}
    assert len({result.id for result in results.values()}) == len(results)
    for result in results.values():
        for backend in ("default", "second", "elsewhere"):
            found: Any = task_backends[backend].get_result(result.id)
            assert (found.id, found.args) == (result.id, result.args)
            assert found.backend == backend
            assert found.task.backend == (IMPLICIT if backend == "default" else backend)
            found.refresh()
            assert found.args == result.args
            # What it was enqueued with, so that a second call goes to the same database.
            again = found.task.enqueue(6)
            assert again.id.rpartition(":")[0] == result.id.rpartition(":")[0]


@pytest.mark.django_db(databases=["default", "other"])
def test_the_number_of_a_job_in_another_database_is_no_id_of_it() -> None:
    number = send.using(database="other").enqueue(1).id.removeprefix("other:")
    with (
        override_settings(TASKS={"default": ELSEWHERE}),
        pytest.raises(TaskResultDoesNotExist, match=f"Job '{number}' does not exist"),
    ):
        send.get_result(number)


def test_an_id_of_a_database_that_is_not_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections["default"], "vendor", "sqlite")
    with pytest.raises(TaskResultDoesNotExist, match="'default', which has no jobs because it is not"):
        send.get_result("5")


def test_every_status_has_one_of_djangos() -> None:
    ready, running = TaskResultStatus.READY, TaskResultStatus.RUNNING
    assert {
        "pending": ready, "retry": ready, "blocked": ready, "running": running,
        "done": TaskResultStatus.SUCCESSFUL, "failed": TaskResultStatus.FAILED,
        "cancelled": TaskResultStatus.FAILED,
    } == results._STATUSES  # fmt: skip
    assert results._STATUSES.keys() == {str(status) for status in Job.Status}


def test_the_result_of_a_job_that_failed() -> None:
    job = JobFactory.build(failed=True, errors=[ERROR, ERROR], attempts=2)
    result = results.task_result(job, send, "pg")
    assert (result.status, result.attempts, result.backend) == (TaskResultStatus.FAILED, 2, "pg")
    assert result.is_finished
    assert [error.exception_class_path for error in result.errors] == [ERROR["class"]] * 2
    assert result.errors[1].traceback == ERROR["traceback"]
    with pytest.raises(ValueError, match="failed"):
        result.return_value  # noqa: B018


def test_the_task_of_a_retried_job_does_not_claim_a_start_time() -> None:
    job = JobFactory.build(retrying=True, attempts=1)
    backend = PgQueueBackend("pg", {})
    assert backend._task_of(job, send).run_after is None
    job.attempts = 0
    assert backend._task_of(job, send).run_after == job.run_after


def test_public_ids() -> None:
    for public, parsed in (("5", ("default", 5)), ("other:5", ("other", 5)), ("a:b:5", ("a:b", 5))):
        assert links.parse_id(public) == parsed
        assert links.public_id(parsed[1], parsed[0]) == public
    assert len(links.public_id(2**63 - 1, "x" * links.LONGEST_ALIAS)) == 63, "shorter than 64 characters"


@pytest.mark.django_db
@pytest.mark.parametrize("place", ["on ours", "on another backend"])
def test_a_task_of_djangos_own_decorator_takes_a_delay(
    place: str, plain_task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Django documents this, but its own validation raises AttributeError."""
    if place == "on ours":
        with override_settings(TASKS={"default": OURS, "pg": OURS}):
            plain_task = sys.modules[compat.DjangoTask.__module__].task(plain.func)
            monkeypatch.setattr(sys.modules[__name__], "plain", plain_task)
    with pytest.raises(InvalidTask, match="run_after must be"):
        plain_task.using(backend="pg", run_after=5)
    delayed = plain_task.using(backend="pg", run_after=timedelta(hours=1))
    assert delayed.run_after in (None, timedelta(hours=1))
    for result in (delayed.enqueue(1), async_to_sync(delayed.aenqueue)(1)):
        job = Job.objects.get(pk=result.id)
        assert job.run_after - job.enqueued_at == timedelta(hours=1)


def test_another_backend_validates_every_variant_of_our_tasks() -> None:
    with override_settings(TASKS={"other": NO_PRIORITY}):
        assert elsewhere.using(metadata={"a": 1}).metadata == {"a": 1}
        with pytest.raises(InvalidTask, match="does not support setting priority"):
            elsewhere.using(priority=10)


@task(unique=Unique(window=timedelta(hours=1)))
def once(x: int) -> None: ...


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_no_async_method_uses_the_database_on_the_event_loop() -> None:
    """Django raises SynchronousOnlyOperation for that."""

    async def go() -> None:
        first = await once.aenqueue(1)
        assert first.task is once
        assert await once.aget_result(first.id) == first
        assert (await aenqueue(sleepy, 2)).args == [2]
        with pytest.raises(TaskResultDoesNotExist):
            await sleepy.aget_result("nonsense")
        again = await once.aenqueue(1)  # the same job
        there = await sleepy.using(database="other").aenqueue(1)
        assert again.id == first.id
        await sync_to_async(_forget)(first.id)
        assert (await once.aenqueue(1)).id == first.id  # only its id is known
        with pytest.raises(TaskResultDoesNotExist):
            await first.arefresh()
        await there.arefresh()
        found = await sleepy.aget_result(there.id)
        assert found.args == [1]
        with pytest.raises(_EXCEPTIONS.TaskResultMismatch):
            await once.aget_result(there.id)
        assert await acancel(there) == 1
        with pytest.raises(SynchronousOnlyOperation):
            there.refresh()

    run(go())


def _forget(job_id: str) -> None:
    """Drop a job, as its retention does, but keep the window of its key."""
    Job.objects.filter(pk=job_id)._raw_delete("default")


@pytest.mark.django_db
def test_a_plain_task_of_django_goes_to_our_backend_by_using(plain_task: Any) -> None:
    assert not isinstance(plain_task, Task)
    with pytest.raises(TypeError, match=r"^tests\.test_backend\.plain\(\) got an unexpected .* 'y'$"):
        plain_task.using(backend="pg").enqueue(1, y=2)
    result = plain_task.using(backend="pg", priority=5).enqueue(1)
    job = Job.objects.get()
    assert (job.priority, job.max_attempts, job.task_path) == (5, 1, "tests.test_backend.plain")
    found = task_backends["pg"].get_result(result.id)
    assert found.task.backend == "pg"
    assert found.task.func is plain_task.func
    assert enqueue(plain_task.using(backend="pg"), 1).max_attempts == 1


@pytest.mark.django_db
def test_our_functions_refuse_a_task_of_another_backend(plain_task: Any) -> None:
    with pytest.raises(WrongBackend, match="'default'"):
        enqueue(plain_task, 1)
    with pytest.raises(WrongBackend, match="'default'"):
        enqueue(send.using(backend="default", queue_name="default"), 1)
    with pytest.raises(WrongBackend, match="'default'"):
        enqueue_many([send.using(backend="default", queue_name="default").bind(1)])
    assert not Job.objects.exists()


def test_our_task_on_another_backend_keeps_its_delay() -> None:
    with override_settings(TASKS={"default": {**DUMMY, "QUEUES": []}, "now": {**IMMEDIATE, "QUEUES": []}}):
        delayed = send.using(backend="default", run_after=timedelta(hours=1))
        result = delayed.enqueue(1)
        assert result.task.run_after is not None
        assert abs(result.task.run_after - datetime.now(UTC) - timedelta(hours=1)) < timedelta(minutes=5)
        with pytest.raises(InvalidTask, match="does not support run_after"):
            delayed.using(backend="now")
        assert send.using(backend="now").enqueue(1, note="x").return_value == "x"
    with override_settings(TASKS={"default": DUMMY}), pytest.raises(InvalidTask, match="Queue 'mail'"):
        send.using(backend="default")  # it validates its tasks itself
