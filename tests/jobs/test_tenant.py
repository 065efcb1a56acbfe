"""The tenant of a job, and the index of its arguments: how a job gets them, and what they are good for."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from django.db import DataError, transaction
from django.test import override_settings

from django_pgqueue import Concurrency, Unique, enqueue, enqueue_many, task
from django_pgqueue.admin import lists
from django_pgqueue.admin.lists import KeysetChangeList
from django_pgqueue.compat import InvalidTask
from django_pgqueue.context import current_tenant, for_tenant
from django_pgqueue.maintenance.payloads import synchronize_tasks
from django_pgqueue.models import Job, Schedule, UniqueWindow
from tests.admin.helpers import opened, staff
from tests.app.inline_tasks import see_and_enqueue
from tests.app.tasks import noop, searched
from tests.management.test_subcommands import run
from tests.support import jobs as support
from tests.support.factories import JobFactory, ago
from tests.support.workers import fresh, run_due

pytestmark = pytest.mark.django_db

Way = Callable[..., Job]
Tenant = str | None


def one(tenant: Tenant, **options: Any) -> Job:
    return enqueue(noop.using(tenant=tenant, **options))


def one_within(tenant: Tenant, **options: Any) -> Job:
    with for_tenant(tenant):
        return enqueue(noop.using(**options))


def many(tenant: Tenant, **options: Any) -> Job:
    return enqueue_many([noop.bind(), noop.using(tenant=tenant, **options).bind()])[1]


def many_of_one(tenant: Tenant, **options: Any) -> Job:
    return enqueue_many([noop.using(tenant=tenant).bind(), noop.using(tenant=tenant, **options).bind()])[1]


def many_within(tenant: Tenant, **options: Any) -> Job:
    with for_tenant(tenant):
        return enqueue_many([noop.bind(), noop.using(**options).bind()])[1]


def many_of_another(tenant: Tenant, **options: Any) -> Job:
    """The tenant of a call takes the place of that of the block."""
    with for_tenant("corp"):
        return enqueue_many([noop.bind(), noop.using(tenant=tenant or "corp", **options).bind()])[1]


def sql(tenant: Tenant, **options: Any) -> Job:
    return plain({"tenant": tenant, **options})


def plain(options: dict[str, Any]) -> Job:
    key = support.sql("SELECT pgqueue_enqueue(%s, options => %s)", noop.module_path, json.dumps(options))
    return Job.objects.get(pk=key)


WAYS = [one, one_within, many, many_of_one, many_within, many_of_another, sql]


@pytest.mark.parametrize("way", WAYS)
def test_a_job_has_the_tenant_of_its_call(way: Way) -> None:
    job = way("acme")
    stored = Job.objects.get(pk=job.pk)
    assert (job.tenant, stored.tenant, stored.context) == ("acme", "acme", None)
    assert Job.objects.filter(tenant="acme", shelf=0).latest("pk") == job


@pytest.mark.parametrize("way", [way for way in WAYS if way is not many_of_another])
def test_a_job_without_a_tenant_has_nothing_of_it(way: Way) -> None:
    job = Job.objects.get(pk=way(None, unique_key="k", limit_key="7" if way is sql else "sync/7").pk)
    assert (job.tenant, job.context, job.unique_key) == (None, None, "k")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.promise("tenant-own-keys")
def test_the_keys_of_tenants_are_apart(way: Way) -> None:
    first, again, other = (way(tenant, unique_key="k") for tenant in ("acme", "acme", "bolt"))
    assert first.pk == again.pk != other.pk
    replaced = one("acme", unique=Unique(on_conflict="replace"), unique_key="k")
    assert (replaced.pk, fresh(first).tenant) == (first.pk, "acme")
    nobody = one(None, unique_key="k")
    assert nobody.enqueue_outcome == "created"
    for job in (first, other):
        job.refresh_from_db()
    assert [first.unique_key, other.unique_key, nobody.unique_key] == ["acme:k", "bolt:k", "k"]


def test_what_enqueue_returns_is_what_is_stored() -> None:
    limited = noop.using(tenant="acme", unique_key="k", group_key="g")
    for each in (limited, limited.with_values({"concurrency": Concurrency(1, name="crm"), "limit_key": "7"})):
        job = enqueue(each.using(unique_key=f"k{each.limit_key}"))
        stored = Job.objects.get(pk=job.pk)
        for name in ("tenant", "context", "unique_key", "limit_key", "group_key", "wait_position"):
            assert getattr(job, name) == getattr(stored, name), name


@pytest.mark.parametrize(
    ("key", "stored"),
    [("crm", "crm/acme:"), ("crm/7", "crm/acme:7"), ("crm/a/b", "crm/acme:a/b"), ("crm/", "crm/acme:")],
)
def test_a_limit_key_keeps_the_name_of_its_limit(key: str, stored: str) -> None:
    given = json.dumps({"limit_key": key})
    assert support.sql("SELECT _pgqueue_of_tenant(%s, 'acme') ->> 'limit_key'", given) == stored


@pytest.mark.promise("tenant-own-keys")
def test_a_limit_counts_each_tenant_alone() -> None:
    """A bulk knows before its insert which job of a key waits."""
    crm = noop.with_values({"concurrency": Concurrency(1, name="crm"), "limit_key": "7"})
    calls = [crm.using(tenant=tenant).bind() for tenant in ("acme", "bolt", "acme", "bolt")]
    jobs = enqueue_many(calls)
    statuses = dict(Job.objects.values_list("pk", "status"))
    assert [statuses[pk] for pk in jobs.ids] == ["pending", "pending", "blocked", "blocked"]


@pytest.mark.promise("tenant-own-keys")
def test_a_window_is_of_one_tenant() -> None:
    hourly = noop.using(unique=Unique(window=3600, name="hourly", key=()))
    first = enqueue(hourly.using(tenant="acme"))
    assert enqueue(hourly.using(tenant="acme")).pk == first.pk
    assert enqueue(hourly.using(tenant="bolt")).enqueue_outcome == "created"
    assert sorted(UniqueWindow.objects.values_list("pk", flat=True)) == ["acme:hourly", "bolt:hourly"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.promise("tenant-carried")
def test_a_job_passes_its_tenant_on() -> None:
    first = enqueue(see_and_enqueue.using(tenant="acme"), 2)
    run_due()
    assert {job.tenant for job in Job.objects.all()} == {"acme"}
    assert Job.objects.count() == 3
    assert fresh(first).status == "done"
    assert current_tenant() is None


@pytest.mark.parametrize("name", ["", "a:b", "a/b", "a b", "ä", "x" * 64, 5])
def test_a_bad_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidTask, match="tenant must be 1 to 63 letters"):
        noop.using(tenant=name)
    with pytest.raises(InvalidTask, match="tenant must be 1 to 63 letters"), for_tenant(name):
        pass


@pytest.mark.parametrize("length", [195, 196])
def test_a_key_is_too_long_with_its_tenant(length: int) -> None:
    fits = length == 195
    refused = pytest.raises(DataError, match="unique_key has 201 characters with its tenant")
    with nullcontext() if fits else refused, transaction.atomic():
        assert one("acme", unique_key="k" * length).pk


# --- The index of arguments: which jobs are in it, by every way of enqueuing, and who finds them


def by_sql() -> int:
    synchronize_tasks("default")
    return int(
        support.sql("SELECT pgqueue_enqueue('tests.app.tasks.searched', '[17]', '{\"customer\": \"Ann\"}')")
    )


def by_schedule() -> int:
    row = Schedule.objects.create(
        name="n", task_path=searched.module_path, args=[17], kwargs={"customer": "Ann"}, cron="0 0 * * *"
    )
    return row.enqueue().pk


WAYS_TO_INDEX: dict[str, Callable[[], int]] = {
    "enqueue": lambda: enqueue(searched, 17, customer="Ann").pk,
    "enqueue_many": lambda: enqueue_many([searched.bind(order_id=17, customer="Ann")]).ids[0],
    "unique": lambda: enqueue(searched.using(unique=True), 17, customer="Ann").pk,
    "Django": lambda: searched.enqueue(17, "Ann").job.pk,
    "SQL": by_sql,
    "schedule": by_schedule,
}


@pytest.mark.parametrize("way", WAYS_TO_INDEX)
def test_every_way_of_enqueuing_indexes_the_arguments(way: str) -> None:
    pk = WAYS_TO_INDEX[way]()
    job = Job.objects.get(pk=pk)
    assert job.searched == ["customer=Ann", "order_id=17"]
    assert [*Job.objects.with_arguments(order_id=17)] == [*Job.objects.with_arguments(order_id="17")] == [job]
    assert not Job.objects.with_arguments(order_id=17, customer="Bob")


def test_what_is_not_indexed() -> None:
    enqueue(noop, 17)
    assert Job.objects.get().searched is None
    enqueue(searched, [17], customer={"name": "Ann"})
    assert Job.objects.latest("pk").searched is None, "lists and objects"
    long = enqueue(searched, None, customer="x" * 300)
    found = Job.objects.get(pk=long.pk)
    assert found.searched == [f"customer={'x' * 191}", "order_id=null"]
    assert [*Job.objects.with_arguments(order_id=None, customer="x" * 300)] == [found]
    with override_settings(PGQUEUE={"REDACT": ["customer"]}):
        assert Job.objects.get(pk=enqueue(searched, 18, customer="Ann").pk).searched == ["order_id=18"]


def test_another_call_takes_the_place_of_the_index_too() -> None:
    one = searched.using(unique=Unique(key=(), on_conflict="replace"))
    enqueue(one, 17)
    job = enqueue(one, 18)
    assert Job.objects.get(pk=job.pk).searched == ["order_id=18"]


@pytest.mark.parametrize(
    "names", ["order_id", [5], ["none"], ["a", "a"], [f"a{n}" for n in range(9)], [""], 5]
)
def test_a_wrong_declaration(names: Any) -> None:
    with pytest.raises(InvalidTask, match="search"):
        task(search=names)(searched.func)


def test_the_console_finds_them_without_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeysetChangeList, "window", 1)
    monkeypatch.setattr(lists, "PATIENCE", 0.0)
    live = enqueue(searched, 17, customer="Ann Lee")
    over = JobFactory.create(done=True, finished_at=ago(days=30), searched=["order_id=17"])
    for number in range(5):
        enqueue(searched, number)
    for term in ("order_id=17", "kwargs.order_id=17", " order_id = 17"):
        page = opened(q=term)
        assert [row.pk for row in page.result_list] == [over.pk, live.pk]
        assert (page.cut, page.is_scan) == (False, False)
    page = opened(q="customer=Ann Lee", task=searched.module_path)
    assert [row.pk for row in page.result_list] == [live.pk]
    other = JobFactory.create(kwargs={"order_id": 17}, task_path="tests.app.tasks.noop")
    page = opened(q="order_id=17", task="tests.app.tasks.noop")
    assert ([row.pk for row in page.result_list], page.is_scan) == ([other.pk], True), "it indexes nothing"
    assert opened(q="kwargs.number=17").is_scan


def test_the_command_finds_them_in_the_index() -> None:
    job = enqueue(searched, 17, customer="Ann Lee")
    other = JobFactory.create(kwargs={"order_id": 17}, task_path="tests.app.tasks.noop")
    nested = JobFactory.create(kwargs={"order_id": {"id": 17}})
    enqueue(searched, "17", customer="Bob")

    def listed(*options: str) -> list[int]:
        return [int(pk) for pk in run("jobs", "--quiet", *options).split()]

    assert listed("--arg", "order_id=17", "--arg", "customer=Ann Lee") == [job.pk]
    assert listed("--arg", "order_id=17", "--arg", "other=5") == []
    assert listed("--arg", 'order_id="17"') == [job.pk + 3], "not the number"
    unindexed = listed("--arg", "order_id=17", "--task", "tests.app.tasks.noop")
    assert unindexed == [other.pk]
    assert listed("--arg", "order_id.id=17") == [nested.pk]
    assert other.pk not in listed("--arg", "order_id=17"), "those of the index only"
    assert "3 jobs were" in run("cancel", "--arg", "order_id=17", "--yes"), "all of them"


def test_nobody_finds_what_is_redacted_for_them() -> None:
    job = enqueue(searched, 17, customer="Ann")
    assert [row.pk for row in opened(q="customer=Ann").result_list] == [job.pk]
    page = opened(staff("view_job"), q="customer=Ann")
    assert (page.result_list, page.is_scan) == ([], True), "as if there were no such job"
    for redact in (["customer"], ["re:Ann"]):
        with override_settings(PGQUEUE={"REDACT": redact}):
            assert opened(q="customer=Ann").result_list == [], redact
