from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgqueue import aenqueue_many, enqueue_many, task
from django_pgqueue.compat import InvalidTask, InvalidTaskBackend
from django_pgqueue.exceptions import InvalidJSON
from django_pgqueue.jobs import enqueue as module
from django_pgqueue.models import Job
from django_pgqueue.tasks.task import BoundTask
from tests.app.tasks import elsewhere, mail, noop, short_lived
from tests.support.coroutines import run

pytestmark = pytest.mark.django_db


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 3)


def test_ids_and_rows_come_in_the_order_of_the_items() -> None:
    ids = enqueue_many(noop.bind(number) for number in range(100)).ids
    assert ids == sorted(ids)
    assert [job.args for job in Job.objects.filter(pk__in=ids).order_by("pk")] == [[n] for n in range(100)]


def test_one_statement() -> None:
    with CaptureQueriesContext(connection) as queries:
        enqueue_many([noop.bind(number) for number in range(50)])
    assert len(queries) == 1


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(("count", "statements"), [(0, 0), (1, 1), (2, 1), (3, 1), (4, 2), (7, 3), (9, 3)])
def test_chunks_keep_the_order_and_need_a_statement_each(count: int, statements: int) -> None:
    with CaptureQueriesContext(connection) as queries:
        ids = enqueue_many(noop.bind(number) for number in range(count)).ids
    assert sum("pgqueue_enqueue_many" in query["sql"] for query in queries) == statements
    assert list(Job.objects.order_by("pk").values_list("pk", "args")) == [
        (pk, [number]) for number, pk in enumerate(ids)
    ]


@pytest.mark.parametrize(
    ("calls", "statements"),
    [
        ([noop.bind("x" * 50)] * 4, 2),
        ([noop.bind(text="x" * 50)] * 4, 2),
        ([noop.using(metadata={"text": "x" * 50}).bind()] * 4, 2),
        ([noop.bind("x" * 500), noop.bind(1), noop.bind(2)], 2),
        ([noop.bind(1), noop.bind(2), noop.bind("x" * 500)], 1),
        ([noop.bind("x" * 500)] * 3, 3),
    ],
)
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


def test_a_bad_item_after_large_ones_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_CHARACTERS", 100)
    items = [*[noop.bind("x" * 50)] * 5, noop.bind({1, 2})]
    with pytest.raises(InvalidJSON, match=r"^item 5: "), transaction.atomic():
        enqueue_many(iter(items))
    assert not Job.objects.exists()


def test_a_statement_stays_small_when_jobs_are_as_large_as_they_may_be() -> None:
    text = "x" * 1_000_000
    with CaptureQueriesContext(connection) as queries:
        enqueue_many(noop.bind(text) for _ in range(10))
    sizes = [len(query["sql"]) for query in queries if "pgqueue_enqueue_many" in query["sql"]]
    assert len(sizes) == 3
    assert max(sizes) < 5_000_000
    assert Job.objects.count() == 10


def test_tasks_and_options_are_mixed() -> None:
    moment = timezone.now() + timedelta(days=3)
    ids = enqueue_many([
        mail.bind(1),
        noop.using(
            priority=-7, queue_name="slow", run_after=timedelta(hours=1), metadata={"a": 'x"\\y'}
        ).bind("ü", k=None),
        short_lived.using(run_after=moment).bind(),
        mail.using(metadata={"of": "another"}).bind(2),
    ]).ids  # fmt: skip
    first, second, third, fourth = Job.objects.filter(pk__in=ids).order_by("pk")
    assert (first.queue_name, first.priority, first.metadata) == ("mail", 10, {"of": "mail"})
    assert (first.max_attempts, first.timeout, first.on_lost) == (3, 60, "fail")
    assert (second.queue_name, second.priority, second.args, second.kwargs) == (
        "slow",
        -7,
        ["ü"],
        {"k": None},
    )
    assert second.metadata == {"a": 'x"\\y'}
    assert second.run_after - second.enqueued_at == timedelta(hours=1)
    assert (third.run_after, third.expires_at) == (moment, moment + timedelta(hours=2))
    assert (fourth.metadata, fourth.expires_at) == ({"of": "another"}, None)


