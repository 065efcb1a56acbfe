"""Application code takes starts of a rate: ``RateLimiter``, its async twins and ``pgqueue_take_rate()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import DataError, connection, transaction

from django_pgqueue import RateLimit, RateLimiter, set_limit
from tests.app import limit_tasks as tasks

pytestmark = pytest.mark.django_db

#: Take starts of a name and a key, and return the seconds until they are allowed if they are not.
Take = Callable[..., float]


def python(name: Any, key: Any = "", n: Any = 1) -> float:
    limiter = RateLimiter(name, key, using="default")
    return 0.0 if limiter.take(n) else limiter.seconds_until(n)


def awaited(name: Any, key: Any = "", n: Any = 1) -> float:
    async def take() -> float:
        limiter = RateLimiter(name, key)
        return 0.0 if await limiter.atake(n) else await limiter.aseconds_until(n)

    return async_to_sync(take)()


def sql(name: Any, key: Any = "", n: Any = 1, only_look: bool = False) -> float:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_take_rate(%s, %s, %s::integer, %s)", [name, key, n, only_look])
        return float(cursor.fetchone()[0])


def look(name: str, key: str, n: int) -> float:
    return RateLimiter(name, key).seconds_until(n)


def look_in_sql(name: str, key: str, n: int) -> float:
    return sql(name, key, n, True)


@pytest.fixture(autouse=True)
def crm(db: None) -> None:
    set_limit(name="crm", rate_limit=RateLimit(6, per=60, burst=3))
    set_limit(name="slots", concurrency=3)


@pytest.mark.parametrize("take", [python, awaited, sql])
@pytest.mark.promise("take")
def test_starts_are_taken_until_the_burst_is_used(take: Take) -> None:
    for n, low, high in [(2, 0, 0), (2, 9, 10), (1, 0, 0), (1, 9, 10.001)]:
        assert low <= take("crm", "acme", n) <= high
    assert take("crm", "7", 3) == 0, "each key has a rate of its own"


@pytest.mark.parametrize("ask", [look, look_in_sql])
def test_who_only_looks_takes_nothing(ask: Take) -> None:
    assert [ask("crm", "acme", 3) for _ in range(3)] == [0.0] * 3
    assert RateLimiter("crm", "acme").take(2)
    assert 9 < ask("crm", "acme", 2) <= 10.001


@pytest.mark.promise("take-rollback")
def test_starts_that_a_transaction_takes_are_given_back_by_its_rollback() -> None:
    with transaction.atomic():
        assert RateLimiter("crm").take(3)
        assert not RateLimiter("crm").take(3)
        transaction.set_rollback(True)
    assert RateLimiter("crm").take(3)


def test_the_name_of_a_task_is_that_of_its_rate_and_a_number_is_a_key() -> None:
    limiter = RateLimiter(tasks.quick, 7)
    assert (limiter.name, limiter.key) == ("quick", "7")


NAME = "name of a rate must"
KEY = "key of a rate must"
COUNT = "whole number of at least 1"


@pytest.mark.parametrize(
    ("take", "given", "words"),
    [
        *[(take, given, words) for take in (python, sql) for given, words in [
            (("none",), "there is no rate 'none': set it with"),
            (("slots",), "there is no rate 'slots'"),
            (("crm", "", 4), "never allowed at once, because its burst is 3"),
        ]],
        *[(python, ("crm", "", n), COUNT) for n in (0, -1, True, 1.5, 2**31)],
        (sql, ("crm", "", 0), "must be at least 1, not 0"),
        (sql, ("crm", "", None), "must be at least 1, not NULL"),
        *[(python, (name,), NAME) for name in ("", "a/b", "*", "queue:mail")],
        (sql, ("a/b",), "must not contain a slash"),
        (sql, ("*",), "must begin with the name of a limit"),
        *[(python, ("crm", key), KEY) for key in ("x" * 200, "\0", None, True)],
        (sql, ("crm", None), "must not be NULL"),
        (sql, ("crm", "x" * 200), "has 204 characters"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_the_reason(take: Take, given: Any, words: str) -> None:
    with pytest.raises(ValueError if take is python else DataError, match=words):
        take(*given)
