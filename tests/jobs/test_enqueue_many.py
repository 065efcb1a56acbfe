"""Enqueue many calls: the statements, the list of jobs, the signal of each new job, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import DataError, connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgqueue import Batch, Unique, aenqueue_many, cancel, chain, enqueue, enqueue_many, task
from django_pgqueue.compat import InvalidTask, InvalidTaskBackend, task_enqueued
from django_pgqueue.exceptions import InvalidJSON, InvalidKey
from django_pgqueue.jobs import enqueue as module
from django_pgqueue.models import Job
from django_pgqueue.tasks.routing import default_backend
from django_pgqueue.tasks.task import BoundTask
from django_pgqueue.testing import dummy_jobs
from tests.app.hooks import see
from tests.app.tasks import elsewhere, mail, noop, short_lived
from tests.jobs.test_enqueue import in_each_way
from tests.support.waiting import run

pytestmark = pytest.mark.django_db


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 3)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(("count", "statements"), [(0, 0), (1, 1), (2, 1), (3, 1), (4, 2), (7, 3), (9, 3)])
def test_chunks_keep_the_order_and_need_a_statement_each(count: int, statements: int) -> None:
    with CaptureQueriesContext(connection) as queries:
        ids = enqueue_many(noop.bind(number) for number in range(count)).ids
    assert sum("pgqueue_enqueue_many" in query["sql"] for query in queries) == statements
    assert list(Job.objects.order_by("pk").values_list("pk", "args")) == [
        (pk, [number]) for number, pk in enumerate(ids)
    ]


@pytest.mark.parametrize(("calls", "statements"), [
    ([noop.bind("x" * 50)] * 4, 2),
    ([noop.bind(text="x" * 50)] * 4, 2),
    ([noop.using(metadata={"text": "x" * 50}).bind()] * 4, 2),
    ([noop.bind("x" * 500), noop.bind(1), noop.bind(2)], 2),
    ([noop.bind(1), noop.bind(2), noop.bind("x" * 500)], 1),
    ([noop.bind("x" * 500)] * 3, 3),
])  # fmt: skip
def test_a_statement_is_closed_by_the_size_of_its_jobs_too(
    calls: list[BoundTask], statements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_CHARACTERS", 100)
    with CaptureQueriesContext(connection) as queries:
        ids = enqueue_many(iter(calls)).ids
    assert sum("pgqueue_enqueue_many" in query["sql"] for query in queries) == statements
    assert list(Job.objects.order_by("pk").values_list("pk", "args", "kwargs")) == [
        (pk, list(call.args), call.kwargs) for pk, call in zip(ids, calls, strict=True)
    ]


def test_a_generator_is_not_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_CHARACTERS", 100)
    inserted: list[int] = []

    def items() -> Iterator[BoundTask]:
        for _ in range(5):
            inserted.append(Job.objects.count())
            yield noop.bind("x" * 50)

    enqueue_many(items())
    assert inserted == [0, 0, 2, 2, 4]


def test_a_statement_stays_small_when_jobs_are_as_large_as_they_may_be() -> None:
    text = "x" * 1_000_000
    with CaptureQueriesContext(connection) as queries:
        enqueue_many(noop.bind(text) for _ in range(10))
    sizes = [len(query["sql"]) for query in queries if "pgqueue_enqueue_many" in query["sql"]]
    assert len(sizes) == 3
    assert max(sizes) < 5_000_000
    assert Job.objects.count() == 10


def test_tasks_and_options_are_mixed(wording: Any) -> None:
    moment, hour = timezone.now() + timedelta(days=3), timedelta(hours=1)
    slow = noop.using(priority=-7, queue_name="slow", run_after=hour, metadata={"a": 'x"\\y'})
    ids = enqueue_many([
        mail.bind(1), slow.bind("ü", k=None), short_lived.using(run_after=moment).bind(),
        mail.using(metadata={"of": "another"}).bind(2),
    ]).ids  # fmt: skip
    rows = Job.objects.filter(pk__in=ids).order_by("pk")
    same = ("args", "kwargs", "metadata", "queue_name", "priority", "max_attempts", "timeout", "on_lost")
    assert [*rows.values(*same)] == wording
    first, second, third, fourth = rows
    assert second.run_after - second.enqueued_at == hour
    assert (third.run_after, third.expires_at) == (moment, moment + timedelta(hours=2))
    assert first.expires_at is fourth.expires_at is None
    past = short_lived.using(run_after=timezone.now() - timedelta(days=3))
    for job in enqueue_many([past.bind(), past.using(unique_key="k").bind()]):
        assert job.run_after == job.enqueued_at, "workers look at nothing before it"
        assert job.expires_at == job.enqueued_at + 2 * hour


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("place", [0, 2, 3, 7])
@pytest.mark.parametrize(("bad", "kind"), [
    (noop.bind({1, 2}), InvalidJSON),
    (noop, TypeError),
    (None, TypeError),
    (noop.using(metadata={"big": "x" * 2_000_000}).bind(), InvalidJSON),
    (BoundTask(mail, (), {}), TypeError),
    (noop.with_values({"backend": "nowhere"}).bind(), InvalidTaskBackend),
    (noop.using(unique=Unique(key=lambda number: 1 / 0)).bind(5), InvalidKey),
])  # fmt: skip
@pytest.mark.promise("many-all-or-none")
def test_a_bad_item_is_named_and_nothing_is_inserted(place: int, bad: Any, kind: type[Exception]) -> None:
    items: list[Any] = [noop.bind(number) for number in range(9)]
    items[place] = bad
    with pytest.raises(kind) as caught, transaction.atomic():
        enqueue_many(iter(items))
    assert str(caught.value).startswith(f"item {place}: ")
    assert caught.value.__notes__ == [f"in item {place} of enqueue_many()"]
    assert not Job.objects.exists()


def test_a_task_that_no_worker_finds_is_named_too() -> None:
    def lost() -> None: ...

    lost.__module__, lost.__qualname__ = __name__, "lost"
    with pytest.raises(InvalidTask, match=r"^item 1: tests\.jobs\..*\.lost cannot be imported"):
        enqueue_many([noop.bind(), task(lost).bind()])


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("many", [enqueue_many, lambda calls: run(aenqueue_many(calls))])
@pytest.mark.parametrize("place", [0, 2, 3, 7])
def test_a_bind_that_fails_in_a_generator_is_named(place: int, many: Any) -> None:
    with pytest.raises(TypeError) as caught, transaction.atomic():
        many(mail.bind(*([] if at == place else [at])) for at in range(9))
    assert str(caught.value) == f"item {place}: tests.app.tasks.mail() missing a required argument: 'number'"
    assert not Job.objects.exists()


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.django_db(transaction=True)
@pytest.mark.promise("many-all-or-none")
def test_outside_a_transaction_all_chunks_are_one() -> None:
    """An exception of the generator itself keeps its arguments."""

    def items() -> Iterator[BoundTask]:
        for number in range(7):
            yield noop.bind(number)
        raise KeyError("A-12")

    with pytest.raises(KeyError) as caught:
        enqueue_many(items())
    assert caught.value.args == ("A-12",)
    assert caught.value.__notes__ == ["in item 7 of enqueue_many()"]
    assert not Job.objects.exists()


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.django_db(databases=["default", "other"])
@pytest.mark.parametrize("place", [1, 5])
def test_items_of_two_databases_are_refused_by_index(place: int) -> None:
    items = [noop.bind(number) for number in range(7)]
    items[place] = elsewhere.bind(1)
    words = f"^item {place}: The database is 'other', but the items before use 'default'"
    with pytest.raises(ValueError, match=words) as caught:
        enqueue_many(items)
    assert caught.value.__notes__ == [f"in item {place} of enqueue_many()"]
    assert not Job.objects.exists()


@pytest.mark.django_db(databases=["default", "other"])
def test_all_items_of_another_database() -> None:
    ids = enqueue_many([elsewhere.bind(1), noop.using(database="other").bind()]).ids
    assert [job.pk for job in Job.objects.using("other").order_by("pk")] == ids
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("priority", "options", "words"),
    [("101", "NULL", "priority 101 must be"), ("0", '{"unique_key": 5}', "unique_key 5 must be a string")],
)
def test_the_function_in_sql_names_the_place_too(priority: str, options: str, words: str) -> None:
    query = """
        SELECT _pgqueue_enqueue_many(
            7, ARRAY['a.b', 'a.b'], '{"[]","[]"}', '{"{}","{}"}', '{"{}","{}"}', ARRAY['default', 'default'],
            ARRAY[0, %s::integer], '{NULL,NULL}', '{NULL,NULL}', '{NULL,NULL}', ARRAY[1, 1], '{NULL,NULL}',
            ARRAY['rerun', 'rerun'], NULL, ARRAY[NULL, nullif(%s, 'NULL')]::jsonb[])
    """
    with pytest.raises(DataError, match=f"item 8: {words}"), transaction.atomic():
        connection.cursor().execute(query, [priority, options])
    assert not Job.objects.exists()


# -- the list of jobs, and the signal


@task(queue_name="send", max_attempts=3)
def send(pk: int, note: str = "") -> str:
    return f"{pk}{note}"


@task(unique=Unique(key="pk"))
def index(pk: int) -> None:
    pass


@pytest.mark.parametrize("many", [enqueue_many, chain, Batch().add])
def test_many_calls_are_a_list(many: Any) -> None:
    with pytest.raises(TypeError, match=r"Put the call into a list, or write enqueue\(call\)"):
        many(send.bind(1))
    for wrong in (send, 5):
        with pytest.raises(TypeError, match="takes a list of calls"):
            many(wrong)


def test_a_list_of_jobs_is_a_sequence() -> None:
    known = enqueue(index, 2)
    jobs = enqueue_many(index.bind(pk) for pk in (1, 2, 3))
    assert (len(jobs), jobs.ids[1]) == (3, known.pk)
    assert jobs.enqueue_outcomes == ["created", "existing", "created"]
    assert [job.pk for job in jobs] == jobs.ids
    assert [job.enqueue_outcome for job in jobs] == jobs.enqueue_outcomes
    assert jobs[0] is jobs[0]
    assert jobs[-1].pk == jobs.ids[2]
    assert jobs[1:].ids == jobs.ids[1:]
    assert jobs[1:][0] is jobs[1]
    assert known in jobs
    assert repr(jobs) == f"<JobList of 3: {jobs.ids[0]}, {jobs.ids[1]}, {jobs.ids[2]}>"
    with pytest.raises(IndexError):
        jobs[3]


def test_an_item_reads_its_row_once_and_whole() -> None:
    jobs = enqueue_many(send.bind(pk) for pk in range(3))
    async_to_sync(jobs[2].arefresh_from_db)()
    with CaptureQueriesContext(connection) as queries:
        assert [job.id for job in jobs] == jobs.ids
        assert jobs[2].args == [2]
        assert not queries
        assert (jobs[1].args, jobs[1].queue_name, jobs[1].status) == ([1], "send", "pending")
    assert len(queries) == 1
    cancel(jobs[1])
    jobs[1].refresh_from_db()
    assert jobs[1].status == "cancelled"


def test_jobs_in_memory_are_known() -> None:
    with dummy_jobs() as kept:
        jobs = enqueue_many(send.bind(pk) for pk in range(2))
        with Batch() as batch:
            added = batch.add([send.bind(5)])
        assert [*jobs, *added] == kept
        assert jobs[1].args == [1]


# ----------------------------------------------------------------------------
# The signal ``task_enqueued``.


@pytest.fixture
def heard() -> Iterator[list[Any]]:
    """What a receiver of the signal gets."""
    found: list[Any] = []

    def hear(sender: Any, task_result: Any, **kwargs: Any) -> None:
        assert sender is type(default_backend())
        found.append(task_result)

    task_enqueued.connect(hear)
    yield found
    task_enqueued.disconnect(hear)


@in_each_way
def test_every_way_of_enqueuing_sends_the_signal(way: Callable[[Any], Any], heard: list[Any]) -> None:
    way(send.using(priority=7).bind(1, "x"))
    (result,) = heard
    assert (result.id, result.args, result.task.priority) == (str(Job.objects.get().pk), [1, "x"], 7)


def test_each_of_many_jobs_has_a_signal_of_its_own(heard: list[Any]) -> None:
    jobs = [*enqueue_many([send.bind(1), send.bind(2, note="x")]), *chain([send.bind(3), send.bind(4)])]
    assert [(result.id, *result.args) for result in heard] == [
        (str(job.pk), number) for number, job in enumerate(jobs, 1)
    ]
    assert heard[1].kwargs == {"note": "x"}


def test_the_signal_is_sent_for_new_jobs_only(heard: list[Any]) -> None:
    enqueue_many([index.bind(1), index.bind(1)])
    enqueue(index, 1)
    assert index.enqueue(1).id == heard[0].id
    assert len(heard) == 1


@override_settings(PGQUEUE={"BEFORE_ENQUEUE": ["tests.app.hooks.urgent"]})
def test_a_result_and_the_signal_have_what_the_hooks_have_made_of_the_call(heard: list[Any]) -> None:
    assert see.enqueue(1).task.priority == 7
    enqueue(see, 1)
    enqueue_many([see.bind(1)])
    assert [result.task.priority for result in heard] == [7, 7, 7]


def test_jobs_in_memory_send_the_signal(heard: list[Any]) -> None:
    with dummy_jobs():
        enqueue(send, 1)
        enqueue_many([send.bind(2)])
    assert [result.args for result in heard] == [[1], [2]]


def test_without_a_receiver_a_bulk_is_not_read() -> None:
    with CaptureQueriesContext(connection) as queries:
        enqueue_many(send.bind(pk) for pk in range(3))
    assert len(queries) == 1
