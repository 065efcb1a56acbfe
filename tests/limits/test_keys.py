"""The limit key and the group of a job: how a task declares them, and how they get into the row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import DataError, transaction

from django_pgqueue import Concurrency, RateLimit, Unique, enqueue, enqueue_many, retry, set_limit, task
from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import InvalidKey
from django_pgqueue.models import Job
from django_pgqueue.models.changes import run_now
from django_pgqueue.tasks.keys import group_key, limit_key
from tests.app import limit_tasks, limit_tasks as tasks
from tests.app.tasks import noop
from tests.support.jobs import sql
from tests.support.wording import refusals

PATH = "tests.app.limit_tasks."
LATER = timedelta(hours=1)
REPLACE = Unique(key="order_id", scope="live", on_conflict="replace")

#: Without types, for calls that type checkers refuse.
ship: Any = tasks.ship
serve: Any = limit_tasks.serve


class Region(StrEnum):
    NORTH = "n"


# --- The key of a call


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("acme", "acme"), ("a/b", "a/b"), (7, "7"), (Decimal("1.50"), "1.50"),
        (UUID(int=1), f"{UUID(int=1)}"), (date(2026, 1, 2), "2026-01-02"), (Region.NORTH, "n"), (None, None),
    ],
)  # fmt: skip
def test_the_value_of_an_argument_is_the_key(value: Any, text: str | None) -> None:
    whole = None if text is None else f"{PATH}ship/{text}"
    assert limit_key(ship, (value,), {}) == limit_key(ship, (), {"order_id": value}) == whole
    assert group_key(serve, (value, 1), {}) == group_key(serve, (), {"tenant": value, "number": 1}) == text


def made(call: Any = ship, **options: Any) -> Any:
    """Declare the task again, with other options."""
    return task(**options)(call.func)


def keyed(key: Any) -> Any:
    return made(concurrency=Concurrency(1, key=key), group=key)


def shared(call: Any, argument: str, per: Any) -> Any:
    return made(call, rate_limit=RateLimit(1, per=per, key=argument, name="orders"))


def test_the_keys_of_a_call(wording: Any) -> None:
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (tasks.two, ("a",), {}), (tasks.report, (), {}), (tasks.report, (), {"region": None}),
        (keyed(("name", "order_id")), (7,), {"name": "é"}),
        (keyed(("order_id", "name")), (UUID(int=1),), {}),
        (made(concurrency=Concurrency(1, key=())), (7,), {}), (tasks.sync, ("acme.shop",), {}),
        (limit_tasks.by_domain, ("ann@acme",), {}), (limit_tasks.plain, (1,), {}),
        # Tasks share a key by its name, also if their arguments have other names.
        (shared(ship, "order_id", 60), (7,), {}), (shared(tasks.two, "name", 60.0), (7,), {}),
        # The call names it, whatever the task does.
        (ship.using(limit_key="x", group_key="vip"), (7,), {}), (tasks.two.using(limit_key="x"), ("a",), {}),
        (serve.using(group_key="vip"), ("acme", 1), {}),
    ]  # fmt: skip
    assert [f"{limit_key(*call)}, group {group_key(*call)}" for call in calls] == wording


async def later(name: str) -> str:
    return name


NO_KEYS: list[Callable[[], object]] = [
    lambda: limit_key(ship, ("x" * 200,), {}), lambda: group_key(serve, ("x" * 201, 1), {}),
    lambda: group_key(serve, ("", 1), {}),
    *(partial(limit_key, ship, (value,), {}) for value in ([1], True, "a\0b", "\ud800")),
    *(partial(group_key, serve, (value, 1), {}) for value in ([1], True, "a\0b", "\ud800")),
    lambda: limit_key(tasks.sync, (7,), {}), lambda: group_key(limit_tasks.by_domain, ("a",), {}),
    lambda: limit_key(made(tasks.two, concurrency=Concurrency(1, key=later)), ("a",), {}),
]  # fmt: skip
MINUTE_RATE = RateLimit(1, per=60)
BAD_OPTIONS: list[Callable[[], object]] = [
    lambda: made(concurrency=Concurrency(1, key="order")),
    lambda: made(rate_limit=RateLimit(1, per=60, key="order")), lambda: made(serve, group="nobody"),
    lambda: made(concurrency="order_id"), lambda: made(rate_limit=7), lambda: made(serve, group=5),
    lambda: made(serve, group=""), lambda: made(serve, group=()),
    # A job has one key, and always waits for its rate.
    lambda: made(rate_limit=RateLimit(1, per=60, key="name"), concurrency=3),
    lambda: made(rate_limit=RateLimit(1, per=60, name="a"), concurrency=3),
    lambda: made(rate_limit=MINUTE_RATE, concurrency=Concurrency(3, on_full="cancel_new")),
    # The value has no name of a limit, which it would have twice.
    lambda: ship.using(limit_key=f"{PATH}ship/7"), lambda: ship.using(limit_key=7),
    lambda: tasks.two.using(limit_key="x" * 201),
    *(partial(serve.using, group_key=key) for key in ("", 7, "x" * 201)),
]  # fmt: skip


def test_what_is_refused_where_it_is_written_or_computed(wording: Any) -> None:
    assert refusals(InvalidKey, *NO_KEYS) == wording
    assert refusals(InvalidTask, *BAD_OPTIONS) == wording


def test_a_number_is_the_concurrency_of_all_jobs() -> None:
    assert tasks.two.concurrency == Concurrency(2)


# --- The row of a job


@pytest.mark.django_db
def test_each_way_to_enqueue_stores_the_keys_and_the_place_in_line(wording: Any) -> None:
    calls = [
        ship.bind(7), ship.using(run_after=LATER).bind(7), ship.using(unique=Unique(key="order_id")).bind(7),
        ship.using(unique=REPLACE).bind(7), tasks.report.bind(region=None), tasks.quick.bind(7),
        tasks.quick.using(limit_key="x").bind(7), tasks.hourly.bind("a"), serve.bind("acme", 1),
        serve.using(unique=Unique(key="number")).bind("acme", 1), noop.bind(),
    ]  # fmt: skip
    ways: list[Callable[[Any], Job]] = [enqueue, lambda call: enqueue_many([call])[0]]
    for way in ways:
        stored = []
        for call in calls:
            with transaction.atomic():
                job = way(call)
                for row in (job, Job.objects.get(pk=job.pk)):
                    assert (row.status, row.wait_position) in (("pending", None), ("pending", job.pk))
                    line = "in line" if row.wait_position else "not in line"
                    stored.append(f"{row.limit_key} {line}, group {row.group_key}")
                transaction.set_rollback(True)
        assert stored[::2] == stored[1::2] == wording(name="each way")


@pytest.mark.django_db
def test_a_job_that_waits_for_others_is_in_no_line() -> None:
    waits = ship.using(after=enqueue(noop))
    one, two, three, four = (waits.bind(7), *(waits.using(unique_key=key).bind(7) for key in "abc"))
    for job in (enqueue(one), enqueue(two), *enqueue_many([one, three]), *enqueue_many([four])):
        assert (job.status, job.wait_position) == ("blocked", None)


@pytest.mark.django_db
@pytest.mark.parametrize(("calls", "blocked"), [
    ([ship.bind(1), noop.bind(), ship.bind(1), ship.bind(2), ship.using(run_after=LATER).bind(1),
      ship.using(priority=5).bind(1), ship.using(queue_name="mail").bind(1), tasks.report.bind(region=None)],
     [0, 2]),
    ([tasks.refresh.bind("a")] * 3, []),  # which finds no room, and is cancelled
    ([ship.using(unique=REPLACE).bind(8), ship.bind(8), ship.bind(8)], [2]),
])  # fmt: skip
def test_many_jobs_of_a_key_stand_behind_the_first_of_their_queue_and_priority(
    calls: list[Any], blocked: list[int]
) -> None:
    set_limit(task=tasks.refresh, concurrency=1, on_full="cancel_new")
    ids = enqueue_many(calls).ids
    jobs = Job.objects.in_bulk(ids)
    found = {place: jobs[pk].waiting_reason for place, pk in enumerate(ids) if jobs[pk].status == "blocked"}
    assert found == dict.fromkeys(blocked, "waits for its limit key")


@pytest.mark.django_db
def test_a_key_that_cannot_be_computed_is_refused_before_anything_is_inserted() -> None:
    with pytest.raises(InvalidKey):
        enqueue(tasks.sync, 7)  # type: ignore[arg-type]
    with pytest.raises(InvalidKey, match="item 1: The callable"):
        enqueue_many([tasks.sync.bind("a"), tasks.sync.bind(7)])  # type: ignore[arg-type]
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_a_job_that_is_due_later_or_again_joins_the_line_at_the_end() -> None:
    job, later = enqueue(ship, 7), enqueue(ship.using(run_after=LATER), 7)
    other = enqueue(ship, 7)
    assert (Job.objects.filter(pk=job.pk).cancel(), retry(job), run_now(later)) == (1, 1, 1)
    line = Job.objects.filter(limit_key=f"{PATH}ship/7").order_by("wait_position")
    assert list(line.values_list("pk", flat=True)) == [other.pk, job.pk, later.pk]


@pytest.mark.django_db
def test_a_job_that_takes_the_place_of_its_twin_brings_its_keys() -> None:
    """One that was blocked is claimable again, and leaves its line."""
    head, *blocked = enqueue_many(ship.bind(7) for _ in range(3)).ids
    Job.objects.filter(pk=blocked[0]).update(unique_key="u", unique_scope="waiting")
    replace = tasks.sync.using(unique=Unique(name="u", key=(), on_conflict="replace"), group_key="tiny")
    assert enqueue(replace, "acme").pk == blocked[0]
    replaced = Job.objects.get(pk=blocked[0])
    assert (replaced.limit_key, replaced.wait_position, replaced.group_key) == ("tenant/acme", None, "tiny")
    statuses = dict(Job.objects.values_list("pk", "status"))
    assert statuses == {head: "pending", blocked[0]: "pending", blocked[1]: "blocked"}


# --- SQL


@pytest.mark.django_db
def test_sql_takes_the_part_after_the_slash() -> None:
    sql("SELECT pgqueue_enqueue('a.b', options => '{\"limit_key\": \"tenant/7\"}')")
    assert Job.objects.get().limit_key == "a.b/tenant/7"
    with pytest.raises(DataError, match="limit_key has 201 characters, but the limit is 200"):
        sql("SELECT pgqueue_enqueue('a.b', options => jsonb_build_object('limit_key', repeat('x', 197)))")
