from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DataError, IntegrityError, connection, connections, transaction
from django.utils import timezone

from django_pgqueue import apause, aresume, pause, resume
from django_pgqueue.models import Pause
from tests.app.tasks import noop
from tests.support.coroutines import run
from tests.support.sessions import Connect

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def targets() -> list[tuple[str, str]]:
    return list(Pause.objects.order_by("pk").values_list("kind", "name"))


def test_each_target_has_its_own_pause() -> None:
    pause(queue="mail")
    pause(task=noop)
    pause(task="shop.tasks.sync")
    pause(everything=True)
    assert targets() == [
        ("queue", "mail"),
        ("task", noop.module_path),
        ("task", "shop.tasks.sync"),
        ("all", ""),
    ]
    assert resume(everything=True)
    assert not resume(everything=True), "it is not paused"
    assert resume(task=noop)
    assert targets() == [("queue", "mail"), ("task", "shop.tasks.sync")]


def test_a_second_pause_replaces_the_first() -> None:
    first = pause(queue="mail", reason="down", author="ann", duration=HOUR)
    second = pause(queue="mail", reason="slow", author="bob")
    assert (second.pk, second.reason, second.author, second.until) == (first.pk, "slow", "bob", None)
    assert second.paused_at > first.paused_at


def test_the_end_is_a_time_or_a_period_by_the_clock_of_the_database() -> None:
    moment = timezone.now() + HOUR
    assert pause(queue="mail", until=moment).until == moment
    found = pause(queue="mail", duration=HOUR)
    assert found.until is not None
    assert found.until - found.paused_at == HOUR


def test_a_pause_whose_end_has_passed_is_none() -> None:
    pause(queue="mail", duration=HOUR)
    Pause.objects.update(until=timezone.now() - HOUR)
    assert not resume(queue="mail")
    assert targets() == []


def test_it_is_part_of_the_transaction() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():  # noqa: PT012
        pause(queue="mail")
        raise ZeroDivisionError
    assert targets() == []


@pytest.mark.django_db(transaction=True)
def test_the_workers_are_told_at_the_commit(connect: Connect) -> None:
    listener = connect(autocommit=True)
    [channel] = listener.execute("SELECT _pgqueue_channel()").fetchone() or [""]
    listener.execute(f'LISTEN "{channel}"')
    pause(queue="mail")
    resume(queue="mail")
    resume(queue="mail")
    heard = [note.payload for note in listener.notifies(timeout=20, stop_after=2)]
    assert heard == ["pause", "pause"]


@pytest.mark.django_db(transaction=True)
def test_pauses_from_async_code() -> None:
    async def both() -> tuple[Pause, bool]:
        return await apause(queue="mail", reason="down"), await aresume(queue="mail")

    found, was_paused = run(both())
    assert (found.reason, was_paused) == ("down", True)


@pytest.mark.django_db(databases=["default", "other"])
def test_the_database_can_be_named() -> None:
    assert pause(queue="mail", using="other")._state.db == "other"
    assert not Pause.objects.exists()
    assert not resume(queue="mail")
    assert resume(queue="mail", using="other")


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, TypeError, "exactly one of"),
    ({"queue": "mail", "everything": True}, TypeError, "exactly one of"),
    ({"queue": "a b"}, ValueError, "queue_name must be 1 to 100"),
    ({"queue": ""}, ValueError, "queue_name must be 1 to 100"),
    ({"task": "sync"}, ValueError, "task must be a task or its path"),
    ({"task": "a." + "b" * 254}, ValueError, "task must be a task or its path"),
    ({"task": len}, ValueError, "task must be a task or its path"),
    ({"queue": "mail", "duration": timedelta(0)}, ValueError, "more than 0 seconds"),
    ({"queue": "mail", "until": timezone.now() - HOUR}, ValueError, "must be in the future"),
    ({"queue": "mail", "duration": timedelta(days=40_000)}, ValueError, "0 to 100 years"),
    ({"queue": "mail", "until": datetime(2050, 1, 1)}, TypeError, "aware datetime"),  # noqa: DTZ001
    ({"queue": "mail", "until": HOUR}, TypeError, "aware datetime"),
    ({"queue": "mail", "until": timezone.now() + HOUR, "duration": 5}, TypeError, "not both"),
    ({"queue": "mail", "reason": "r" * 401}, ValueError, "up to 400 characters"),
    ({"queue": "mail", "reason": "\0"}, ValueError, "up to 400 characters"),
    ({"queue": "mail", "author": "a" * 151}, ValueError, "up to 150 characters"),
]


@pytest.mark.parametrize(("arguments", "error", "words"), BAD)
def test_bad_values_are_refused(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        pause(**arguments)
    assert targets() == []


def test_a_resume_needs_one_target() -> None:
    with pytest.raises(TypeError, match=r"resume\(\) takes exactly one of"):
        resume()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("pgqueue_pause('topic', 'x')", "kind 'topic' is not one of queue, task, all"),
        ("pgqueue_pause(NULL)", "kind NULL is not one of"),
        ("pgqueue_pause('all', 'x')", "a pause of everything has no name, but 'x' was given"),
        ("pgqueue_pause('queue')", "queue_name '' must be 1 to 100 letters"),
        ("pgqueue_pause('task', 'sync')", "task_path 'sync' is not the dotted path"),
        ("pgqueue_pause('all', until => now() - interval '1 s')", "is in the past"),
        ("pgqueue_pause('all', until => 'infinity')", "100 years ahead"),
        ("pgqueue_pause('all', duration => '178000000 years')", "100 years ahead"),
        ("pgqueue_pause('all', duration => '-1 s')", "is in the past"),
        ("pgqueue_pause('all', until => now() + '1 h', duration => '1 h')", "until or a duration, not both"),
        ("pgqueue_pause('all', reason => repeat('r', 401))", "more than 400 characters"),
        ("pgqueue_pause('all', author => repeat('a', 151))", "more than 150 characters"),
    ],
)
def test_bad_values_are_refused_in_sql(call: str, words: str) -> None:
    with pytest.raises(DataError, match=words) as refusal, transaction.atomic():
        connections["default"].cursor().execute(f"SELECT {call}")
    assert getattr(refusal.value.__cause__, "sqlstate", "") == "22023"


@pytest.mark.parametrize(("kind", "name"), [("topic", "x"), ("all", "x"), ("queue", "")])
def test_bad_rows_are_refused_by_the_table(kind: str, name: str) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Pause.objects.create(kind=kind, name=name)


def test_plain_sql_pauses_and_resumes() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_pause('queue', 'mail', reason => 'down', author => 'ann')")
        found = Pause.objects.get()
        assert cursor.fetchone() == (found.pk,)
        assert (found.reason, found.author, found.until) == ("down", "ann", None)
        cursor.execute("SELECT pgqueue_resume('queue', 'mail'), pgqueue_resume('all')")
        assert cursor.fetchone() == (True, False)
