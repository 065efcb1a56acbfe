"""Shards: their names and numbers, and the calls that are spread over them.

``default`` and ``other`` are two databases, and the third shard, if a test has one, is a new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from django.core.management.base import CommandError
from django.db import OperationalError, transaction
from django.test import override_settings
from django.utils import timezone

from django_pgqueue import Batch, Concurrency, InvalidTask, enqueue, enqueue_many, shard_for, task
from django_pgqueue.checks.database import database_problems
from django_pgqueue.models import Job
from django_pgqueue.tasks import shards
from tests.app.tasks import noop
from tests.management.test_subcommands import run
from tests.support.databases import alias, any_alias, fresh_database, migrate, sharded
from tests.support.jobs import sql
from tests.support.sessions import Connect
from tests.support.workers import run_due

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])
TWO = {"SHARDS": ["default", "other"]}


@task(spread="customer")
def bill(customer: str, *, amount: int = 0) -> str:
    return customer


@task(spread="customer", unique=True)
def remind(customer: str) -> str:
    return customer


@task(spread=True)
def ping() -> None: ...


@pytest.fixture(autouse=True)
def _states_are_read_again() -> Iterator[None]:
    shards.forget()
    yield
    shards.forget()
    for name in ("default", "other"):
        sql("DELETE FROM pgqueue_shard", using=name)


@contextmanager
def third_shard() -> Iterator[str]:
    with (
        fresh_database() as database,
        alias("s2", NAME=database),
        override_settings(PGQUEUE={"SHARDS": ["default", "other", "s2"]}),
    ):
        migrate("s2")
        with any_alias():
            yield "s2"


def problems(name: str) -> list[str]:
    return [str(each.id) for each in database_problems(name)]


# -- the name and the number


def test_a_shard_gets_a_name_and_numbers_of_its_own() -> None:
    with third_shard() as name:
        assert "pgqueue.W017" in problems(name)
        assert "shard 0." in run("shard", "add", "default")
        sql("INSERT INTO pgqueue_shard (name, number) VALUES ('other', 3)", using="other")
        assert "s2:70368744177665 or higher" in run("shard", "add", "s2")  # 4 * 2^44 + 1
        assert "shard 4." in run("shard", "add", "s2")  # again: nothing changes
        assert problems(name) == []
        job = enqueue(bill.using(database="s2"), "ann")
        assert job.pk == 4 * 2**44 + 1
        run_due(alias="s2")
        job.refresh_from_db()
        assert (job.status, job.result) == ("done", "ann")
        with pytest.raises(CommandError, match="has the number 4, which cannot become 5"):
            run("shard", "add", "s2", "--number", "5")


def test_an_alias_that_names_another_shard_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    sql("INSERT INTO pgqueue_shard (name, number) VALUES ('s7', 7)", using="other")
    assert problems("other") == []  # it is no shard of this project
    with override_settings(PGQUEUE=TWO):
        assert problems("other") == ["pgqueue.E033"]
        with pytest.raises(CommandError, match="is the shard 's7'"):
            run("shard", "drain", "other")


def test_the_list_names_what_does_not_answer(wording: Any) -> None:
    with sharded("down"):
        run("shard", "add", "default", "--number", "0")
        enqueue(ping.using(database="default"))
        assert run("shard") == wording
        with pytest.raises(CommandError, match="The database down did not answer"):
            run("shard", "add", "other")


# -- calls that are spread


def test_a_key_stays_where_it_is_if_a_shard_is_added_or_drained() -> None:
    keys = [f"customer-{number}" for number in range(300)]
    with override_settings(PGQUEUE=TWO):
        before = {key: shard_for(key) for key in keys}
    assert {*before.values()} == {"default", "other"}
    with third_shard() as name:
        added = {key: shard_for(key) for key in keys}
        assert {key for key in keys if added[key] != before[key]} == {
            key for key in keys if added[key] == name
        }
        assert min(Counter(added.values()).values()) > 60  # of 100
        run("shard", "add", name, "--number", "2")
        run("shard", "drain", name)
        shards.forget()
        assert {key: shard_for(key) for key in keys} == before
        assert "again" in run("shard", "activate", name)


def test_a_unique_key_is_exact_if_the_old_shard_has_no_jobs_of_it() -> None:
    """Keys hold on each shard by itself: while a job waits on the old one, the new one does not know it."""
    with third_shard() as name:
        customer = next(key for key in map(str, range(100)) if shard_for(key) == name)
        for drains_first in (False, True):
            with override_settings(PGQUEUE=TWO):
                old = enqueue(remind, customer)
                assert enqueue(remind, customer).pk == old.pk
            if drains_first:
                run_due(alias=old.database)
            new, again = enqueue(remind, customer), enqueue(remind, customer)
            assert (new.database, again.pk, again.enqueue_outcome) == (name, new.pk, "existing")
            waiting = sum(
                Job.objects.using(each).filter(shelf=0).count() for each in ("default", "other", name)
            )
            assert waiting == (1 if drains_first else 2)
            for each in ("default", "other", name):
                run_due(alias=each)


def test_a_unique_key_moves_with_its_job() -> None:
    """Once the relay has handed it over, the same call finds it on its new shard."""
    with override_settings(PGQUEUE=TWO):
        customer = next(key for key in map(str, range(100)) if shard_for(key) == "other")
        run("shard", "add", "default", "--number", "0")
        run("shard", "add", "other", "--number", "1")
        enqueue(remind, customer)
        assert "hands over 1 waiting job" in run("shard", "drain", "other", "--move")
        run_due(alias="other", queues=("relay",))
        moved = Job.objects.get(task_path=remind.module_path)
        assert enqueue(remind, customer) == moved
        assert not Job.objects.using("other").filter(shelf=0).exists()


def test_calls_go_to_the_shard_of_their_key_or_anywhere() -> None:
    with override_settings(PGQUEUE=TWO):
        for customer in ("ann", "bob", "cid", "dan"):
            assert enqueue(bill, customer).database == shard_for(customer)
            assert enqueue(bill, customer=customer, amount=3).database == shard_for(customer)
        assert enqueue(bill.using(database="other"), "ann").database == "other"
        assert {enqueue(ping).database for _ in range(50)} == {"default", "other"}
        assert len({job.database for job in enqueue_many([ping.bind()] * 20)}) == 1
        assert bill.enqueue("ann").job.database == shard_for("ann")
    assert enqueue(ping).database == "default"  # without SHARDS there is one database


def test_a_spread_job_is_not_part_of_a_transaction_elsewhere() -> None:
    with override_settings(PGQUEUE=TWO):
        mine, others = shard_for("ann"), ({"default", "other"} - {shard_for("ann")}).pop()
        with transaction.atomic(using=others), pytest.raises(InvalidTask, match="relay"):
            enqueue(bill, "ann")
        with transaction.atomic(using=others), pytest.raises(InvalidTask, match="on_commit"):
            enqueue(ping)
        with transaction.atomic(using=mine):
            enqueue(bill, "ann")
        with pytest.raises(InvalidTask, match=r"Name that one: .using\(database="):
            enqueue(ping.using(after=enqueue(ping)))
    assert Job.objects.using(others).count() + Job.objects.using(mine).count() == 2


@pytest.mark.django_db(databases=["default", "other"])
@override_settings(PGQUEUE=TWO)
def test_the_transaction_of_a_test_case_does_not_count() -> None:
    assert enqueue(ping).pk


def test_nothing_is_spread_to_a_shard_that_drains_or_does_not_answer() -> None:
    with sharded("down"):
        run("shard", "add", "default", "--number", "0")
        run("shard", "drain", "default")
        shards.forget()
        assert {enqueue(ping).database for _ in range(20)} == {"other"}
    with override_settings(PGQUEUE={"SHARDS": ["default"]}), pytest.raises(InvalidTask, match="All shards"):
        enqueue(ping)


def test_a_call_with_a_key_fails_if_its_shard_cannot_be_reached_and_goes_to_no_other() -> None:
    """Another shard does not know the unique jobs and the limits of the key."""
    with sharded("down"):
        customers = [key for key in map(str, range(100)) if shard_for(key) == "down"]
        for call in (bill, remind, bill.using(priority=5)):
            with pytest.raises(OperationalError):
                enqueue(call, customers[0])
        with pytest.raises(OperationalError):
            enqueue_many([bill.bind(customer) for customer in customers])
        assert not any(Job.objects.using(name).exists() for name in ("default", "other"))
        assert {shard_for(customer) for customer in customers} == {"down"}


# -- the jobs of a shard that is drained


@task(spread=True, unique=True, concurrency=Concurrency(1, key="number"))
def counted(number: int) -> int:
    return number


@pytest.mark.parametrize("tenant", [None, "acme"])
def test_waiting_jobs_that_are_spread_move_to_the_other_shards(tenant: str | None) -> None:
    options: dict[str, Any] = {
        "tenant": tenant, "priority": 7, "metadata": {"a": 1}, "max_attempts": 2, "queue_name": "mail",
        "run_after": timezone.now() + timedelta(hours=1),
    }  # fmt: skip
    with override_settings(PGQUEUE=TWO):
        run("shard", "add", "default", "--number", "0")
        run("shard", "add", "other", "--number", "1")
        moves = enqueue(counted.using(database="other", **options), 5)
        parent = enqueue(ping.using(database="other"))
        stays = [enqueue(ping.using(database="other", after=parent)), enqueue(noop.using(database="other"))]
        stays += [enqueue(counted.using(database="other", unique_key="odd"), 6)]
        batch = Batch.open(using="other")
        stays += [enqueue(ping.using(database="other", batch=batch))]
        batch.close()
        said = run("shard", "drain", "other", "--move")
        assert "hands over 1 waiting job to" in said
        assert "1 waiting job cannot be moved" in said
        moves.refresh_from_db()
        assert (moves.status, moves.waiting_reason) == ("cancelled", "moved to another shard by the relay")
        assert Job.objects.using("other").filter(status="cancelled").count() == 1
        handed = Job.objects.using("other").get(queue_name="relay")
        run_due(alias="other", queues=("relay",))
        handed.refresh_from_db()
        new = Job.objects.get(pk=str(handed.result))
        for name in ("args", "unique_key", "limit_key", *options):
            assert getattr(new, name) == getattr(moves, name)
        assert run("shard", "drain", "other", "--move").count("hands over 0") == 1
        for job in (parent, *stays):
            job.refresh_from_db()
            assert job.status in ("pending", "blocked")


def test_a_job_that_a_worker_claims_is_not_moved(connect: Connect) -> None:
    """Race: the move finds the row locked, by a claim for example, and leaves it out."""
    with override_settings(PGQUEUE=TWO):
        run("shard", "add", "other", "--number", "1")
        job = enqueue(ping.using(database="other"))
        worker = connect("other")
        worker.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", (job.pk,))
        assert "hands over 0 waiting jobs" in run("shard", "drain", "other", "--move")
        worker.rollback()
        assert "hands over 1 waiting job" in run("shard", "drain", "other", "--move")


def test_a_shard_that_hangs_does_not_keep_calls_from_the_others() -> None:
    with sharded("silent"):
        began = monotonic()
        assert {enqueue(ping).database for _ in range(20)} == {"default", "other"}
        assert monotonic() - began < 10  # it was asked once, for two seconds


def test_what_cannot_be_a_key_of_spread() -> None:
    for key in ("nobody", 5, "", False):
        with pytest.raises(InvalidTask, match="spread"):
            task(spread=key)(bill.func)  # type: ignore[arg-type]
