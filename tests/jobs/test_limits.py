"""Keys of enqueued jobs, and ``set_limit()``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import DataError, connection

from django_pgqueue import Unique, aset_limit, enqueue, enqueue_many, reset_limit, retry, set_limit
from django_pgqueue.exceptions import InvalidKey
from django_pgqueue.models import Job, Limit
from django_pgqueue.models.changes import run_now
from tests.app import limit_tasks as tasks
from tests.app.tasks import noop

pytestmark = pytest.mark.django_db

SHIP = "tests.app.limit_tasks.ship"


def limits() -> dict[str, tuple[int | None, str, int | None, bool]]:
    return {
        each.name: (each.concurrency, each.on_full, each.declared_concurrency, each.is_overridden)
        for each in Limit.objects.all()
    }


def test_a_job_that_is_due_has_its_place_in_line() -> None:
    job = enqueue(tasks.ship, 7)
    stored = Job.objects.get(pk=job.pk)
    assert (job.limit_key, job.wait_position, job.status) == (
        stored.limit_key,
        stored.wait_position,
        stored.status,
    )
    assert (job.limit_key, job.wait_position, job.status) == (f"{SHIP}/7", job.pk, "pending")


def test_a_job_that_waits_for_its_time_is_in_no_line() -> None:
    job = enqueue(tasks.ship.using(run_after=timedelta(hours=1)), 7)
    assert (job.limit_key, job.wait_position) == (f"{SHIP}/7", None)
    assert run_now(job) == 1
    job.refresh_from_db()
    assert job.wait_position is not None


def test_a_plain_job_has_no_key() -> None:
    job = enqueue(noop)
    stored = Job.objects.get(pk=job.pk)
    assert (job.limit_key, job.wait_position, stored.limit_key, stored.wait_position) == (None,) * 4


def test_many_jobs_of_a_key_stand_behind_the_first_one() -> None:
    later = tasks.ship.using(run_after=timedelta(hours=1))
    first = tasks.ship.using(priority=5)
    other = tasks.ship.using(queue_name="mail")
    calls = [tasks.ship.bind(1), noop.bind(), tasks.ship.bind(1), tasks.ship.bind(2), later.bind(1),
             first.bind(1), other.bind(1), tasks.report.bind(region=None)]  # fmt: skip
    ids = enqueue_many(calls).ids
    jobs = Job.objects.in_bulk(ids)
    assert [jobs[pk].status for pk in ids] == [
        "blocked", "pending", "blocked", "pending", "pending", "pending", "pending", "pending",
    ]  # fmt: skip
    assert [jobs[pk].wait_position for pk in ids] == [
        ids[0],
        None,
        ids[2],
        ids[3],
        None,
        ids[5],
        ids[6],
        None,
    ]
    assert jobs[ids[0]].waiting_reason == "waits for its limit key"


def test_many_jobs_are_not_blocked_if_the_limit_skips() -> None:
    set_limit(task=tasks.refresh, concurrency=1, on_full="cancel_new")
    ids = enqueue_many(tasks.refresh.bind("a") for _ in range(3)).ids
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
        ("x" * 201, "limit_key has 201 characters, but the limit is 200"),
        ("", "must begin with the name of a limit"),
        ("/7", "must begin with the name of a limit"),
        ("*", "must begin with the name of a limit"),
        ("queue:mail", "must begin with the name of a limit"),
    ],
)
def test_a_key_of_a_job_that_makes_no_sense(key: str, words: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT _pgqueue_options_problem(jsonb_build_object('limit_key', %s))", [key])
        assert words in cursor.fetchone()[0]


def test_sql_takes_the_part_after_the_slash() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue('a.b', options => '{\"limit_key\": \"tenant/7\"}')")
        assert Job.objects.get().limit_key == "a.b/tenant/7"
        with pytest.raises(DataError, match="limit_key has 201 characters, but the limit is 200"):
            cursor.execute(
                "SELECT pgqueue_enqueue('a.b', options => jsonb_build_object('limit_key', repeat('x', 197)))"
            )


def test_a_retry_joins_the_line_at_the_end() -> None:
    job, other = enqueue(tasks.ship, 7), enqueue(tasks.ship, 7)
    assert Job.objects.filter(pk=job.pk).cancel() == 1
    assert retry(job) == 1
    job.refresh_from_db()
    assert job.wait_position is not None
    assert other.wait_position is not None
    assert job.wait_position > other.wait_position
    assert job.limit_key == f"{SHIP}/7"


def test_a_limit_is_set_and_goes_back_to_what_the_code_declares() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT _pgqueue_declare_limits('{a,b}', '{3,4}', '{wait,cancel_new}')")
        assert cursor.fetchone() == (2,)
        set_limit(name="a", concurrency=7)
        cursor.execute("SELECT _pgqueue_declare_limits('{a,b}', '{5,4}', '{wait,cancel_new}')")
        assert cursor.fetchone() == (1,)
    assert limits() == {"a": (7, "wait", 5, True), "b": (4, "cancel_new", 4, False)}
    reset_limit(name="a")
    assert limits()["a"] == (5, "wait", 5, False)
    set_limit(name="c", concurrency=2, on_full="cancel_old")
    set_limit(name="c", concurrency=3)
    assert limits()["c"] == (3, "cancel_old", None, True)
    reset_limit(name="c")
    assert "c" not in limits()


def test_a_limit_is_set_from_async_code() -> None:
    async_to_sync(aset_limit)(task=tasks.sync, concurrency=4)
    assert Limit.objects.get().name == "tenant"


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"concurrency": 0}, ValueError, "at least 1, not 0. To let no job start, pause"),
        ({"concurrency": True}, TypeError, "a whole number or None"),
        ({"concurrency": 1.0}, TypeError, "a whole number or None"),
        ({"concurrency": 2**31}, ValueError, "at least 1"),
        ({"rate_limit": 5}, TypeError, r"takes a RateLimit: write RateLimit\(5, per=1\)"),
        ({"name": "a/1", "concurrency": 1}, ValueError, "must not contain a slash"),
        ({"name": "", "concurrency": 1}, ValueError, "1 to 200 characters"),
        ({"name": "x" * 201, "concurrency": 1}, ValueError, "1 to 200 characters"),
        ({"name": "queue:mail", "concurrency": 1}, ValueError, "limits of the installation and of queues"),
        ({"name": 7, "concurrency": 1}, ValueError, "must be a string"),
        ({"queue": "mail", "concurrency": 1}, TypeError, "exactly one of"),
        ({}, TypeError, "takes concurrency=, rate_limit= or on_full="),
        ({"on_full": "wait"}, DataError, "the limit 'a' has no number: give concurrency or rate"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(given: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        set_limit(**{"name": "a", **given})


def test_what_happens_without_room_is_checked() -> None:
    with pytest.raises(ValueError, match="'wait', 'cancel_new' or 'cancel_old'"):
        set_limit(name="a", concurrency=1, on_full="fail")  # type: ignore[arg-type]
    for target in ({"everything": True}, {"queue": "mail"}):
        with pytest.raises(ValueError, match="Jobs always wait"):
            set_limit(**target, concurrency=1, on_full="cancel_new")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("'limit', 'a', 0", "must let at least 1 job run, not 0. To let none start, pause"),
        ("'limit', 'a/1', 1", "must not contain a slash"),
        ("'limit', '', 1", "the limit of kind limit needs a name"),
        ("'limit', NULL, 1", "the limit of kind limit needs a name"),
        ("'all', 'a', 1", "the limit of kind all has no name"),
        ("'a', 'b', 1", "must be queue, task, limit or all, not 'a'"),
        ("'limit', '*', 1", "is the limit of a queue or of all jobs"),
        ("'limit', 'a', 1, 'fail'", "must be 'wait', 'cancel_new' or 'cancel_old'"),
        ("'all', '', 1, 'cancel_new'", "jobs always wait"),
    ],
)
def test_sql_refuses_a_limit_that_makes_no_sense(call: str, words: str) -> None:
    with connection.cursor() as cursor, pytest.raises(DataError, match=words):
        cursor.execute(f"SELECT pgqueue_set_limit({call})")


def test_a_unique_job_has_a_concurrency_key_too() -> None:
    unique = tasks.ship.using(unique=Unique(key="order_id", scope="live", on_conflict="replace"))
    first = enqueue(unique, 7, "a")
    assert (first.limit_key, Job.objects.get(pk=first.pk).wait_position) == (f"{SHIP}/7", first.pk)
    ids = enqueue_many([unique.bind(7, "b"), unique.bind(8, "c"), tasks.ship.bind(8), tasks.ship.bind(8)]).ids
    jobs = Job.objects.in_bulk(ids)
    assert ids[0] == first.pk
    assert [jobs[pk].status for pk in ids] == ["pending", "pending", "pending", "blocked"]
    assert [jobs[pk].limit_key for pk in ids] == [f"{SHIP}/7"] + [f"{SHIP}/8"] * 3


def test_a_blocked_job_that_is_replaced_is_claimable_again_and_leaves_its_line() -> None:
    head, *blocked = enqueue_many(tasks.ship.bind(7) for _ in range(3)).ids
    Job.objects.filter(pk=blocked[0]).update(unique_key="u", unique_scope="waiting")
    other = tasks.sync.using(unique=Unique(name="u", key=(), on_conflict="replace"))
    assert enqueue(other, "acme").pk == blocked[0]
    replaced = Job.objects.get(pk=blocked[0])
    assert (replaced.status, replaced.limit_key, replaced.wait_position) == ("pending", "tenant/acme", None)
    assert Job.objects.get(pk=head).status == "pending"
    assert Job.objects.get(pk=blocked[1]).status == "blocked"
