"""Rates of tasks: what is refused, their keys, ``set_limit(rate_limit=..)`` and ``RateLimiter()``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_pgqueue import Concurrency, RateLimit, RateLimiter, aset_limit, enqueue, reset_limit, set_limit
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
        ({"limit": 0}, "at least 1. It is 0. To let no job start, pause"),
        ({"limit": True}, "at least 1"),
        ({"limit": 2**31}, "at least 1"),
        ({"per": timedelta(0)}, "greater than zero"),
        ({"per": timedelta(seconds=-1)}, "greater than zero"),
        ({"per": "60"}, "must be seconds or a timedelta"),
        ({"per": timedelta(days=40_000)}, "within 100 years"),
        ({"burst": 0}, "burst of a rate must be a whole number of at least 1"),
        ({"burst": None}, "burst of a rate must be a whole number of at least 1"),
        ({"burst": 10**9}, "again within 100 years"),
        ({"key": 7}, "must be the name of an argument"),
        ({"name": "a/b"}, "must not contain a slash"),
        ({"name": "queue:mail"}, "limits of the installation and of queues"),
    ],
)
def test_a_rate_that_makes_no_sense_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidTask, match=words):
        RateLimit(**{"limit": 1, "per": MINUTE, **given})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rate_limit": 7}, "rate_limit must be a RateLimit"),
        ({"rate_limit": RateLimit(1, per=MINUTE, key="order")}, "no argument 'order', which RateLimit"),
        ({"rate_limit": RateLimit(1, per=MINUTE, key="tenant"), "concurrency": 3}, "must have the same key"),
        ({"rate_limit": RateLimit(1, per=MINUTE, name="a"), "concurrency": 3}, "the same key and name"),
        (
            {"rate_limit": RateLimit(1, per=MINUTE), "concurrency": Concurrency(3, on_full="cancel_new")},
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
    assert enqueue(tasks.quick.using(limit_key="x"), 7).limit_key == "quick/x"


@pytest.fixture
def session() -> Iterator[Session]:
    session = connect("default")
    yield session
    session.close()


def limits() -> dict[str, tuple[Any, ...]]:
    return {
        each.name: (each.concurrency, each.rate, each.per, each.burst, each.is_overridden)
        for each in Limit.objects.all()
    }


@pytest.mark.django_db(transaction=True)
def test_a_rate_is_set_and_goes_back_to_what_the_code_declares(session: Session) -> None:
    DeclaredLimits().write(session)
    second = timedelta(seconds=1)
    assert limits()["quick"] == (None, 20, second, 1, False)
    set_limit(name="quick", rate_limit=RateLimit(5, per=MINUTE, burst=2))
    assert limits()["quick"] == (None, 5, MINUTE, 2, True)
    set_limit(name="quick", concurrency=3)
    assert limits()["quick"] == (3, 5, MINUTE, 2, True)
    DeclaredLimits().write(session)
    assert limits()["quick"] == (3, 5, MINUTE, 2, True)
    reset_limit(name="quick")
    assert limits()["quick"] == (None, 20, second, 1, False)
    set_limit(name="new", rate_limit=RateLimit(5, per=timedelta(days=40)))
    assert limits()["new"] == (None, 5, timedelta(days=40), 1, True)
    reset_limit(name="new")
    assert "new" not in limits()


def test_a_rate_is_set_from_async_code() -> None:
    async_to_sync(aset_limit)(task=tasks.quick, rate_limit=RateLimit(4, per=60))
    assert limits() == {"quick": (None, 4, MINUTE, 1, True)}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rate_limit": RateLimit(1, per=MINUTE, key="a")}, "no key and no name"),
        ({"rate_limit": RateLimit(1, per=MINUTE, name="b")}, "no key and no name"),
        ({"rate_limit": RateLimit(1, per=MINUTE), "on_full": "cancel_new"}, "always wait for a rate"),
    ],
)
def test_set_limit_refuses_a_rate_that_makes_no_sense(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        set_limit(name="a", **given)
    assert not Limit.objects.exists()


def test_application_code_takes_starts() -> None:
    set_limit(name="crm", rate_limit=RateLimit(6, per=MINUTE, burst=3))
    limit = RateLimiter("crm", "acme")
    assert isinstance(limit, RateLimiter)
    assert limit.seconds_until(3) == 0
    assert limit.take(2)
    assert not limit.take(2)
    assert 0 < limit.seconds_until(2) <= 10
    assert limit.take()
    assert RateLimiter("crm", 7, using="default").take()
    assert RateLimiter(tasks.quick).name == "quick"


def test_application_code_takes_starts_in_async_code() -> None:
    set_limit(name="crm", rate_limit=RateLimit(1, per=MINUTE))

    async def twice() -> tuple[bool, bool, float]:
        limit = RateLimiter("crm")
        return await limit.atake(), await limit.atake(), await limit.aseconds_until()

    first, second, seconds = async_to_sync(twice)()
    assert (first, second) == (True, False)
    assert 0 < seconds <= 60


def test_starts_that_a_transaction_takes_are_given_back_by_its_rollback() -> None:
    set_limit(name="crm", rate_limit=RateLimit(1, per=MINUTE))
    with transaction.atomic():
        assert RateLimiter("crm").take()
        assert not RateLimiter("crm").take()
        transaction.set_rollback(True)
    assert RateLimiter("crm").take()


def test_what_makes_no_sense_is_refused_with_the_reason() -> None:
    set_limit(name="crm", rate_limit=RateLimit(6, per=MINUTE, burst=3))
    for count in (0, -1, True, 1.5, 2**31):
        with pytest.raises(ValueError, match="whole number of at least 1"):
            RateLimiter("crm").take(count)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="burst is 3"), transaction.atomic():
        RateLimiter("crm").take(4)
    with pytest.raises(ValueError, match="there is no rate 'none'"), transaction.atomic():
        RateLimiter("none").take()
    for name in ("", "a/b", "*", "queue:mail"):
        with pytest.raises(ValueError, match="name of a rate must"):
            RateLimiter(name)
    for key in ("x" * 200, "\0", None, True):
        with pytest.raises(ValueError, match="key of a rate must"):
            RateLimiter("crm", key)  # type: ignore[arg-type]
