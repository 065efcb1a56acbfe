"""The tenant of a job: how it gets one, what carries it on, and that the keys of tenants are apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from django.db import DataError, transaction

from django_pgqueue import Concurrency, Unique, cancel, enqueue, enqueue_many, retry
from django_pgqueue.compat import InvalidTask
from django_pgqueue.context import current_tenant, for_tenant
from django_pgqueue.models import Job, UniqueWindow
from tests.app import worker_tasks as tasks
from tests.app.tasks import noop
from tests.support import jobs as support
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


def sql_context(tenant: Tenant, **options: Any) -> Job:
    return plain({**options, "context": {"tenant": tenant}} if tenant else options)


def plain(options: dict[str, Any]) -> Job:
    key = support.sql("SELECT pgqueue_enqueue(%s, options => %s)", noop.module_path, json.dumps(options))
    return Job.objects.get(pk=key)


WAYS = [one, one_within, many, many_of_one, many_within, many_of_another, sql, sql_context]


@pytest.mark.parametrize("way", WAYS)
def test_a_job_has_the_tenant_of_its_call(way: Way) -> None:
    job = way("acme")
    stored = Job.objects.get(pk=job.pk)
    assert (job.tenant, stored.tenant, stored.context) == ("acme", "acme", {"tenant": "acme"})
    assert Job.objects.filter(tenant="acme", shelf=0).latest("pk") == job


@pytest.mark.parametrize("way", [way for way in WAYS if way is not many_of_another])
def test_a_job_without_a_tenant_has_nothing_of_it(way: Way) -> None:
    job = Job.objects.get(pk=way(None, unique_key="k", limit_key="sync/7" if way not in KEYED else "7").pk)
    assert (job.tenant, job.context, job.unique_key) == (None, None, "k")


KEYED: list[Way] = [sql, sql_context]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.promise("tenant-own-keys")
def test_the_keys_of_tenants_are_apart(way: Way) -> None:
    first, again, other = (
        way("acme", unique_key="k"),
        way("acme", unique_key="k"),
        way("bolt", unique_key="k"),
    )
    assert first.pk == again.pk != other.pk
    nobody = one(None, unique_key="k")
    assert nobody.enqueue_outcome == "created"
    for job in (first, other):
        job.refresh_from_db()
    assert [first.unique_key, other.unique_key, nobody.unique_key] == ["acme:k", "bolt:k", "k"]


def test_what_enqueue_returns_is_what_is_stored() -> None:
    limited = noop.using(tenant="acme", unique_key="k", group_key="g")
    for task in (limited, limited.with_values({"concurrency": Concurrency(1, name="crm"), "limit_key": "7"})):
        job = enqueue(task.using(unique_key=f"k{task.limit_key}"))
        stored = Job.objects.get(pk=job.pk)
        for name in ("tenant", "context", "unique_key", "limit_key", "group_key", "wait_position"):
            assert getattr(job, name) == getattr(stored, name), name


@pytest.mark.parametrize(
    ("key", "stored"),
    [("crm", "crm/acme:"), ("crm/7", "crm/acme:7"), ("crm/a/b", "crm/acme:a/b"), ("crm/", "crm/acme:")],
)
def test_a_limit_key_keeps_the_name_of_its_limit(key: str, stored: str) -> None:
    given = json.dumps({"tenant": "acme", "limit_key": key})
    assert support.sql("SELECT _pgqueue_of_tenant(%s) ->> 'limit_key'", given) == stored


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
    first = enqueue(tasks.enqueue_chain.using(tenant="acme"), 2)
    run_due()
    assert {job.tenant for job in Job.objects.all()} == {"acme"}
    assert Job.objects.count() == 3
    assert fresh(first).status == "done"
    assert current_tenant() is None


@pytest.mark.promise("tenant-carried")
def test_history_keeps_it_and_so_does_a_retry() -> None:
    job = one("acme", unique_key="k")
    assert cancel(job)
    assert (fresh(job).status, fresh(job).tenant) == ("cancelled", "acme")
    assert retry(job)
    assert (fresh(job).status, fresh(job).tenant, fresh(job).unique_key) == ("pending", "acme", "acme:k")
    replaced = one("acme", unique=Unique(on_conflict="replace"), unique_key="k")
    assert (replaced.pk, fresh(job).tenant) == (job.pk, "acme")


@pytest.mark.parametrize("name", ["", "a:b", "a/b", "a b", "ä", "x" * 64, 5])
def test_a_bad_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidTask, match="tenant must be 1 to 63 letters"):
        noop.using(tenant=name)
    with pytest.raises(InvalidTask, match="tenant must be 1 to 63 letters"), for_tenant(name):
        pass
    for options in ({"tenant": name}, {"context": {"tenant": name}}):
        with pytest.raises(DataError, match="must be a string of 1 to 63"), transaction.atomic():
            plain(options)


@pytest.mark.parametrize("length", [195, 196])
def test_a_key_is_too_long_with_its_tenant(length: int) -> None:
    fits = length == 195
    refused = pytest.raises(DataError, match="unique_key has 201 characters with its tenant")
    with nullcontext() if fits else refused, transaction.atomic():
        assert one("acme", unique_key="k" * length).pk
