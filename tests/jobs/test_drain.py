"""``drain()`` and ``pgqueue_drain()``."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DataError, connection, transaction

from django_pgqueue import adrain, drain
from django_pgqueue.models import Worker
from tests.support.coroutines import run
from tests.support.factories import WorkerFactory
from tests.support.sessions import Connect

pytestmark = pytest.mark.django_db


def test_a_stop_is_not_taken_back() -> None:
    worker = WorkerFactory.create()
    assert drain(worker)
    assert Worker.objects.get().drain == "replace"
    assert drain(worker.pk, "stop")
    assert drain(worker)
    assert Worker.objects.get().drain == "stop"
    assert not drain(worker.pk + 1)


def test_plain_sql_drains_a_worker() -> None:
    first, second = WorkerFactory.create_batch(2)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_drain(%s), pgqueue_drain(%s, 'stop')", [first.pk, second.pk])
        assert cursor.fetchone() == (True, True)
        cursor.execute("SELECT pgqueue_drain(worker => -1, how => 'stop')")
        assert cursor.fetchone() == (False,)
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.drain, second.drain) == ("replace", "stop")


@pytest.mark.django_db(transaction=True)
def test_the_workers_are_told_at_the_commit(connect: Connect) -> None:
    worker = WorkerFactory.create()
    listener = connect(autocommit=True)
    [channel] = listener.execute("SELECT pgqueue_channel_v1()").fetchone() or [""]
    listener.execute(f'LISTEN "{channel}"')
    with transaction.atomic():
        assert drain(worker)
        assert list(listener.notifies(timeout=0)) == []
    assert [each.payload for each in listener.notifies(timeout=5, stop_after=1)] == ["drain"]


@pytest.mark.django_db(transaction=True)
def test_async() -> None:
    worker = WorkerFactory.create()
    assert run(adrain(worker, "stop"))
    assert Worker.objects.get().drain == "stop"


@pytest.mark.django_db(databases=["default", "other"])
def test_the_database_is_that_of_the_row_or_the_one_that_is_named() -> None:
    here, there = WorkerFactory.create(), WorkerFactory.create()
    Worker.objects.using("other").create(**Worker.objects.values().get(pk=there.pk))
    there.delete()
    row = Worker.objects.using("other").get()
    assert not drain(row.pk)
    assert drain(row)
    assert drain(row.pk, "stop", using="other")
    assert Worker.objects.using("other").get().drain == "stop"
    here.refresh_from_db()
    assert here.drain == ""


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (["app-1:77"], TypeError, "takes a Worker or its id, not 'app-1:77'"),
        ([True], TypeError, "takes a Worker or its id"),
        ([2**63], ValueError, "is not the id of a worker"),
        ([1, "kill"], ValueError, "must be 'replace' or 'stop', not 'kill'"),
    ],
)
def test_bad_values_are_refused(arguments: list[Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        drain(*arguments)


def test_sql_refuses_another_way() -> None:
    with (
        pytest.raises(DataError, match="'kill' is not one of replace, stop") as refusal,
        transaction.atomic(),
    ):
        connection.cursor().execute("SELECT pgqueue_drain(1, 'kill')")
    assert getattr(refusal.value.__cause__, "sqlstate", "") == "22023"
