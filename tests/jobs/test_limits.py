"""Keys of enqueued jobs, and ``set_limit()``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import DataError, connection

from django_pgqueue import Unique, aset_limit, enqueue, enqueue_many, retry, set_limit
from django_pgqueue.exceptions import InvalidKey
from django_pgqueue.jobs.control import run_now
from django_pgqueue.models import Job, Limit
from tests.app import limit_tasks as tasks
from tests.app.tasks import noop

pytestmark = pytest.mark.django_db

SHIP = "tests.app.limit_tasks.ship"


def limits() -> dict[str, tuple[int | None, str, int | None, bool]]:
    return {
        each.name: (each.running, each.on_conflict, each.declared, each.is_overridden)
        for each in Limit.objects.all()
    }


def test_a_job_that_is_due_has_its_place_in_line() -> None:
    job = enqueue(tasks.ship, 7)
    stored = Job.objects.get(pk=job.pk)
    assert (job.limit_key, job.line, job.status) == (stored.limit_key, stored.line, stored.status)
    assert (job.limit_key, job.line, job.status) == (f"{SHIP}/7", job.pk, "pending")


def test_a_job_that_waits_for_its_time_is_in_no_line() -> None:
    job = enqueue(tasks.ship.using(run_after=timedelta(hours=1)), 7)
    assert (job.limit_key, job.line) == (f"{SHIP}/7", None)
    assert run_now(job) == 1
    job.refresh_from_db()
    assert job.line is not None


def test_a_plain_job_has_no_key() -> None:
    job = enqueue(noop)
    stored = Job.objects.get(pk=job.pk)
    assert (job.limit_key, job.line, stored.limit_key, stored.line) == (None,) * 4


def test_many_jobs_of_a_key_stand_behind_the_first_one() -> None:
    later = tasks.ship.using(run_after=timedelta(hours=1))
    first = tasks.ship.using(priority=5)
    other = tasks.ship.using(queue_name="mail")
    calls = [tasks.ship.bind(1), noop.bind(), tasks.ship.bind(1), tasks.ship.bind(2), later.bind(1),
             first.bind(1), other.bind(1), tasks.report.bind(region=None)]  # fmt: skip
    ids = enqueue_many(calls)
    jobs = Job.objects.in_bulk(ids)
    assert [jobs[pk].status for pk in ids] == [
        "blocked", "pending", "blocked", "pending", "pending", "pending", "pending", "pending",
    ]  # fmt: skip
    assert [jobs[pk].line for pk in ids] == [ids[0], None, ids[2], ids[3], None, ids[5], ids[6], None]
    assert jobs[ids[0]].waiting_reason == "waits for its concurrency key"


def test_many_jobs_are_not_blocked_if_the_limit_skips() -> None:
    set_limit(tasks.refresh, 1, on_conflict="skip")
    ids = enqueue_many(tasks.refresh.bind("a") for _ in range(3))
    assert {job.status for job in Job.objects.filter(pk__in=ids)} == {"pending"}


def test_a_key_that_cannot_be_computed_is_refused_before_anything_is_inserted() -> None:
    with pytest.raises(InvalidKey):
        enqueue(tasks.sync, 7)  # type: ignore[arg-type]
    with pytest.raises(InvalidKey, match="item 1: The callable"):
        enqueue_many([tasks.sync.bind("a"), tasks.sync.bind(7)])  # type: ignore[arg-type]
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("x" * 201, "concurrency_key has 201 characters, but the limit is 200"),
        ("", "must begin with the name of a limit"),
        ("/7", "must begin with the name of a limit"),
        ("*", "must begin with the name of a limit"),
        ("queue:mail", "must begin with the name of a limit"),
    ],
)
def test_sql_refuses_a_key_that_makes_no_sense(key: str, words: str) -> None:
    with connection.cursor() as cursor, pytest.raises(DataError, match=words):
        cursor.execute(
            "SELECT pgqueue_enqueue('a.b', options => jsonb_build_object('concurrency_key', %s))", [key]
        )


def test_sql_takes_the_whole_key() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue('a.b', options => '{\"concurrency_key\": \"tenant/7\"}')")
    assert Job.objects.get().limit_key == "tenant/7"


def test_a_retry_joins_the_line_at_the_end() -> None:
    job, other = enqueue(tasks.ship, 7), enqueue(tasks.ship, 7)
    assert Job.objects.filter(pk=job.pk).cancel() == 1
    assert retry(job) == 1
    job.refresh_from_db()
    assert job.line is not None
    assert other.line is not None
    assert job.line > other.line
    assert job.limit_key == f"{SHIP}/7"


def test_a_limit_is_set_and_goes_back_to_what_the_code_declares() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_declare_limits_v1('{a,b}', '{3,4}', '{wait,skip}')")
        assert cursor.fetchone() == (2,)
        set_limit("a", 7)
        cursor.execute("SELECT pgqueue_declare_limits_v1('{a,b}', '{5,4}', '{wait,skip}')")
        assert cursor.fetchone() == (1,)
    assert limits() == {"a": (7, "wait", 5, True), "b": (4, "skip", 4, False)}
    set_limit("a", None)
    assert limits()["a"] == (5, "wait", 5, False)
    set_limit("c", 2, on_conflict="cancel")
    set_limit("c", 3)
    assert limits()["c"] == (3, "cancel", None, True)
    set_limit("c", None)
    assert "c" not in limits()


def test_a_limit_is_set_from_async_code() -> None:
    async_to_sync(aset_limit)(tasks.sync, 4)
    assert Limit.objects.get().name == "tenant"


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (("a", 0), ValueError, "at least 1, not 0. To let no job start, pause"),
        (("a", True), TypeError, "a whole number or None"),
        (("a", 1.0), TypeError, "a whole number or None"),
        (("a", 2**31), ValueError, "at least 1"),
        (("a/1", 1), ValueError, "without a slash"),
        (("", 1), ValueError, "1 to 200 characters"),
        (("x" * 201, 1), ValueError, "1 to 200 characters"),
        ((7, 1), TypeError, "takes the name of a limit or a task"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(given: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        set_limit(*given)


def test_what_happens_without_room_is_checked() -> None:
    with pytest.raises(ValueError, match="'wait', 'skip' or 'cancel'"):
        set_limit("a", 1, on_conflict="fail")  # type: ignore[arg-type]
    for name in ("*", "queue:mail"):
        with pytest.raises(ValueError, match="Jobs always wait"):
            set_limit(name, 1, on_conflict="skip")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("'a', 0", "must let at least 1 job run, not 0. To let none start, pause"),
        ("'a/1', 1", "must not contain a slash"),
        ("'', 1", "1 to 200 characters"),
        ("NULL, 1", "1 to 200 characters"),
        ("'a', 1, 'fail'", "must be 'wait', 'skip' or 'cancel'"),
        ("'*', 1, 'skip'", "jobs always wait"),
    ],
)
def test_sql_refuses_a_limit_that_makes_no_sense(call: str, words: str) -> None:
    with connection.cursor() as cursor, pytest.raises(DataError, match=words):
        cursor.execute(f"SELECT pgqueue_set_limit({call})")


def test_a_unique_job_has_a_concurrency_key_too() -> None:
    unique = tasks.ship.using(unique=Unique(by=("order_id",), scope="live", on_conflict="replace"))
    first = enqueue(unique, 7, "a")
    assert (first.limit_key, Job.objects.get(pk=first.pk).line) == (f"{SHIP}/7", first.pk)
    ids = enqueue_many([unique.bind(7, "b"), unique.bind(8, "c"), tasks.ship.bind(8), tasks.ship.bind(8)])
    jobs = Job.objects.in_bulk(ids)
    assert ids[0] == first.pk
    assert [jobs[pk].status for pk in ids] == ["pending", "pending", "pending", "blocked"]
    assert [jobs[pk].limit_key for pk in ids] == [f"{SHIP}/7"] + [f"{SHIP}/8"] * 3


def test_a_blocked_job_that_is_replaced_is_claimable_again_and_leaves_its_line() -> None:
    head, *blocked = enqueue_many(tasks.ship.bind(7) for _ in range(3))
    Job.objects.filter(pk=blocked[0]).update(unique_key="u", unique_scope="waiting")
    other = tasks.sync.using(unique=Unique(key="u", on_conflict="replace"))
    assert enqueue(other, "acme").pk == blocked[0]
    replaced = Job.objects.get(pk=blocked[0])
    assert (replaced.status, replaced.limit_key, replaced.line) == ("pending", "tenant/acme", None)
    assert Job.objects.get(pk=head).status == "pending"
    assert Job.objects.get(pk=blocked[1]).status == "blocked"
