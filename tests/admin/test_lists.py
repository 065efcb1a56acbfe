"""Lists of jobs: filters, search, pages."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from django_pgqueue.admin import changelist, filters, names
from django_pgqueue.figures.queues import queue_figures
from tests.app import tasks  # noqa: F401 - known to this process
from tests.support.factories import JobFactory, JobStatFactory, QueueFactory

from .helpers import STATES, body, listed, url

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("state", STATES)
def test_the_filter_by_status(root: Client, state: str) -> None:
    jobs = {name: JobFactory.create(**options) for name, options in STATES.items()}
    assert listed(root, status=state) == [jobs[state].pk]


def test_a_queue_that_keeps_done_jobs_for_long(root: Client) -> None:
    kept = JobFactory.create(done=True, shelf=9)
    assert listed(root, status="done") == [kept.pk]


def test_the_filters_by_queue_task_and_time(root: Client) -> None:
    mail = JobFactory.create(queue_name="mail", done=True, finished_at=timezone.now() - timedelta(hours=2))
    other = JobFactory.create(task_path="a.b", failed=True)
    JobFactory.create()
    assert listed(root, queue="mail") == [mail.pk]
    assert listed(root, task="a.b") == [other.pk]
    assert listed(root, finished="hour") == [other.pk]
    assert listed(root, finished="day") == [other.pk, mail.pk]
    assert listed(root, finished="day", queue="mail", status="done") == [mail.pk]


def test_the_choices_of_the_filters(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MOST_CHOICES", 10_000)  # the tests have many tasks
    JobFactory.create(queue_name="waiting")
    QueueFactory.create(name="configured")
    JobStatFactory.create(queue_name="ran", task_path="shop.tasks.ran")
    JobStatFactory.create(queue_name="ran long ago", minute=timezone.now() - timedelta(days=2))
    page = body(root, url("changelist"), queue="chosen", task="chosen.task")
    for name in ("waiting", "configured", "ran", "chosen"):
        assert f">{name}</a>" in page
    assert ">ran long ago<" not in page
    assert ">shop.<wbr>tasks.<wbr>ran</a>" in page, "a long path breaks between its words"
    assert ">tests.<wbr>app.<wbr>tasks.<wbr>noop</a>" in page
    assert ">chosen.<wbr>task</a>" in page


@pytest.mark.parametrize(
    "query", ["status=x", "queue=a%00b", "q=a%00b", "finished=x", "p=x", "p=0", f"p={10**30}", "o=2"]
)
def test_odd_addresses_are_answered(root: Client, query: str) -> None:
    job = JobFactory.create()
    response = root.get(f"{url('changelist')}?{query}")
    assert response.status_code == 200
    assert [row.pk for row in response.context["cl"].result_list] in ([job.pk], [])


def test_search_by_id_and_by_task(root: Client) -> None:
    job, other = JobFactory.create(done=True), JobFactory.create(task_path="shop.tasks.send_receipt")
    assert listed(root, q=job.pk) == [job.pk]
    assert listed(root, q=f" default:{job.pk} ") == [job.pk]
    assert listed(root, q="RECEIPT") == [other.pk]
    assert listed(root, q="nothing like it") == []
    assert listed(root, q=str(2**63)) == []
    assert len(listed(root, q=" ")) == 2


@pytest.mark.usefixtures("small_pages")
def test_pages_forth_and_back_miss_nothing(root: Client) -> None:
    ids = sorted((job.pk for job in JobFactory.create_batch(8)), reverse=True)
    assert [listed(root), *walk(root, "older")] == [ids[:3], ids[3:6], ids[6:]]
    assert list(walk(root, "newer", start=f"?p={ids[5]}")) == [ids[3:6], ids[:3]]
    assert listed(root, queue="default", p=ids[2]) == ids[3:6]


def test_filters_know_queues_and_tasks_that_only_have_live_jobs(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "MOST_CHOICES", 10_000)
    for state, options in STATES.items():
        JobFactory.create(queue_name=f"queue {state}", task_path=f"shop.tasks.{state}", **options)
    queues = names.queue_names("default")
    assert queues == [queue.name for queue in queue_figures("default")[0]]
    assert queues == ["queue blocked", "queue failed", "queue pending", "queue retry", "queue running"]
    page = body(root, url("changelist"))
    for state in ("blocked", "pending", "retry", "running"):
        assert f">queue {state}</a>" in page
        assert f">shop.<wbr>tasks.<wbr>{state}</a>" in page


def test_of_a_long_backlog_the_filter_by_task_reads_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "WINDOW", 2)
    for name in ("first", "second", "between", "running", "second to last", "last"):
        JobFactory.create(queue_name=name, task_path=f"shop.tasks.{name}", running=name == "running")
    found = {path.removeprefix("shop.tasks.") for path in names.task_paths("default")}
    assert {"first", "second", "running", "second to last", "last"} <= found
    assert "between" not in found
    assert {"between", "running"} <= set(names.queue_names("default")), "these have indexes"


def walk(client: Client, link: str, start: str = "") -> Iterator[list[int]]:
    """Follow one link after the other, and return the ids on each page."""
    address = url("changelist")
    response = client.get(address + start)
    while query := getattr(response.context["cl"], link):
        response = client.get(address + query)
        yield [row.pk for row in response.context["cl"].result_list]


@pytest.mark.usefixtures("small_pages")
def test_links_to_pages_keep_the_filters_and_are_only_there_when_needed(root: Client) -> None:
    JobFactory.create_batch(3)
    page = body(root, url("changelist"), queue="default")
    assert "Older" not in page
    assert "Newest" not in page
    last = JobFactory.create()
    page = body(root, url("changelist"), queue="default")
    assert f'href="?p={last.pk - 2}&amp;queue=default" rel="next">Older</a>' in page
    page = body(root, url("changelist"), queue="default", p=last.pk - 2)
    assert 'href="?queue=default">Newest</a>' in page
    assert 'rel="prev">Newer</a>' in page


def test_a_search_looks_at_so_many_rows_and_then_asks(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changelist.KeysetChangeList, "window", 5)
    found = JobFactory.create(done=True, queue_name="rare")
    JobFactory.create_batch(12, done=True)
    pages = [[], *walk(root, "older", start="?queue=rare")]
    assert pages == [[], [], [found.pk]]
    page = body(root, url("changelist"), queue="rare")
    assert "Found 0 in 5 rows." in page
    assert "Look further back" in page
    assert list(walk(root, "newer", start=f"?queue=rare&p=-{found.pk}"))[-1] == []
