"""What enqueue does with a call whose unique key is taken."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.dispatch import receiver
from django.test.utils import CaptureQueriesContext

from django_pgqueue import (
    JobExists,
    Unique,
    aenqueue,
    aenqueue_many,
    cancel,
    enqueue,
    enqueue_many,
    retry,
    send_event,
)
from django_pgqueue.compat import TaskResultStatus, task_enqueued
from django_pgqueue.exceptions import InvalidKey
from django_pgqueue.jobs import enqueue as module
from django_pgqueue.models import Job, Queue, UniqueWindow
from django_pgqueue.models.job import Step
from tests.app.tasks import noop
from tests.app.unique_tasks import index, once, own_key, refresh, remind, render, sync
from tests.support.coroutines import run
from tests.support.workers import fresh, until, working

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def sql(query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, parameters or None)
        return cursor.fetchall() if cursor.description else []


def begin(job: Job) -> None:
    """Let a worker start the job."""
    sql(
        "UPDATE pgqueue_job_live SET status = 'running', attempts = attempts + 1, worker = 1, lease = 1"
        " WHERE id = %s", job.pk,
    )  # fmt: skip


def end(job: Job, outcome: str = "done") -> None:
    sql(
        "SELECT accepted FROM _pgqueue_finish(ARRAY[%s::bigint], ARRAY[1::bigint], ARRAY[%s], NULL, NULL,"
        " NULL, NULL, NULL, NULL, NULL, 20)", job.pk, outcome,
    )  # fmt: skip


def outcomes(*jobs: Job) -> list[str | None]:
    return [job.enqueue_outcome for job in jobs]


def test_a_job_without_a_key_is_created_each_time() -> None:
    assert outcomes(enqueue(noop, 1), enqueue(noop, 1)) == ["created", "created"]
    assert Job.objects.filter(unique_key=None, unique_scope=None).count() == 2


def test_the_key_and_its_scope_are_in_the_row() -> None:
    job = enqueue(index, 7)
    assert Job.objects.filter(pk=job.pk).values().get() == {
        field.name: getattr(job, field.name) for field in Job._meta.concrete_fields
    }
    assert (job.unique_key, job.unique_scope) == ("tests.app.unique_tasks.index/7", "waiting")
    assert Job.objects.get(pk=job.pk).enqueue_outcome is None


@pytest.mark.parametrize("status", ["pending", "retry", "blocked"])
def test_a_job_that_waits_is_returned_as_it_is(status: str) -> None:
    first = enqueue(index.using(priority=5), 7, force=True)
    sql("UPDATE pgqueue_job_live SET status = %s WHERE id = %s", status, first.pk)
    second = enqueue(index, 7)
    assert outcomes(first, second) == ["created", "existing"]
    assert second.pk == first.pk
    assert (second.status, second.priority, second.args, second.kwargs) == (status, 5, [7], {"force": True})
    assert second._state.db == "default"
    assert enqueue(index, 8).enqueue_outcome == "created"


def test_scope_waiting_ends_when_the_job_starts() -> None:
    first = enqueue(index, 7)
    begin(first)
    second = enqueue(index, 7)
    assert outcomes(second) == ["created"]
    assert enqueue(index, 7).pk == second.pk


def test_scope_live_ends_when_the_job_is_over() -> None:
    first = enqueue(sync, 7)
    begin(first)
    second = enqueue(sync, 7)
    assert (second.pk, second.enqueue_outcome, second.status) == (first.pk, "existing", "running")
    end(first, "retry")
    assert enqueue(sync, 7).pk == first.pk
    begin(first)
    end(first)
    assert outcomes(enqueue(sync, 7)) == ["created"]


@pytest.mark.parametrize("unique_task", [index, sync])
def test_a_cancelled_job_frees_its_key(unique_task: Any) -> None:
    first = enqueue(unique_task, 7)
    cancel(first)
    assert outcomes(enqueue(unique_task, 7)) == ["created"]


def test_scopes_do_not_see_each_other_and_tasks_share_a_key_of_the_call() -> None:
    first = enqueue(noop.using(unique_key="k"), 1)
    assert outcomes(enqueue(noop.using(unique=Unique(name="k", key=(), scope="live")), 1)) == ["created"]
    second = enqueue(index.using(unique_key="k"), 1)
    assert (second.pk, second.task_path) == (first.pk, "tests.app.tasks.noop")


def test_a_window_counts_from_the_enqueue_whatever_becomes_of_the_job() -> None:
    first = enqueue(remind, 7)
    (window,) = UniqueWindow.objects.all()
    assert (window.unique_key, window.job_id) == (first.unique_key, first.pk)
    assert window.until == first.enqueued_at + HOUR
    begin(first)
    second = enqueue(remind, 7)
    assert (second.pk, second.enqueue_outcome, second.status) == (first.pk, "existing", "running")
    end(first)
    second = enqueue(remind, 7)
    assert (second.pk, second.enqueue_outcome, second.status) == (first.pk, "existing", "done")
    UniqueWindow.objects.update(until=first.enqueued_at)
    third = enqueue(remind, 7)
    assert outcomes(third) == ["created"]
    assert UniqueWindow.objects.get().job_id == third.pk
    cancel(third)
    assert enqueue(remind, 7).status == "cancelled"


def test_a_job_that_still_waits_after_its_window_holds_its_key() -> None:
    first = enqueue(remind, 7)
    UniqueWindow.objects.update(until=first.enqueued_at)
    second = enqueue(remind, 7)
    assert (second.pk, second.enqueue_outcome) == (first.pk, "existing")
    # No job was enqueued with it, so there is no window.
    assert not UniqueWindow.objects.exists()


def test_only_the_id_is_known_of_a_job_that_is_not_kept_within_its_window() -> None:
    Queue.objects.create(name="default", retention=timedelta(0))
    first = enqueue(remind, 7)
    begin(first)
    end(first)
    second = enqueue(remind, 7)
    assert (second.pk, second.enqueue_outcome) == (first.pk, "existing")
    with pytest.raises(Job.DoesNotExist):
        _ = second.status
    result = remind.enqueue(7)
    assert (result.id, result.status) == (str(first.pk), TaskResultStatus.SUCCESSFUL)


def test_replace_gives_the_waiting_job_everything_but_its_id_and_history() -> None:
    first = enqueue(render.using(run_after=HOUR, priority=3, metadata={"a": 1}), 7, "old")
    sql(
        "UPDATE pgqueue_job_live SET status = 'retry', attempts = 2, crash_count = 1, lost_in_a_row = 1,"
        " errors = '[{}, {}]', waiting_reason = 'why' WHERE id = %s", first.pk,
    )  # fmt: skip
    second = enqueue(render.using(priority=9, queue_name="fast"), 7, text="new")
    assert (second.pk, second.enqueue_outcome) == (first.pk, "replaced")
    assert (second.args, second.kwargs, second.metadata) == ([7], {"text": "new"}, {})
    assert (second.priority, second.queue_name, second.status) == (9, "fast", "retry")
    assert first.enqueued_at < second.run_after < first.run_after
    assert second.expires_at is not None
    assert first.expires_at is not None
    assert second.expires_at < first.expires_at
    assert (second.attempts, second.forgiven_attempts, second.errors) == (2, 2, [{}, {}])
    assert (second.crash_count, second.lost_in_a_row, second.waiting_reason) == (0, 0, "")
    assert second.enqueued_at == first.enqueued_at
    stored = Job.objects.get()
    assert stored.kwargs == {"text": "new"}


def test_replace_takes_the_task_too() -> None:
    first = enqueue(noop.using(unique_key="k"), 1)
    second = enqueue(render.using(unique_key="k"), 2)
    assert (second.pk, second.task_path, second.args) == (first.pk, "tests.app.unique_tasks.render", [2])


def test_replace_cannot_change_a_job_that_runs() -> None:
    live = render.using(unique=Unique(scope="live", on_conflict="replace"))
    first = enqueue(live, 7, "old")
    begin(first)
    second = enqueue(live, 7, "old")
    assert (second.pk, second.enqueue_outcome, second.args) == (first.pk, "existing", [7, "old"])
    # With scope "waiting", the key is free.
    waiting = enqueue(render, 7, "one")
    begin(waiting)
    assert outcomes(enqueue(render, 7, "two")) == ["created"]


def test_replace_within_a_window_changes_only_a_job_that_waits() -> None:
    windowed = render.using(unique=Unique(key="document_id", window=HOUR, on_conflict="replace"))
    first = enqueue(windowed, 7, "old")
    second = enqueue(windowed, 7, "new")
    assert (second.pk, second.enqueue_outcome, second.args) == (first.pk, "replaced", [7, "new"])
    begin(first)
    assert outcomes(enqueue(windowed, 7, "newer")) == ["existing"]
    end(first)
    assert outcomes(enqueue(windowed, 7, "newest")) == ["existing"]


def test_earliest_keeps_the_earlier_time() -> None:
    first = enqueue(refresh.using(run_after=HOUR), "a")
    later = enqueue(refresh.using(run_after=2 * HOUR), "a")
    assert (later.pk, later.enqueue_outcome, later.run_after) == (first.pk, "existing", first.run_after)
    now = enqueue(refresh, "a")
    assert (now.pk, now.enqueue_outcome) == (first.pk, "existing")
    assert first.enqueued_at < now.run_after < first.run_after
    assert enqueue(refresh, "a").run_after == now.run_after


def test_raise_names_the_job_and_leaves_the_transaction_usable() -> None:
    first = enqueue(once, "a")
    with pytest.raises(JobExists, match=rf"Job {first.pk} has the unique key .*once\(name=") as caught:
        enqueue(once, name="a")
    assert caught.value.job_id == first.pk
    assert Job.objects.count() == 1


def test_a_broken_callable_enqueues_nothing() -> None:
    with pytest.raises(InvalidKey, match="raised ZeroDivisionError"):
        enqueue(noop.using(unique=Unique(key=lambda x: 1 / 0)), 5)
    with pytest.raises(
        InvalidKey, match=r"^item 1: The callable for the unique key of .* raised ZeroDivisionError"
    ):
        enqueue_many([noop.bind(1), noop.using(unique=Unique(key=lambda x: 1 / 0)).bind(5)])
    assert not Job.objects.exists()


def test_a_new_job_is_one_statement_and_a_twin_one_more() -> None:
    with CaptureQueriesContext(connection) as queries:
        enqueue(remind, 7)
    assert len(queries) == 1
    with CaptureQueriesContext(connection) as queries:
        enqueue(remind, 7)
    assert len(queries) == 2


def test_the_result_of_django_tasks_is_that_of_the_other_job() -> None:
    heard: list[str] = []

    @receiver(task_enqueued)
    def hear(task_result: Any, **_: Any) -> None:
        heard.append(task_result.id)

    first = index.enqueue(7, force=True)
    second = index.enqueue(7)
    assert second.id == first.id
    assert (second.args, second.kwargs) == ([7], {"force": True})
    assert heard == [first.id]
    assert task_enqueued.disconnect(hear)


def test_a_rollback_frees_the_key_and_the_window() -> None:
    for unique_task in (index, sync, remind):
        with transaction.atomic():
            enqueue(unique_task, 7)
            transaction.set_rollback(True)
        assert outcomes(enqueue(unique_task, 7)) == ["created"]


def test_bulk_returns_the_ids_in_the_order_given() -> None:
    known = enqueue(index, 5)
    calls = [
        index.bind(9),
        noop.bind(1),
        index.bind(5),
        index.bind(3),
        index.bind(9, force=True),
        noop.bind(1),
    ]
    done = enqueue_many(calls)
    nine, plain, five, three, nine_again, plain_again = done.ids
    assert done.enqueue_outcomes == [
        "created", "created", "existing", "created", "existing", "created",
    ]  # fmt: skip
    assert (five, nine_again) == (known.pk, nine)
    assert len({nine, plain, five, three, plain_again}) == 5
    assert nine < plain < three < plain_again
    assert Job.objects.get(pk=nine).kwargs == {}
    assert Job.objects.get(pk=three).args == [3]
    assert enqueue_many(calls)[:1].ids == [nine]
    assert Job.objects.count() == 7


def test_bulk_replaces_and_hurries_like_single_calls() -> None:
    done = enqueue_many(
        [
            render.bind(1, "a"), render.bind(1, "b"), refresh.using(run_after=HOUR).bind("x"),
            refresh.bind("x"), remind.bind(1), remind.bind(1),
        ]
    )  # fmt: skip
    assert done.enqueue_outcomes == [
        "created", "replaced", "created", "existing", "created", "existing",
    ]  # fmt: skip
    first, second, third = Job.objects.order_by("pk")
    assert first.args == [1, "b"]
    assert second.run_after < second.enqueued_at + HOUR
    assert third.args == [1]


def test_bulk_without_keys_has_outcomes_too() -> None:
    assert enqueue_many([noop.bind(1)] * 3).enqueue_outcomes == ["created"] * 3
    assert not enqueue_many([])


@pytest.mark.parametrize("chunk", [2, 2000])
def test_bulk_that_meets_a_job_it_must_not_meet_inserts_nothing(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    first = enqueue(once, "a")
    with pytest.raises(JobExists, match=rf"^item 3: Job {first.pk} has the unique key") as caught:
        enqueue_many([noop.bind(1), noop.bind(2), once.bind("z"), once.bind("a"), once.bind("b")])
    assert caught.value.job_id == first.pk
    assert Job.objects.count() == 1
    assert outcomes(enqueue(once, "z")) == ["created"]


@pytest.mark.parametrize("plain", [0, 4])
def test_statements_of_a_large_bulk_are_in_the_order_of_the_keys(
    plain: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 3)
    inserted: list[list[str | None]] = []
    insert = module._insert

    def spy(alias: str, numbered: list[Any]) -> Any:
        inserted.append([call.unique_key for _, call in numbered])
        return insert(alias, numbered)

    monkeypatch.setattr(module, "_insert", spy)
    numbers = [8, 3, 5, 1, 3, 9, 2]
    calls = [noop.bind("plain")] * plain + [index.bind(number) for number in numbers]
    ids = enqueue_many(iter(calls)).ids
    assert [Job.objects.get(pk=pk).args for pk in ids[plain:]] == [[number] for number in numbers]
    keys = [key for chunk in inserted for key in chunk if key]
    assert keys == sorted(keys)
    assert len(keys) == 7
    assert len(inserted) > 2


def test_a_retry_of_a_job_whose_key_is_taken_leaves_it_in_history() -> None:
    first, plain = enqueue(sync, 7), enqueue(noop)
    for job in (first, plain):
        begin(job)
        end(job, "failed")
    second = enqueue(sync, 7)
    assert retry(Job.objects.filter(pk__in=[first.pk, plain.pk])) == 1
    first.refresh_from_db()
    assert (first.status, first.shelf, first.unique_key) == ("failed", 9, second.unique_key)
    cancel(second)
    assert retry(first) == 1
    assert enqueue(sync, 7).pk == first.pk


def test_of_two_jobs_with_a_key_one_is_retried() -> None:
    jobs = []
    for _ in range(2):
        jobs.append(enqueue(sync, 7))
        begin(jobs[-1])
        end(jobs[-1], "failed")
    assert retry(Job.objects.filter(pk__in=[job.pk for job in jobs])) == 1
    assert sorted(Job.objects.values_list("pk", "status")) == [
        (jobs[0].pk, "pending"),
        (jobs[1].pk, "failed"),
    ]


@pytest.mark.django_db(transaction=True)
def test_async_code() -> None:
    async def both() -> list[Job]:
        return [await aenqueue(index, 7), await aenqueue(index, 7)]

    first, second = run(both())
    assert (second.pk, outcomes(first, second)) == (first.pk, ["created", "existing"])
    (found,) = run(aenqueue_many([index.bind(7)]))
    assert (found.pk, found.enqueue_outcome) == (first.pk, "existing")


@pytest.mark.django_db(transaction=True)
def test_a_task_may_read_its_own_key() -> None:
    job, plain = enqueue(own_key.using(unique_key="k")), enqueue(own_key)
    with working():
        until(lambda: fresh(job).status == fresh(plain).status == "done")
    assert (fresh(job).result, fresh(plain).result) == ("k", None)


def test_a_replaced_job_loses_the_steps_of_its_former_arguments() -> None:
    replaced = index.using(unique=Unique(name="k", key=(), on_conflict="replace"))
    job = enqueue(replaced, 7)
    assert send_event(job, "approved")
    assert enqueue(replaced, 8).pk == job.pk
    assert not Step.objects.exists()
    assert Job.objects.get(pk=job.pk).marks == 0
