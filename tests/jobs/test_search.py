"""The index of arguments: which jobs are in it, by every way of enqueuing, and who finds them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings
from django.utils import timezone

from django_pgqueue import InvalidTask, Unique, enqueue, enqueue_many, task
from django_pgqueue.admin import lists
from django_pgqueue.admin.lists import KeysetChangeList
from django_pgqueue.maintenance.payloads import synchronize_tasks
from django_pgqueue.models import Job, Schedule
from tests.admin.helpers import opened, staff
from tests.app import tasks
from tests.app.tasks import noop, searched
from tests.management.test_subcommands import run
from tests.support.factories import JobFactory
from tests.support.jobs import sql

pytestmark = pytest.mark.django_db


def by_sql() -> int:
    synchronize_tasks("default")
    return int(sql("SELECT pgqueue_enqueue('tests.app.tasks.searched', '[17]', '{\"customer\": \"Ann\"}')"))


def by_schedule() -> int:
    row = Schedule.objects.create(
        name="n", task_path=searched.module_path, args=[17], kwargs={"customer": "Ann"}, cron="0 0 * * *"
    )
    return row.enqueue().pk


WAYS: dict[str, Callable[[], int]] = {
    "enqueue": lambda: enqueue(searched, 17, customer="Ann").pk,
    "enqueue_many": lambda: enqueue_many([searched.bind(order_id=17, customer="Ann")]).ids[0],
    "unique": lambda: enqueue(searched.using(unique=True), 17, customer="Ann").pk,
    "Django": lambda: searched.enqueue(17, "Ann").job.pk,
    "SQL": by_sql,
    "schedule": by_schedule,
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_enqueuing_indexes_the_arguments(way: str) -> None:
    pk = WAYS[way]()
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


def test_the_index_is_kept_in_history_and_after_a_retry() -> None:
    job = enqueue(searched, 17)
    job.cancel()
    job.refresh_from_db()
    assert (job.shelf > 0, job.searched) == (True, ["order_id=17"])
    job.retry()
    job.refresh_from_db()
    assert (job.shelf, [*Job.objects.with_arguments(order_id=17)]) == (0, [job])


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
        task(search=names)(tasks.searched.func)


def test_the_console_finds_them_without_a_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeysetChangeList, "window", 1)
    monkeypatch.setattr(lists, "PATIENCE", 0.0)
    live = enqueue(searched, 17, customer="Ann Lee")
    over = JobFactory.create(
        done=True, finished_at=timezone.now() - timedelta(days=30), searched=["order_id=17"]
    )
    for number in range(5):
        enqueue(searched, number)
    for term in ("order_id=17", "kwargs.order_id=17", " order_id = 17"):
        page = opened(q=term)
        assert ([row.pk for row in page.result_list], page.cut, page.is_scan) == (
            [over.pk, live.pk],
            False,
            False,
        )
    assert [row.pk for row in opened(q="customer=Ann Lee", task=searched.module_path).result_list] == [
        live.pk
    ]
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
    assert listed("--arg", "order_id=17", "--task", "tests.app.tasks.noop") == [other.pk], (
        "it indexes nothing"
    )
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
