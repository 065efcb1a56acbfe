"""The numbers of limits: what is refused, and what a change stores, wherever a limit is declared or set."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import DataError, connection, transaction
from django.test import Client

from django_pgqueue import (
    Concurrency,
    RateLimit,
    RateLimiter,
    ShardsFailed,
    on_shards,
    pause,
    reset_limit,
    resume,
    set_limit,
)
from django_pgqueue.compat import InvalidTask
from django_pgqueue.models import Limit, Pause
from tests.admin.helpers import url
from tests.app import limit_tasks as tasks
from tests.support.databases import sharded
from tests.support.jobs import sql as ask

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
RATE = ("rate", "per", "burst")

#: What a limit is given: by the columns, ``kind`` and ``name`` as in SQL, ``rate_limit`` as in Python.
Given = dict[str, Any]
Level = Callable[[Given], str]


# --- The levels. Each sets a limit, and returns what it says if it refuses.


def refusal(call: Callable[[], object], *errors: type[Exception]) -> str:
    try:
        with transaction.atomic():
            call()
    except errors as error:
        cause: Any = error.__cause__
        text = cause.diag.message_primary if isinstance(error, DataError) else error
        return f"{type(error).__name__}: {text}"
    return ""


def declared(given: Given) -> str:
    """Write ``@task(concurrency=Concurrency(...))``."""
    options = {name: given[name] for name in ("key", "name", "on_full") if name in given}
    return refusal(lambda: Concurrency(given["concurrency"], **options), InvalidTask)


def declared_rate(given: Given) -> str:
    """Write ``@task(rate_limit=RateLimit(...))``."""
    options = {name: given[name] for name in ("per", "burst", "key", "name") if name in given}
    return refusal(lambda: RateLimit(given.get("rate", 1), **{"per": MINUTE, **options}), InvalidTask)


def target(given: Given) -> Given:
    kinds = {"limit": "name", "all": "everything"}
    return {kinds.get(given["kind"], str(given["kind"])): given["name"] or True}


def python(given: Given) -> str:
    """Call ``set_limit()``."""
    options = {name: given[name] for name in ("concurrency", "on_full", "rate_limit") if name in given}
    if "rate" in given:
        rate = {name: given[name] for name in ("per", "burst") if name in given}
        options["rate_limit"] = given["rate"] and RateLimit(given["rate"], **rate)
    return refusal(lambda: set_limit(**target(given), **options), TypeError, ValueError, DataError)


def sql(given: Given) -> str:
    """Call ``pgqueue_set_limit()``."""
    given = given | {f"no_{name}": True for name in ("concurrency", "rate") if given.get(name, 1) is None}
    names = ", ".join(f"{name} => %({name})s" for name in given)
    with connection.cursor() as cursor:
        return refusal(lambda: cursor.execute(f"SELECT pgqueue_set_limit({names})", given), DataError)


def stored_name(given: Given) -> str:
    return f"{({'queue': 'queue:', 'all': '*'}).get(given['kind'], '')}{given['name']}"


def posted(page: str, fields: Given, *arguments: str) -> str:
    client = Client()
    client.force_login(User.objects.get_or_create(username="root", is_staff=True, is_superuser=True)[0])
    data = {
        name: f"{value.total_seconds():.0f}" if isinstance(value, timedelta) else value
        for name, value in fields.items()
        if value is not None
    }
    response = client.post(url(page, *arguments, model="limit"), data)
    return "" if response.status_code == 302 else str(response.context["adminform"].form.errors.as_text())


def add_page(given: Given) -> str:
    """Fill the form of a new limit."""
    return posted("add", {"on_full": "wait", **given, "name": stored_name(given)})


def page(given: Given) -> str:
    """Change what the form of the admin shows. It does not change the name."""
    limit = Limit.objects.filter(pk=stored_name(given)).first()
    if limit is None:
        return add_page(given)
    kept = ("concurrency", "on_full", *(() if "rate" in given else RATE))
    return posted("change", {**{name: getattr(limit, name) for name in kept}, **given, "name": "b"}, limit.pk)


# --- What is refused

NEW = {"kind": "limit", "name": "k", "concurrency": 1}
RATED: Given = {"rate": 1, "per": MINUTE}

#: By the levels that refuse it: what is given in addition to `NEW` (``...``: without it).
REFUSED: dict[tuple[Level, ...], list[Given]] = {
    (declared,): [{"concurrency": -1}, {"concurrency": "3"}, {"key": ""}],
    (declared_rate,): [{"rate": True}, {"rate": 2**31}, {"per": "60"}, {"burst": None}],
    (python,): [
        {"name": 7}, {"rate_limit": 5}, {"rate_limit": RateLimit(1, per=MINUTE, key="a")},
        {"rate_limit": RateLimit(1, per=MINUTE, name="a")},
    ],
    (sql,): [
        {"no_concurrency": True}, {**RATED, "no_rate": True}, {"name": None}, {"kind": "all"}, {"kind": "a"},
        {**RATED, "name": "taken"}, {"per": MINUTE},
    ],
    (add_page,): [{"name": "taken"}],
    (declared, python): [{"concurrency": True}, {"concurrency": 1.0}, {"concurrency": 2**31}],
    (declared, sql): [{"name": ""}, {"name": "*"}],
    (declared, declared_rate): [{"key": 7}],
    (declared_rate, sql): [{"rate": 1, "per": timedelta(40_000)}],
    (python, add_page): [{"concurrency": ...}],
    (python, sql): [{"concurrency": ..., "on_full": "wait"}],
    (sql, add_page): [{"rate": 1}, {"burst": 3}],
    (declared, python, sql): [{"on_full": "fail"}],
    (declared, declared_rate, python): [{"name": "queue:mail"}],
    (python, sql, add_page): [  # queues and all jobs always wait, and so do those of a rate
        {"kind": "queue", "name": "mail", "on_full": "cancel_new"},
        {"kind": "all", "name": "", "on_full": "cancel_new"}, {**RATED, "on_full": "cancel_new"},
    ],
    (declared_rate, sql, add_page): [
        {**RATED, "rate": 0}, {**RATED, "per": timedelta(0)}, {**RATED, "per": timedelta(seconds=-5)},
        {**RATED, "burst": 0}, {**RATED, "burst": 2_000_000_000},
    ],
    (declared, python, sql, add_page): [{"concurrency": 0}, {"name": "x" * 201}],
    (declared, declared_rate, python, sql, add_page): [{"name": "a/b"}],
}  # fmt: skip


def test_numbers_that_make_no_sense_are_refused_with_the_reason(wording: Any) -> None:
    set_limit(name="taken", concurrency=1, on_full="cancel_new")
    said = []
    for levels, several in REFUSED.items():
        for given in several:
            whole = {name: value for name, value in {**NEW, **given}.items() if value is not ...}
            answers = {level.__name__: level(whole) for level in levels}
            assert all(answers.values()), given
            said += [f"{name}: {answer}" for name, answer in answers.items()]
    assert "\n".join(said) == wording
    assert list(Limit.objects.values_list("name", "concurrency", "rate")) == [("taken", 1, None)]


# --- What a change stores


def declare(given: Given) -> int:
    """Write what the code declares, as workers do. Return how many rows were written."""
    values = [given.get(name) for name in ("concurrency", "on_full", *RATE)]
    return int(ask(
        "SELECT _pgqueue_declare_limits('{k}', ARRAY[%s::integer], ARRAY[coalesce(%s, 'wait')],"
        " ARRAY[%s::integer], ARRAY[%s::interval], ARRAY[%s::integer])", *values,
    ))  # fmt: skip


def reset(level: Level) -> bool:
    """Go back to what the code declares. Return whether the limit was different."""
    if level is python:
        return reset_limit(name="k")
    if level is sql:
        return bool(ask("SELECT pgqueue_reset_limit('limit', 'k')"))
    limit = Limit.objects.filter(pk="k").first()
    if limit is None or not limit.is_overridden:
        return False
    if limit.is_declared:
        return not posted("change", {}, "k")
    return not posted("delete", {"post": "yes"}, "k")


SECONDS = timedelta(seconds=90)

#: What is done one after the other, and with which numbers.
CHANGES: dict[str, list[tuple[str, Given]]] = {
    "a limit of nobody's code": [
        ("set", {"concurrency": 3, "on_full": "cancel_new"}), ("set", {"concurrency": 4}),
        ("set", {"on_full": "cancel_old"}), ("reset", {}),
    ],
    "a rate of nobody's code": [
        ("set", {"rate": 5, "per": timedelta(days=40), "burst": 10}), ("set", {"concurrency": 5}),
        ("set", {"rate": 7, "per": SECONDS}), ("set", {"concurrency": None}),
        ("set", {"concurrency": 2, "rate": None}), ("reset", {}),
    ],
    "a declared limit": [
        ("declare", {"concurrency": 3, "on_full": "cancel_new"}), ("set", {"concurrency": 7}),
        ("declare", {"concurrency": 5, "on_full": "cancel_new"}), ("reset", {}),
    ],
    "a declared rate": [
        ("declare", {"rate": 9, "per": MINUTE, "burst": 2}), ("set", {"rate": 3, "per": SECONDS}),
        ("set", {"concurrency": 3}), ("declare", {"rate": 20, "per": MINUTE, "burst": 1}), ("reset", {}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("steps", CHANGES.values(), ids=CHANGES)
def test_what_is_set_stays_until_it_goes_back_to_what_the_code_declares(
    steps: list[tuple[str, Given]], wording: Any
) -> None:
    for level in (python, sql, page):
        stored = []
        for verb, given in steps:
            if verb == "set":
                assert level({"kind": "limit", "name": "k", **given}) == ""
            elif verb == "declare":
                assert (declare(given), declare(given)) == (1, 0)
            else:
                assert (reset(level), reset(level)) == (True, False)
            stored.append([*Limit.objects.values("concurrency", "on_full", *RATE, "is_overridden")])
        assert stored == wording(name="each level")
        Limit.objects.all().delete()


def test_the_target_of_a_limit() -> None:
    for level in (python, sql, page):
        for kind, given in (("limit", "a"), ("queue", "mail"), ("task", "a.b"), ("all", "")):
            if (level, kind) != (page, "task"):
                assert level({"kind": kind, "name": given, "concurrency": 4}) == ""
        names = ["*", "a", "queue:mail"] if level is page else ["*", "a", "a.b", "queue:mail"]
        assert sorted(Limit.objects.filter(concurrency=4).values_list("name", flat=True)) == names
        Limit.objects.all().delete()
    for task in (tasks.sync, tasks.two):
        set_limit(task=task, concurrency=4)
    assert {*Limit.objects.values_list("name", flat=True)} == {"tenant", tasks.two.module_path}


def test_a_limit_has_one_target() -> None:
    with pytest.raises(TypeError, match="exactly one of"):
        set_limit(name="a", queue="mail", concurrency=1)


# --- A change on all shards: a commit in each, and the error names the shards that did not answer


BOTH = ["default", "other"]


@pytest.mark.django_db(databases=BOTH)
def test_each_shard_commits_for_itself() -> None:
    with sharded():
        paused = on_shards(pause, queue="mail", author="ann")
        assert {alias: row.pk for alias, row in paused.items()} == {
            alias: Pause.objects.using(alias).get().pk for alias in BOTH
        }
        on_shards(set_limit, name="crm", rate_limit=RateLimit(5, per=1))
        assert [Limit.objects.using(alias).get(pk="crm").rate for alias in BOTH] == [5, 5]
        assert on_shards(resume, queue="mail") == {"default": True, "other": True}
        assert on_shards(resume, queue="mail") == {"default": False, "other": False}


@pytest.mark.django_db(databases=BOTH)
def test_the_error_names_the_shards_and_repeating_is_harmless() -> None:
    with sharded("down", "silent"):
        for _ in range(2):
            with pytest.raises(ShardsFailed, match="The database down did not answer: ") as found:
                on_shards(pause, queue="mail")
            assert [*found.value.done] == BOTH
            assert [*found.value.failed] == ["down", "silent"]
        assert [Pause.objects.using(alias).count() for alias in BOTH] == [1, 1]


@pytest.mark.django_db(databases=BOTH)
def test_a_bad_value_is_the_error_of_the_change() -> None:
    with sharded(), pytest.raises(ValueError, match="queue"):
        on_shards(pause, queue="mail\0")


# --- Application code takes starts of a rate


#: Take starts of a name and a key, and return the seconds until they are allowed if they are not.
Take = Callable[..., float]


def taken(name: Any, key: Any = "", n: Any = 1) -> float:
    limiter = RateLimiter(name, key, using="default")
    return 0.0 if limiter.take(n) else limiter.seconds_until(n)


def awaited(name: Any, key: Any = "", n: Any = 1) -> float:
    async def take() -> float:
        limiter = RateLimiter(name, key)
        return 0.0 if await limiter.atake(n) else await limiter.aseconds_until(n)

    return async_to_sync(take)()


def taken_by_sql(name: Any, key: Any = "", n: Any = 1, only_look: bool = False) -> float:
    return float(ask("SELECT pgqueue_take_rate(%s, %s, %s::integer, %s)", name, key, n, only_look))


@pytest.fixture
def crm(db: None) -> None:
    set_limit(name="crm", rate_limit=RateLimit(6, per=60, burst=3))
    set_limit(name="slots", concurrency=3)


@pytest.mark.usefixtures("crm")
@pytest.mark.parametrize("take", [taken, awaited, taken_by_sql])
@pytest.mark.promise("take")
def test_starts_are_taken_until_the_burst_is_used(take: Take) -> None:
    for n, low, high in [(2, 0, 0), (2, 9, 10), (1, 0, 0), (1, 9, 10.001)]:
        assert low <= take("crm", "acme", n) <= high
    assert take("crm", "7", 3) == 0, "each key has a rate of its own"


@pytest.mark.usefixtures("crm")
def test_who_only_looks_takes_nothing() -> None:
    limiter = RateLimiter("crm", "acme")
    assert [limiter.seconds_until(3), taken_by_sql("crm", "acme", 3, True)] * 2 == [0.0] * 4
    assert limiter.take(2)
    for seconds in (limiter.seconds_until(2), taken_by_sql("crm", "acme", 2, True)):
        assert 9 < seconds <= 10.001


@pytest.mark.usefixtures("crm")
@pytest.mark.promise("take-rollback")
def test_starts_that_a_transaction_takes_are_given_back_by_its_rollback() -> None:
    with transaction.atomic():
        assert RateLimiter("crm").take(3)
        assert not RateLimiter("crm").take(3)
        transaction.set_rollback(True)
    assert RateLimiter("crm").take(3)


@pytest.mark.usefixtures("crm")
def test_the_name_of_a_task_is_that_of_its_rate_and_a_number_is_a_key() -> None:
    limiter = RateLimiter(tasks.quick, 7)
    assert (limiter.name, limiter.key) == ("quick", "7")


REFUSED_TAKES: dict[Take, list[tuple[Any, ...]]] = {
    taken: [
        ("none",), ("slots",), ("crm", "", 4), *(("crm", "", n) for n in (0, -1, True, 1.5, 2**31)),
        *((name,) for name in ("", "a/b", "*", "queue:mail")),
        *(("crm", key) for key in ("x" * 200, "\0", None, True)),
    ],
    taken_by_sql: [
        ("none",), ("slots",), ("crm", "", 4), ("crm", "", 0), ("crm", "", None), ("a/b",), ("*",),
        ("crm", None), ("crm", "x" * 200),
    ],
}  # fmt: skip


@pytest.mark.usefixtures("crm")
def test_what_makes_no_sense_is_refused_with_the_reason(wording: Any) -> None:
    said = [
        refusal(partial(take, *given), ValueError, DataError)
        for take, several in REFUSED_TAKES.items()
        for given in several
    ]
    assert all(said)
    assert "\n".join(said) == wording
