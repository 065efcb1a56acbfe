"""Rates of tasks: what is refused, their keys, ``set_limit(starts=..)`` and ``rate_limit()``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_pgqueue import Concurrency, Rate, RateLimit, aset_limit, enqueue, rate_limit, set_limit
from django_pgqueue.compat import InvalidTask
from django_pgqueue.maintenance.limits import DeclaredLimits
from django_pgqueue.models import Limit
from django_pgqueue.postgres.session import Session, connect
from django_pgqueue.tasks.task import Task
from tests.app import limit_tasks as tasks

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
QUICK = "tests.app.limit_tasks.quick"


def made(**options: Any) -> Task[..., Any]:
    return Task(func=tasks.quick.func, **options)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"starts": 0}, "at least 1. They are 0. To let no job start, pause"),
        ({"starts": True}, "at least 1"),
        ({"starts": 2**31}, "at least 1"),
        ({"per": timedelta(0)}, "greater than zero"),
        ({"per": timedelta(seconds=-1)}, "greater than zero"),
        ({"per": 60}, "must be a timedelta"),
        ({"per": timedelta(days=40_000)}, "within 100 years"),
        ({"burst": 0}, "burst of a rate must be a whole number of at least 1"),
        ({"burst": None}, "burst of a rate must be a whole number of at least 1"),
        ({"burst": 10**9}, "again within 100 years"),
        ({"key": 7}, "key of rate must be the name of an argument"),
        ({"name": "a/b"}, "must not contain a slash"),
        ({"name": "queue:mail"}, "limits of the installation and of queues"),
    ],
)
def test_a_rate_that_makes_no_sense_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidTask, match=words):
        Rate(**{"starts": 1, "per": MINUTE, **given})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rate": 7}, "rate must be a Rate"),
        ({"rate": Rate(1, per=MINUTE, key="order")}, "no argument 'order', which Rate"),
        ({"rate": Rate(1, per=MINUTE, key="tenant"), "concurrency": 3}, "must have the same key"),
        ({"rate": Rate(1, per=MINUTE, name="a"), "concurrency": 3}, "the same name"),
        (
            {"rate": Rate(1, per=MINUTE), "concurrency": Concurrency(3, on_conflict="skip")},
            "always wait for a rate",
        ),
    ],
)
def test_a_rate_that_does_not_fit_its_task_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidTask, match=words):
        made(**options)


def test_a_job_has_the_key_of_its_rate() -> None:
    assert enqueue(tasks.quick, 7).limit_key == "quick/7"
    assert enqueue(tasks.hourly, "a").limit_key == "tests.app.limit_tasks.hourly"
    assert enqueue(tasks.quick.using(concurrency_key="x"), 7).limit_key == "quick/x"


@pytest.fixture
def session() -> Iterator[Session]:
    session = connect("default")
    yield session
    session.close()


def limits() -> dict[str, tuple[Any, ...]]:
    return {
        each.name: (each.running, each.starts, each.period, each.burst, each.is_overridden)
        for each in Limit.objects.all()
    }


@pytest.mark.django_db(transaction=True)
def test_a_rate_is_set_and_goes_back_to_what_the_code_declares(session: Session) -> None:
    DeclaredLimits().write(session)
    second = timedelta(seconds=1)
    assert limits()["quick"] == (None, 20, second, 1, False)
    set_limit("quick", starts=5, per=MINUTE, burst=2)
    assert limits()["quick"] == (None, 5, MINUTE, 2, True)
    set_limit("quick", 3)
    assert limits()["quick"] == (3, 5, MINUTE, 2, True)
    DeclaredLimits().write(session)
    assert limits()["quick"] == (3, 5, MINUTE, 2, True)
    set_limit("quick", None)
    assert limits()["quick"] == (None, 20, second, 1, False)
    set_limit("new", starts=5, per=timedelta(days=40))
    assert limits()["new"] == (None, 5, timedelta(days=40), 1, True)
    set_limit("new", None)
    assert "new" not in limits()


def test_a_rate_is_set_from_async_code() -> None:
    async_to_sync(aset_limit)(tasks.quick, starts=4, per=MINUTE)
    assert limits() == {"quick": (None, 4, MINUTE, 1, True)}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"starts": 0, "per": MINUTE}, "pause the queue or the task"),
        ({"starts": 1}, "per=None"),
        ({"per": MINUTE}, "a rate needs starts"),
        ({"burst": 3}, "a rate needs starts"),
        ({"starts": 1, "per": timedelta(0)}, "greater than zero"),
        ({"starts": 1, "per": MINUTE, "burst": 0}, "burst of a rate"),
        ({"starts": 1, "per": MINUTE, "on_conflict": "skip"}, "always wait for a rate"),
    ],
)
def test_set_limit_refuses_a_rate_that_makes_no_sense(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        set_limit("a", **given)
    assert not Limit.objects.exists()


def test_application_code_takes_starts() -> None:
    set_limit("crm", starts=6, per=MINUTE, burst=3)
    limit = rate_limit("crm", "acme")
    assert isinstance(limit, RateLimit)
    assert limit.seconds_until(3) == 0
    assert limit.take(2)
    assert not limit.take(2)
    assert 0 < limit.seconds_until(2) <= 10
    assert limit.take()
    assert rate_limit("crm", 7).take(using="default")
    assert rate_limit(tasks.quick).name == "quick"


def test_application_code_takes_starts_in_async_code() -> None:
    set_limit("crm", starts=1, per=MINUTE)

    async def twice() -> tuple[bool, bool, float]:
        limit = rate_limit("crm")
        return await limit.atake(), await limit.atake(), await limit.aseconds_until()

    first, second, seconds = async_to_sync(twice)()
    assert (first, second) == (True, False)
    assert 0 < seconds <= 60


def test_starts_that_a_transaction_takes_are_given_back_by_its_rollback() -> None:
    set_limit("crm", starts=1, per=MINUTE)
    with transaction.atomic():
        assert rate_limit("crm").take()
        assert not rate_limit("crm").take()
        transaction.set_rollback(True)
    assert rate_limit("crm").take()


def test_what_makes_no_sense_is_refused_with_the_reason() -> None:
    set_limit("crm", starts=6, per=MINUTE, burst=3)
    for count in (0, -1, True, 1.5, 2**31):
        with pytest.raises(ValueError, match="whole number of at least 1"):
            rate_limit("crm").take(count)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="burst is 3"), transaction.atomic():
        rate_limit("crm").take(4)
    with pytest.raises(ValueError, match="there is no rate 'none'"), transaction.atomic():
        rate_limit("none").take()
    for name in ("", "a/b", "*", "queue:mail"):
        with pytest.raises(ValueError, match="name of a rate must"):
            rate_limit(name)
    for key in ("x" * 200, "\0", None, True):
        with pytest.raises(ValueError, match="key of a rate must"):
            rate_limit("crm", key)  # type: ignore[arg-type]
