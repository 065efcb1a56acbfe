"""``drain_worker()`` and ``pgqueue_drain_worker()``."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DataError, connection, transaction

from django_pgqueue import adrain_worker, drain_worker
from django_pgqueue.models import Worker
from tests.support.coroutines import run
from tests.support.factories import WorkerFactory
from tests.support.sessions import Connect

pytestmark = pytest.mark.django_db


@pytest.mark.promise("drain-stays")
def test_a_stop_is_not_taken_back() -> None:
    worker = WorkerFactory.create()
    assert drain_worker(worker)
    assert Worker.objects.get().drain == "replace"
    assert drain_worker(worker.pk, replace=False)
    assert drain_worker(worker)
    assert Worker.objects.get().drain == "stop"
    assert not drain_worker(worker.pk + 1)


def test_plain_sql_drains_a_worker() -> None:
    first, second = WorkerFactory.create_batch(2)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pgqueue_drain_worker(%s), pgqueue_drain_worker(%s, false)", [first.pk, second.pk]
        )
        assert cursor.fetchone() == (True, True)
        cursor.execute("SELECT pgqueue_drain_worker(worker => -1, replace => false)")
        assert cursor.fetchone() == (False,)
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.drain, second.drain) == ("replace", "stop")


@pytest.mark.django_db(transaction=True)
def test_the_workers_are_told_at_the_commit(connect: Connect) -> None:
    worker = WorkerFactory.create()
    listener = connect(autocommit=True)
    [channel] = listener.execute("SELECT _pgqueue_channel()").fetchone() or [""]
    listener.execute(f'LISTEN "{channel}"')
    with transaction.atomic():
        assert drain_worker(worker)
        assert list(listener.notifies(timeout=0)) == []
    assert [each.payload for each in listener.notifies(timeout=5, stop_after=1)] == ["drain"]


@pytest.mark.django_db(transaction=True)
def test_async() -> None:
    worker = WorkerFactory.create()
    assert run(adrain_worker(worker, replace=False))
    assert Worker.objects.get().drain == "stop"


@pytest.mark.django_db(databases=["default", "other"])
def test_the_database_is_that_of_the_row_or_the_one_that_is_named() -> None:
    here, there = WorkerFactory.create(), WorkerFactory.create()
    Worker.objects.using("other").create(**Worker.objects.values().get(pk=there.pk))
    there.delete()
    row = Worker.objects.using("other").get()
    assert not drain_worker(row.pk)
    assert drain_worker(row)
    assert drain_worker(row.pk, replace=False, using="other")
    assert Worker.objects.using("other").get().drain == "stop"
    here.refresh_from_db()
    assert here.drain == ""


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (["app-1:77"], TypeError, "takes a Worker or its id, not 'app-1:77'"),
        ([True], TypeError, "takes a Worker or its id"),
        ([2**63], ValueError, "is not the id of a worker"),
    ],
)
def test_bad_values_are_refused(arguments: list[Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        drain_worker(*arguments)


def test_another_way_is_refused() -> None:
    with pytest.raises(TypeError, match="takes True or False, not 'stop'"):
        drain_worker(1, replace="stop")  # type: ignore[arg-type]
    with (
        pytest.raises(DataError, match="replace must be true or false, not NULL") as refusal,
        transaction.atomic(),
    ):
        connection.cursor().execute("SELECT pgqueue_drain_worker(1, NULL)")
    assert getattr(refusal.value.__cause__, "sqlstate", "") == "22023"
