"""The order of the list for each status, and its pages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from django_pgqueue.admin import lists
from django_pgqueue.admin.jobs import search
from django_pgqueue.models import Job
from tests.support.factories import JobFactory

from .helpers import listed, url

pytestmark = pytest.mark.django_db

NOW = timezone.now().replace(microsecond=123456)


def ago(seconds: float) -> Any:
    return NOW - timedelta(seconds=seconds)


def waiting() -> list[Job]:
    """In the order in which they run, whatever their queue."""
    return [
        JobFactory.create(queue_name="b", priority=5, run_after=ago(1)),
        JobFactory.create(queue_name="a", priority=5, run_after=ago(-60)),
        JobFactory.create(queue_name="b", run_after=ago(100)),
        JobFactory.create(queue_name="a", run_after=ago(50)),
        JobFactory.create(queue_name="b", run_after=ago(50), group_key="g"),
        JobFactory.create(queue_name="a", run_after=ago(50)),
        JobFactory.create(queue_name="a", run_after=ago(10)),
        JobFactory.create(queue_name="b", priority=-5, run_after=ago(500)),
    ]


def running() -> list[Job]:
    """The longest first."""
    jobs = [JobFactory.create(running=True, last_attempted_at=ago(n * 10)) for n in (1, 7, 3, 3, 5)]
    return sorted(jobs, key=lambda job: (job.last_attempted_at, job.pk))


def over(state: str) -> list[Job]:
    """The last one first; in the ring of history and in the kept leaf, of several queues."""
    shelf = 9 if state == "failed" else 2
    rows = [(1, "a", shelf), (9, "b", shelf), (4, "a", 9), (4, "b", shelf), (2, "b", 9), (6, "a", shelf)]
    jobs = [
        JobFactory.create(queue_name=queue, shelf=where, finished_at=ago(n), **{state: True})
        for n, queue, where in rows
    ]
    return sorted(jobs, key=lambda job: (job.finished_at, job.pk), reverse=True)


STATES: dict[str, Any] = {
    "pending": waiting,
    "running": running,
    "done": lambda: over("done"),
    "failed": lambda: over("failed"),
    "cancelled": lambda: over("cancelled"),
}


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("queue", ["", "a", "b"])
@pytest.mark.parametrize("state", STATES)
def test_pages_in_the_order_of_a_state_forth_and_back(root: Client, state: str, queue: str) -> None:
    ids = [job.pk for job in STATES[state]() if not queue or job.queue_name == queue]
    JobFactory.create(status="blocked")
    pages = [ids[start : start + 3] for start in range(0, len(ids), 3)] or [[]]
    query: dict[str, Any] = {"status": state, **({"queue": queue} if queue else {})}
    address, seen, response = url("changelist"), [], root.get(url("changelist"), query)
    seen.append([row.pk for row in response.context["cl"].result_list])
    while link := response.context["cl"].older:
        response = root.get(address + link)
        seen.append([row.pk for row in response.context["cl"].result_list])
    assert seen == pages
    while link := response.context["cl"].newer:
        response = root.get(address + link)
        seen.append([row.pk for row in response.context["cl"].result_list])
    back = [pk for page in reversed(seen[len(pages) :]) for pk in page]
    assert back == ids[: len(back)]
    assert len(back) >= len(ids) - 3


def test_a_filter_that_no_index_serves_looks_at_so_many_rows_in_this_order(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists.KeysetChangeList, "window", 4)
    rare = JobFactory.create(done=True, task_path="rare.task", finished_at=ago(100))
    for n in range(10):
        JobFactory.create(done=True, finished_at=ago(n), shelf=9 if n % 2 else 3)
    assert seen_while_looking_back(root, status="done", task="rare.task") == [[], [], [rare.pk]]


@pytest.mark.parametrize(("status", "others"), [("retry", "pending"), ("blocked", "pending")])
def test_a_rare_state_of_waiting_jobs_is_looked_for_in_parts(
    root: Client, monkeypatch: pytest.MonkeyPatch, status: str, others: str
) -> None:
    monkeypatch.setattr(lists.KeysetChangeList, "window", 4)
    rare = JobFactory.create(status=status, run_after=ago(-100))
    for n in range(10):
        JobFactory.create(
            status=others, run_after=ago(n), queue_name="ab"[n % 2], group_key="g" if n % 3 else None
        )
    assert seen_while_looking_back(root, status=status) == [[], [], [rare.pk]]


def seen_while_looking_back(root: Client, **query: str) -> list[list[int]]:
    """Return the jobs of each page, until there is no link to a further one."""
    response = root.get(url("changelist"), query)
    found: list[list[int]] = []
    while True:
        found.append([row.pk for row in response.context["cl"].result_list])
        link = response.context["cl"].older
        if not link:
            break
        assert response.context["cl"].cut
        response = root.get(url("changelist") + link)
    return found


def test_with_many_queues_the_newest_come_first(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_QUEUES", 2)
    jobs = [JobFactory.create(queue_name=name, priority=n) for n, name in enumerate("cba")]
    newest_first = [job.pk for job in reversed(jobs)]
    assert listed(root, status="pending") == newest_first
    Job.objects.filter(pk=jobs[0].pk).update(status="blocked")
    Job.objects.filter(pk=jobs[2].pk).update(priority=-1)
    assert listed(root, status="pending") == [jobs[1].pk, jobs[2].pk]


@pytest.mark.parametrize(
    "page",
    [
        "1",
        "5~6",
        "5~6~7~8",
        "5~2026-01-01 00:00~1e9",
        "5~9999-12-31 23:59:59-12:00~0",
        "-5~0001-01-01 00:00+12:00~-3",
        "5~2026-01-01 00:00Z~99999999999999999999",
        f"{10**30}~2026-13-01",
        "5~x~1",
    ],
)
@pytest.mark.parametrize("state", ["pending", "done", "running"])
def test_a_place_that_makes_no_sense_is_answered(root: Client, state: str, page: str) -> None:
    JobFactory.create()
    assert len(listed(root, status=state, p=page)) <= 1


def test_jobs_that_change_or_vanish_while_the_page_is_read(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, changed, same = (JobFactory.create(run_after=ago(seconds)) for seconds in (3, 2, 1))
    rows_of = lists.KeysetChangeList._rows

    def meanwhile(self: Any, keys: list[int]) -> list[Any]:
        Job.objects.filter(pk=gone.pk)._raw_delete("default")
        Job.objects.filter(pk=changed.pk).update(status="running", worker=7, lease=1)
        return rows_of(self, keys)

    monkeypatch.setattr(lists.KeysetChangeList, "_rows", meanwhile)
    response = root.get(url("changelist"), {"status": "pending"})
    shown = [(row.pk, row.status) for row in response.context["cl"].result_list]
    assert shown == [(changed.pk, "running"), (same.pk, "pending")]