def test_a_time_in_the_past_is_now() -> None:
    (pk,) = enqueue_many([noop.using(run_after=timezone.now() - timedelta(days=3)).bind()]).ids
    job = Job.objects.get(pk=pk)
    assert job.run_after == job.enqueued_at


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("place", [0, 2, 3, 7])
@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (noop.bind({1, 2}), InvalidJSON),
        (noop, TypeError),
        (None, TypeError),
        (noop.using(metadata={"big": "x" * 2_000_000}).bind(), InvalidJSON),
        (BoundTask(mail, (), {}), TypeError),
        (noop.with_values({"backend": "nowhere"}).bind(), InvalidTaskBackend),
    ],
)
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
    with pytest.raises(
        InvalidTask, match=r"^item 1: tests\.jobs\.test_enqueue_many\.lost cannot be imported"
    ):
        enqueue_many([noop.bind(), task(lost).bind()])


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("place", [0, 2, 3, 7])
def test_a_bind_that_fails_in_a_generator_is_named(place: int) -> None:
    words = f"item {place}: tests.app.tasks.mail() missing a required argument: 'number'"
    with pytest.raises(TypeError) as caught, transaction.atomic():
        enqueue_many(mail.bind(*([] if at == place else [at])) for at in range(9))
    assert str(caught.value) == words
    with pytest.raises(TypeError) as caught, transaction.atomic():
        run(aenqueue_many(mail.bind(*([] if at == place else [at])) for at in range(9)))
    assert str(caught.value) == words
    assert not Job.objects.exists()


class OrderGone(ValueError):
    """An exception of the caller."""


def test_an_exception_of_the_generator_itself_keeps_its_arguments() -> None:
    def items() -> Iterator[BoundTask]:
        yield noop.bind()
        raise OrderGone("A-12")

    with pytest.raises(OrderGone) as caught:
        enqueue_many(items())
    assert caught.value.args == ("A-12",)
    assert caught.value.__notes__ == ["in item 1 of enqueue_many()"]


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.django_db(transaction=True)
@pytest.mark.promise("many-all-or-none")
def test_outside_a_transaction_all_chunks_are_one() -> None:
    def items() -> Iterator[BoundTask]:
        for number in range(7):
            yield noop.bind(number)
        raise RuntimeError("the generator ends in tears")

    with pytest.raises(RuntimeError, match="in tears"):
        enqueue_many(items())
    assert not Job.objects.exists()


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.django_db(databases=["default", "other"])
@pytest.mark.parametrize("place", [1, 5])
def test_items_of_two_databases_are_refused_by_index(place: int) -> None:
    items = [noop.bind(number) for number in range(7)]
    items[place] = elsewhere.bind(1)
    with pytest.raises(
        ValueError, match=r"^item \d: The database is 'other', but the items before use 'default'"
    ) as caught:
        enqueue_many(items)
    assert str(caught.value).startswith(f"item {place}: ")
    assert caught.value.__notes__ == [f"in item {place} of enqueue_many()"]
    assert not Job.objects.exists()


@pytest.mark.django_db(databases=["default", "other"])
def test_all_items_of_another_database() -> None:
    ids = enqueue_many([elsewhere.bind(1), noop.using(database="other").bind()]).ids
    assert [job.pk for job in Job.objects.using("other").order_by("pk")] == ids
    assert not Job.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_rollback_takes_all_of_them_away() -> None:
    with transaction.atomic():
        enqueue_many([noop.bind(number) for number in range(5)])
        transaction.set_rollback(True)
    assert not Job.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_async_code_enqueues_many() -> None:
    ids = run(aenqueue_many(noop.bind(number) for number in range(5))).ids
    assert [job.pk for job in Job.objects.order_by("pk")] == ids


def test_the_function_in_sql_names_the_place_too() -> None:
    columns = (
        "7, ARRAY['a.b', 'a.b'], ARRAY['[]', '[]']::jsonb[], ARRAY['{}', '{}']::jsonb[],"
        " ARRAY['{}', '{}']::jsonb[],"
        " ARRAY['default', 'default'], ARRAY[0, 101], ARRAY[NULL, NULL]::timestamptz[],"
        " ARRAY[NULL, NULL]::float[],"
        " ARRAY[NULL, NULL]::float[], ARRAY[1, 1], ARRAY[NULL, NULL]::int[],"
        " ARRAY['rerun', 'rerun'], NULL, NULL"
    )
    with pytest.raises(DataError, match="item 8: priority 101 must be from"), transaction.atomic():
        connection.cursor().execute(f"SELECT _pgqueue_enqueue_many({columns})")
    assert not Job.objects.exists()
