"""Lists: filters, searches, pages; and what the list of jobs says of each job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgqueue import pause
from django_pgqueue.admin import JobAdmin, lists
from django_pgqueue.admin.jobs import filters, search
from django_pgqueue.admin.lists import AGAIN, KeysetChangeList
from django_pgqueue.models import Job, JobProgress
from django_pgqueue.models.job import Status
from django_pgqueue.monitoring import queues as figures
from django_pgqueue.monitoring.depth import Counted
from django_pgqueue.monitoring.queues import queue_figures
from django_pgqueue.postgres.timeout import TimeLimitReached
from tests.app import tasks  # noqa: F401 - known to this process
from tests.support.factories import (
    ERROR,
    BatchFactory,
    JobFactory,
    JobStatFactory,
    QueueFactory,
    ScheduleFactory,
    WorkerFactory,
)
from tests.support.wording import shown

from . import helpers
from .helpers import LIST, STATES, body, chosen_links, listed, opened, pages_of, read, rows_of, staff, url

pytestmark = pytest.mark.django_db


def test_the_filter_by_status(root: Client) -> None:
    jobs = {name: JobFactory.create(**options) for name, options in STATES.items()}
    assert all(listed(root, status=state) == [job.pk] for state, job in jobs.items())
    kept = JobFactory.create(done=True, shelf=9)
    assert listed(root, status="done") == [kept.pk, jobs["done"].pk], "a queue may keep done jobs for long"


ODD = (
    "status=x", "finished=x", "worker=x", f"worker={2**63}", "enqueued=..", "enqueued=2020-13-01..",
    "finished=..0001-01-01", "finished=a..b", "finished=9999-12-31T23:59..", "priority=5", "status__in=done",
    "enqueued=..2020-01-01T10:00%2B99:00", "nothing=1", "queue_name__startswith=a", "status=",
)  # fmt: skip
SAME = {
    "status__exact=failed": "?status=failed", "queue_name=a": "?queue=a", "worker__exact=5": "?worker=5",
    "task_path__exact=a.b&status__exact=done": "?status=done&task=a.b",
}  # fmt: skip


def test_odd_addresses_are_answered(root: Client) -> None:
    job = JobFactory.create()
    assert listed(root, f"{LIST}?o=2") == [job.pk]
    for query in ODD:
        response = root.get(f"{LIST}?{query}")
        assert response["Location"] == f"{LIST}?", query
        [message] = get_messages(response.wsgi_request)
        assert re.search("no filter|no choice|no time", str(message)), query
        root.cookies.pop("messages")  # nobody reads it on the next page
    for query, other in SAME.items():
        response = root.get(f"{LIST}?{query}", follow=True)
        led_to = response.redirect_chain[-1][0].partition("?")[2]
        assert sorted(led_to.split("&")) == sorted(other[1:].split("&"))
        assert [*response.context["messages"]] == [], "all of it is done"


def test_the_form_of_a_filter_by_time(root: Client) -> None:
    job = JobFactory.create(done=True, finished_at=timezone.now() - timedelta(hours=2))
    assert job.finished_at is not None
    day = timezone.localtime(job.finished_at).date().isoformat()
    fields = {"status": "done", "finished_from": f"{day}T00:00", "finished_to": ""}
    response = root.get(LIST, fields, follow=True)
    assert [row.pk for row in response.context["cl"].result_list] == [job.pk]
    assert response.redirect_chain == [(f"{LIST}?status=done&finished={day}T00%3A00..", 302)]
    page = response.content.decode()
    assert f'name="finished_from" value="{day}T00:00"' in page
    assert '<input type="hidden" name="status" value="done">' in page
    address = f"{LIST}?finished=2026-01-02..2026-01-01"
    [message] = root.get(address, follow=True).context["messages"]
    assert str(message) == "“From” must be before “to”."
    none = root.get(LIST, {"finished_from": "", "finished_to": "", "q": "5"})
    assert none["Location"] == f"{LIST}?q=5"


def test_the_search_suggests_tasks_queues_and_keys(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MOST_CHOICES", 10_000)  # the tests have many tasks
    JobFactory.create(running=True, limit_key="crm/<7>", queue_name="mail")
    page = body(root, LIST)
    for term in ("key:crm/&lt;7&gt;", "queue:mail", "task:tests.app.tasks.noop"):
        assert f'<option value="{term}">' in page
    chosen = root.get(LIST, {"q": " queue: mail", "status": "done"})
    assert chosen["Location"] == f"{LIST}?status=done&queue=mail"


def test_a_zero_byte_in_the_address_is_a_bad_request(root: Client) -> None:
    """On every page of the console, in the query or in each part of the path."""
    values = dict.fromkeys(("object_id", "fingerprint", "task_path", "path"), "a\x00b")
    for model in helpers.ADMINS.values():
        for name, address in pages_of(model, **values):
            query = {} if "%00" in address else {"q": "a\0b"}
            assert root.get(address, query).status_code == 400, name
            if "/a%00b/" in address:
                assert root.get(address.replace("%00", "_00")).status_code != 500, name
    assert root.get(LIST, {"a\0": "b"}).status_code == 400
    assert root.post(url("cancel", "a\0b")).status_code == 400


def test_the_choices_of_the_filters(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the address, what is configured, what ran in the last day, and what live jobs have."""
    monkeypatch.setattr(filters, "MOST_CHOICES", 10_000)  # the tests have many tasks
    for state, options in STATES.items():
        JobFactory.create(queue_name=f"queue {state}", task_path=f"shop.tasks.{state}", **options)
    queues = lists.NamesInUse("default").queues
    assert queues == [queue.name for queue in queue_figures("default")[0]]
    assert queues == ["queue blocked", "queue failed", "queue pending", "queue retry", "queue running"]
    QueueFactory.create(name="configured")
    JobStatFactory.create(queue_name="ran", task_path="shop.tasks.ran")
    JobStatFactory.create(queue_name="ran long ago", minute=timezone.now() - timedelta(days=2))
    page = body(root, url("changelist"), queue="chosen", task="chosen.task")
    live = ("blocked", "pending", "retry", "running")
    for name in ("configured", "ran", "chosen", *(f"queue {state}" for state in live)):
        assert f">{name}</a>" in page
    assert ">ran long ago<" not in page
    for name in ("chosen.task", "tests.app.tasks.noop", *(f"shop.tasks.{state}" for state in (*live, "ran"))):
        assert f">{name.replace('.', '.<wbr>')}</a>" in page, "a long path breaks between its words"


def test_of_a_long_backlog_the_filter_by_task_reads_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "BACKLOG_WINDOW", 2)
    for name in ("first", "second", "between", "running", "second to last", "last"):
        JobFactory.create(queue_name=name, task_path=f"shop.tasks.{name}", running=name == "running")
    found = {path.removeprefix("shop.tasks.") for path in lists.NamesInUse("default").tasks}
    assert {"first", "second", "running", "second to last", "last"} <= found
    assert "between" not in found
    assert {"between", "running"} <= set(lists.NamesInUse("default").queues), "these have indexes"


def walk(page: Any, link: str) -> Iterator[Any]:
    """Follow one link after the other, and yield each page."""
    while query := getattr(page, link):
        page = following(query)
        yield page


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
    monkeypatch.setattr(KeysetChangeList, "window", 5)
    monkeypatch.setattr(lists, "PATIENCE", 0.0)
    found = JobFactory.create(done=True, queue_name="rare")
    JobFactory.create_batch(12, done=True)
    assert [ids(each) for each in walk(opened(queue="rare", p=AGAIN), "older")] == [[], [found.pk]]
    page = body(root, url("changelist"), queue="rare", p=AGAIN)
    assert "0 found among 5 rows. There are more." in shown(page)
    assert "data-pgqueue-goes-on>Search on<" in page
    assert ids([*walk(opened(queue="rare", p=f"-{found.pk}"), "newer")][-1]) == []


def test_a_short_first_page_of_a_search_is_read_again(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is over, or too short for another window. Its link, which a script follows, reads it whole."""
    monkeypatch.setattr(lists, "FIRST_WINDOW", 5)
    old = JobFactory.create(done=True, queue_name="rare")
    JobFactory.create_batch(12, done=True)
    new = JobFactory.create(done=True, queue_name="rare")
    page = body(root, url("changelist"), queue="rare")
    assert "1 found among 5 rows. There are more." in shown(page)
    assert 'href="?p=first&amp;queue=rare" rel="next" data-pgqueue-goes-on>Search on<' in page
    assert listed(root, queue="rare", p=AGAIN) == [new.pk, old.pk]
    monkeypatch.setattr(lists, "SMALLEST_WINDOW", 1)
    monkeypatch.setattr(lists, "FIRST_LOOK", 60.0)
    assert listed(root, queue="rare") == [new.pk, old.pk], "the time is enough for all"
    assert "data-pgqueue-goes-on" not in body(root, url("changelist"))


def test_with_a_status_a_search_reads_fewer_jobs_first(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be few among the jobs that are read."""
    monkeypatch.setattr(search, "FIRST_WINDOW_OF_SCAN", 2)
    monkeypatch.setattr(lists, "FIRST_LOOK", 0.0)
    jobs = JobFactory.create_batch(5, retrying=True, args=["needle"])
    assert listed(root, q="needle", status="retry") == [jobs[4].pk, jobs[3].pk]
    assert len(listed(root, q="needle", status="retry", p=AGAIN)) == len(listed(root, q="needle")) == 5


def test_a_search_goes_on_until_the_page_is_full(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each window has a time limit, and a fast one is followed by a larger one."""
    windows: list[int] = []
    find = KeysetChangeList._find

    def looked(self: KeysetChangeList, place: Any, window: int, already: int) -> Any:
        windows.append(window)
        return find(self, place, window, already)

    monkeypatch.setattr(KeysetChangeList, "window", 2)
    monkeypatch.setattr(KeysetChangeList, "_find", looked)
    monkeypatch.setattr(lists, "QUICK", 60.0)
    old = JobFactory.create_batch(2, done=True, queue_name="rare")
    JobFactory.create_batch(30, done=True)
    new = JobFactory.create(done=True, queue_name="rare")
    JobFactory.create_batch(2, done=True)
    assert listed(root, queue="rare", p=AGAIN) == [new.pk, old[1].pk, old[0].pk]
    assert windows == [2, 8, 32]
    monkeypatch.setattr(JobAdmin, "list_per_page", 1)
    del windows[:]
    page = body(root, url("changelist"), queue="rare", p=AGAIN)
    assert windows == [2, 8, 32]
    assert f"?p={new.pk}&amp;queue=rare" in page
    monkeypatch.setattr(lists, "QUICK", 0.0)
    del windows[:]
    assert listed(root, queue="rare", p=new.pk) == [old[1].pk]
    assert set(windows) == {2}


def test_the_filter_by_worker(root: Client) -> None:
    worker = WorkerFactory.create(host="app-1", pid=77)
    runs = JobFactory.create(running=True, worker=worker.pk)
    done = JobFactory.create(done=True, worker=worker.pk)
    gone = JobFactory.create(failed=True, worker=-(2**62))
    assert listed(root, worker=worker.pk) == [done.pk, runs.pk]
    assert listed(root, worker=worker.pk, status="running") == [runs.pk]
    assert listed(root, worker=gone.worker) == [gone.pk]
    page = body(root, url("changelist"), worker=gone.worker)
    assert ">app-1:77</a>" in page
    assert ">400000</a>" in page, "a worker that no longer exists has a short name"


def test_the_filters_by_time_take_a_span(root: Client) -> None:
    day = timezone.now().replace(year=2020, month=3, day=4, hour=10, minute=0, second=0, microsecond=0)
    first, second = (JobFactory.create(done=True, finished_at=day + timedelta(hours=n)) for n in (0, 2))
    late = JobFactory.create(enqueued_at=day)
    start, end = f"{day:%Y-%m-%dT%H:%M}Z", f"{day + timedelta(hours=2):%Y-%m-%dT%H:%M:%S}+00:00"
    assert listed(root, finished=f"{start}..{end}") == [first.pk], "the end is not in the span"
    without_escapes = f"{start}..{end.replace('+', ' ')}"
    assert listed(root, finished=without_escapes) == [first.pk]
    assert listed(root, finished=f"{end}..", status="done") == [second.pk]
    assert listed(root, finished="2020-03-04..2020-03-05", status="done") == [second.pk, first.pk]
    assert listed(root, finished="..2020-03-04") == []
    assert listed(root, enqueued="..2020-03-05") == [late.pk]
    assert listed(root, enqueued="hour") == [second.pk, first.pk]
    page = body(root, url("changelist"), enqueued="2020-03-04..2020-03-05", finished="2020-03-04..")
    assert ">from 2020-03-04 00:00:00 UTC to 2020-03-05 00:00:00 UTC</a>" in page
    assert ">since 2020-03-04 00:00:00 UTC</a>" in page


def test_a_span_of_finished_jobs_is_a_part_of_history(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its index, newer jobs are not read one by one."""
    monkeypatch.setattr(KeysetChangeList, "window", 3)
    monkeypatch.setattr(lists, "PATIENCE", 0.0)
    long_ago = timezone.now() - timedelta(days=30)
    old = JobFactory.create(done=True, finished_at=long_ago, queue_name="mail")
    JobFactory.create_batch(5, done=True)
    span = f"{long_ago - timedelta(hours=1):%Y-%m-%dT%H:%M}Z..{long_ago + timedelta(hours=1):%Y-%m-%dT%H:%M}Z"
    assert listed(root, status="done", finished=span, queue="mail") == [old.pk]
    assert listed(root, status="done", queue="mail") == []


def numbers(page: str) -> dict[str, str]:
    """Return what the filter by status says."""
    return dict(re.findall(r'id="pgqueue-count-(\w+)"[^>]*>([^<]*)</span>', page))


def test_the_filter_by_status_tells_how_many_there_are(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    JobFactory.create_batch(2)
    JobFactory.create(failed=True)
    counts = {**dict.fromkeys(Status.values, "0"), "pending": "2", "failed": "1"}
    assert numbers(body(root, url("changelist"))) == counts
    JobFactory.create()
    shared = numbers(body(root, url("changelist"), status="done", p=5))
    assert shared == counts, "they are shared for some seconds"
    figures._shared.clear()
    assert numbers(body(root, url("changelist")))["pending"] == "3"
    monkeypatch.setattr(figures, "state_counts", lambda alias: {"pending": Counted(5_000, is_exact=False)})
    figures._shared.clear()
    found = numbers(body(root, url("changelist")))
    assert (found["pending"], found["done"]) == ("5,000+", "")


def test_no_numbers_of_other_jobs_than_the_list_shows(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    JobFactory.create(queue_name="secret")
    for query in ("queue=default", "q=add", "finished=hour&status=done"):
        assert numbers(body(root, f"{url('changelist')}?{query}")) == {}
    all_jobs = JobAdmin.get_queryset
    monkeypatch.setattr(JobAdmin, "get_queryset", lambda *args: all_jobs(*args).filter(queue_name="mail"))
    assert numbers(body(root, url("changelist"))) == {}, "who sees a part learns nothing about the others"


def test_an_empty_list_says_what_it_is_for_and_offers_no_actions(root: Client) -> None:
    for model in ("job", "queue", "worker", "jobbatch", "schedule", "limit", "pause"):
        page = body(root, url("changelist", model=model))
        assert page.count('class="pgqueue-empty"') == 1, model
        assert 'name="action"' not in page, model
    assert "pgqueue-empty" not in body(root, url("changelist"), q="7")


FORMS = {
    "job_changelist": {"status", "due", "queue", "task", "worker", "enqueued", "finished"},
    "job_failures": {"state", "queue", "task", "time"},
    "jobbatch_changelist": {"state", "created", "finished"},
    "jobstat_changelist": {"queue", "time"},
    "schedule_changelist": {"state", "declared in", "changes in the admin"},
}


def test_all_lists_have_the_same_form_of_filters(root: Client) -> None:
    for factory in (BatchFactory, ScheduleFactory, WorkerFactory, JobFactory):
        factory.create()
    for name, titles in FORMS.items():
        model, page = name.split("_")
        html = body(root, url(page, model=model))
        filters = re.split("</search>|</nav>", html.split('id="changelist-filter"')[1])[0]
        assert {*re.findall('data-filter-title="(.*?)"', filters)} == titles
        assert len(chosen_links(html)) == len(titles)
        assert "<select" not in filters
        assert "Show all" not in html, "nothing is searched"


def test_a_pause_is_found_by_its_name_reason_and_author(root: Client) -> None:
    pause(queue="mail", reason="the partner is down", author="ann")
    pause(queue="sync")
    for term in ("MAIL", "partner", "ann"):
        page = body(root, url("changelist", model="pause"), q=term)
        assert ("queue mail" in page, "queue sync" in page) == (True, False)
        assert "1 result" in page


# --- The list of jobs: what it says of each, their order and its pages, and the search with its bounds


NOW = timezone.now().replace(microsecond=123456)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def ids(page: Any) -> list[int]:
    return [row.pk for row in page.result_list]


def found(**query: str) -> list[int]:
    return ids(opened(**query))


def following(link: str) -> Any:
    return opened(**dict(parse_qsl(link[1:])))


def test_jobs_of_a_tenant(root: Client) -> None:
    """The filter is there only if a job has a tenant. It reads the index of tenants."""
    plain = JobFactory.create()
    page = body(root, url("changelist"))
    assert "By tenant" not in page
    assert re.findall(r"Filter by \w*", page) == ["Filter by enqueued", "Filter by finished"]
    jobs = [JobFactory.create(tenant=name) for name in ("acme", "bolt", "acme", "cone")]
    ended = JobFactory.create(tenant="acme", done=True)
    page = body(root, url("changelist"))
    assert all(f"?tenant={name}" in page for name in ("acme", "bolt", "cone"))
    assert found(tenant="acme") == [ended.pk, jobs[2].pk, jobs[0].pk]
    assert found(tenant="acme", status="done") == [ended.pk]
    assert found(tenant="nobody") == []
    assert plain.pk in found()


def test_what_the_list_says_of_each_job(root: Client, wording: Any) -> None:
    WorkerFactory.create(id=7, pid=1000)
    now = timezone.now()
    spans = {"run_after": -210, "enqueued_at": 250, "last_attempted_at": 310, "finished_at": 7210}
    at = {name: now - timedelta(seconds=seconds) for name, seconds in spans.items()}
    jobs: list[dict[str, Any]] = [
        {"run_after": at["run_after"], "priority": 3},
        {"run_after": now - timedelta(seconds=190), "args": [], "queue_name": "mail"},
        {"status": "blocked", "enqueued_at": at["enqueued_at"], "waiting_reason": "at most 2 at once"},
        {"running": True, "last_attempted_at": at["last_attempted_at"], "kwargs": {"b": [2]}},
        {"running": True, "last_attempted_at": at["last_attempted_at"], "marks": 8,
         "cancel_requested_at": now},
        {"running": True, "last_attempted_at": at["last_attempted_at"], "worker": 2**52},
        {"done": True, "finished_at": at["finished_at"], "args": ["x" * 500], "run_after": at["finished_at"],
         "last_attempted_at": at["finished_at"] + timedelta(seconds=2), "duration": 1.5, "attempts": 2},
        {"failed": True, "finished_at": at["finished_at"], "run_after": now},
        {"cancelled": True, "finished_at": at["finished_at"], "attempts": 0, "started_at": None,
         "last_attempted_at": None, "waiting_reason": "job 5 with the same unique key waits in its place"},
    ]  # fmt: skip
    for number, values in enumerate(jobs):
        JobFactory.create(id=101 + number, **values)
    JobProgress.objects.create(job_id=105, done=1, total=2)
    assert rows_of(body(root, url("changelist"))) == wording


# Orders and pages.


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


def of_any_state() -> list[Job]:
    """The newest first."""
    return [JobFactory.create(queue_name="ab"[n % 2], retrying=n % 3 == 0) for n in range(8)][::-1]


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("state", ["", "pending", "running", "done", "failed"])
def test_pages_in_the_order_of_a_state_forth_and_back(state: str) -> None:
    jobs = {"": of_any_state, "pending": waiting, "running": running}.get(state, lambda: over(state))()
    if state:
        JobFactory.create(status="blocked")
    for queue in ("", "a"):
        keys = [job.pk for job in jobs if not queue or job.queue_name == queue]
        page = opened(**{name: each for name, each in (("status", state), ("queue", queue)) if each})
        pages = [page, *walk(page, "older")]
        assert [*map(ids, pages)] == ([keys[start : start + 3] for start in range(0, len(keys), 3)] or [[]])
        back = [key for each in [*walk(pages[-1], "newer")][::-1] for key in ids(each)]
        assert back == keys[: len(back)]
        assert len(back) >= len(keys) - 3


@pytest.mark.parametrize("status", ["retry", "blocked"])
def test_a_rare_state_of_waiting_jobs_is_found_at_once(monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    monkeypatch.setattr(KeysetChangeList, "window", 4)
    monkeypatch.setattr(lists, "PATIENCE", 0.0)
    rare = JobFactory.create(status=status, run_after=ago(-100))
    for n in range(10):
        JobFactory.create(run_after=ago(n), queue_name="ab"[n % 2], group_key="g" if n % 3 else None)
    page = opened(status=status, p=AGAIN)
    assert (ids(page), page.cut) == ([rare.pk], False)


def test_with_many_queues_the_newest_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_QUEUES", 2)
    jobs = [JobFactory.create(queue_name=name, priority=n) for n, name in enumerate("cba")]
    assert found(status="pending") == [job.pk for job in reversed(jobs)]
    Job.objects.filter(pk=jobs[0].pk).update(status="blocked")
    Job.objects.filter(pk=jobs[2].pk).update(priority=-1)
    assert found(status="pending") == [jobs[1].pk, jobs[2].pk]


def test_a_place_that_makes_no_sense_is_answered() -> None:
    JobFactory.create()
    places = (
        "x", "5~9999-12-31 23:59:59-12:00~0", "1", "0", f"{10**30}", "5~6", "5~6~7~8", "5~2026-01-01~1e9",
        "-5~0001-01-01 00:00+12:00~-3", "5~2026-01-01 00:00Z~99999999999999999999", f"{10**30}~2026-13-01",
        "5~x~1",
    )  # fmt: skip
    for state, some in (("", places), ("pending", places), ("done", places[:3]), ("running", places[:3])):
        for place in some:
            assert len(found(**({"status": state} if state else {}), p=place)) <= 1, (state, place)


def test_jobs_that_change_or_vanish_while_the_page_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    gone, changed, same = (JobFactory.create(run_after=ago(seconds)) for seconds in (3, 2, 1))
    rows_of = KeysetChangeList._rows

    def meanwhile(self: Any, keys: list[int]) -> list[Any]:
        Job.objects.filter(pk=gone.pk)._raw_delete("default")
        Job.objects.filter(pk=changed.pk).update(status="running", worker=7, lease=1)
        return rows_of(self, keys)

    monkeypatch.setattr(KeysetChangeList, "_rows", meanwhile)
    rows = [(row.pk, row.status) for row in opened(status="pending").result_list]
    assert rows == [(changed.pk, "running"), (same.pk, "pending")]


# What a search finds.


def test_a_text_is_found_in_the_task_the_arguments_the_errors_and_the_keys() -> None:
    texts: list[tuple[str, dict[str, Any]]] = [
        ("ann@example", {"args": ["Ann@Example.com"]}), ("order-77", {"kwargs": {"reference": "order-77"}}),
        ('"ref": "order', {"kwargs": {"ref": "order-78"}}), ('say "hi"', {"args": ['say "hi"']}),
        ("C:\\temp", {"args": ["C:\\temp"]}), ("Grüße", {"args": ["Viele Grüße"]}),
        ("100%", {"args": ["100%"]}), ("a_b", {"args": ["a_b"]}),
        ("gatewaydown", {"failed": True, "errors": [{**ERROR, "message": "", "traceback": ""}]}),
        ("no answer from", {"retrying": True, "errors": [{**ERROR, "class": "", "traceback": ""}]}),
        ('File "x.py"', {"failed": True, "errors": [{"traceback": 'File "x.py"'}]}),
        ("send_receipt", {"task_path": "shop.tasks.send_receipt", "done": True}),
        ("acme", {"limit_key": "tenant/Acme", "done": True}),
        ("doc-9", {"unique_key": "my Doc-9", "unique_scope": "live"}),
    ]  # fmt: skip
    jobs = {term: JobFactory.create(**options) for term, options in texts}
    decoy = {**ERROR, "class": "Other", "message": "x", "traceback": ""}
    JobFactory.create(args=["1000", "axb"], failed=True, errors=[decoy])
    assert {term: found(q=term) for term in jobs} == {term: [job.pk] for term, job in jobs.items()}
    assert found(q="finished_at") == found(q='traceback":') == [], "the keys of an error are no text of it"


def test_a_number_is_an_id_first_and_a_text_if_there_is_no_such_job() -> None:
    job = JobFactory.create(args=[1])
    other = JobFactory.create(args=[job.pk, 987654321])
    assert found(q=str(job.pk)) == [job.pk]
    assert found(q=f"default:{job.pk}") == [job.pk]
    assert found(q=f"other:{job.pk}") == []  # a job of another database, whatever is here
    assert found(q="987654321") == [other.pk]


def test_a_key_finds_the_jobs_that_run_or_wait_with_it() -> None:
    runs = JobFactory.create(running=True, limit_key="crm/7")
    blocked = JobFactory.create(status="blocked", limit_key="crm/7", wait_position=2)
    first = JobFactory.create(limit_key="crm/7", wait_position=1, queue_name="mail")
    JobFactory.create(limit_key="crm/77", wait_position=3)
    JobFactory.create(done=True, limit_key="crm/7")
    assert found(q="key:crm/7") == [first.pk, blocked.pk, runs.pk]
    assert found(q=" key: crm/7 ", status="blocked") == [blocked.pk]
    assert found(q="key:crm/7", queue="mail") == [first.pk]
    one = JobFactory.create(unique_key="doc-7", unique_scope="waiting")
    two = JobFactory.create(running=True, unique_key="doc-7", unique_scope="live")
    JobFactory.create(running=True, unique_key="doc-7", unique_scope="waiting")
    assert found(q="key:doc-7") == [two.pk, one.pk]


def test_what_an_index_finds_is_never_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeysetChangeList, "window", 1)
    monkeypatch.setattr(lists, "PATIENCE", 0.0)
    batch = BatchFactory.create(is_open=True)
    options = {"error_fingerprint": "f", "batch_id": batch.pk, "limit_key": "crm/7"}
    job = JobFactory.create(running=True, **options)
    JobFactory.create_batch(5)
    JobFactory.create_batch(5, failed=True)
    terms = (str(job.pk), f"default:{job.pk}", "key:crm/7", f"batch:{batch.pk}", "fingerprint:f")
    query: dict[str, Any]
    for query in ({"q": term, **more} for term in terms for more in ({}, {"queue": "default"})):
        page = opened(**query)
        assert ([row.pk for row in page.result_list], page.cut, page.older) == ([job.pk], False, None), query
    for query in ({"id__in": job.pk}, {"status": "blocked"}, {"status": "retry", "queue": "default"}):
        assert opened(**query).cut is False, query


def test_a_key_that_no_job_has_is_a_text() -> None:
    job = JobFactory.create(args=["key:abc"])
    assert found(q="key:abc") == found(q="key:") == [job.pk]
    assert found(q="key:none") == []


def test_the_search_finds_the_jobs_of_a_group_of_failures() -> None:
    states = ("running", "retry", "failed")
    jobs = {state: JobFactory.create(**STATES[state], error_fingerprint="f").pk for state in states}
    JobFactory.create(running=True, error_fingerprint="g")
    for shelf in (1, 9):
        JobFactory.create(done=True, shelf=shelf, error_fingerprint="f")
    assert sorted(found(q="fingerprint:f")) == [jobs[state] for state in states]
    assert {state: found(q=" fingerprint: f", status=state) for state in states} == {
        state: [key] for state, key in jobs.items()
    }


CALL = {
    "args": [{"customer": 5, "name": "Ann Lee"}, True],
    "kwargs": {"order_id": 17, "ref": "17", "a.b": {"x": [1.5, None]}},
}
FINDS = (
    "args.0.customer=5", "args.0.customer = 5", "args.0.name=Ann Lee", 'args.0.name="Ann Lee"', "args.1=true",
    "kwargs.order_id=17", 'kwargs.ref="17"', "kwargs.ref=17", 'kwargs."a.b".x.0=1.5', 'kwargs."a.b".x.1=null',
)  # fmt: skip
FINDS_NOTHING = (
    'args.0.customer="5"', "args.0.name=Ann", "args.0.name=ann lee", "args.1=True", "args.2=5",
    "args.customer=5", "kwargs.order_id=1", 'kwargs."a.b".x.0=null', "kwargs.none=null",
    'kwargs."a.b".x=[1.5, null]', "kwargs.order_id", "kwargs.order_id=", r'kwargs.ref="\ud800"',
    r'kwargs.ref="\u0000"', "kwargs.99999999999999999999=1", "kwargs.-99999999999999999999=1",
    "kwargs.order_id=NaN", "kwargs.order_id=1e999", "kwargs.0=1", f"kwargs{'.a' * 3000}=1",
)  # fmt: skip


def test_a_place_in_the_arguments() -> None:
    job = JobFactory.create(**CALL)
    JobFactory.create(args=[{"customer": 50, "name": "Bob"}, False], kwargs={"order_id": 170})
    terms = (*FINDS, *FINDS_NOTHING)
    assert [(term, found(q=term)) for term in terms] == [(term, [job.pk] * (term in FINDS)) for term in terms]


def test_the_help_of_the_field_tells_what_this_user_may_search(root: Client) -> None:
    assert "kwargs.order_id=17" in body(root, url("changelist"))
    page = body(staff("view_job"), url("changelist"))
    assert "kwargs.order_id=17" not in page
    assert "a task, a key or the class of an error" in page
    with override_settings(PGQUEUE={"REDACT": ["re:x"]}):
        assert "kwargs.order_id=17" not in body(root, url("changelist"))


# The bounds of a search.


def test_jobs_that_finished_long_ago_are_not_searched() -> None:
    now = timezone.now()
    ends = (now - timedelta(days=days) for days in (8, 6))
    old, recent = (JobFactory.create(**CALL, done=True, finished_at=end) for end in ends)
    new = JobFactory.create(**CALL, enqueued_at=now - timedelta(days=30))
    for term in ("ann lee", "kwargs.order_id=17"):
        assert found(q=term) == [new.pk, recent.pk]
        assert found(q=term, finished="day") == []
        assert found(q=term, status="pending") == [new.pk]
        assert found(q=term, finished="2020-01-01..") == [recent.pk, old.pk]
    assert found(q=str(old.pk)) == [old.pk], "an id is found at any age"


def asleep(jobs: Any, *_: Any) -> Any:
    return jobs.extra(where=["pg_sleep(5) IS NULL"])


@pytest.mark.parametrize(("term", "finder"), [("needle", "_with_text"), ("kwargs.order_id=17", "at_path")])
def test_slow_searches_give_up(root: Client, monkeypatch: pytest.MonkeyPatch, term: str, finder: str) -> None:
    JobFactory.create(args=["needle"])
    monkeypatch.setattr(lists, "SECONDS", 0.05)
    monkeypatch.setattr(lists, "MOST_SHRINKS", 1)
    monkeypatch.setattr(search, finder, asleep)
    page = body(root, url("changelist"), q=term)
    assert "The search gave up after 0.1 s." in page, "it has tried two windows"
    assert "Choose a status, a queue or a time" in page
    assert "Nothing found" not in page


def test_a_smaller_window_follows_one_that_is_slow(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    old, *_between, new = JobFactory.create_batch(7, args=["needle"])
    find = KeysetChangeList._find

    def slow(self: KeysetChangeList, place: Any, window: int, already: int) -> Any:
        if window > 3:
            raise TimeLimitReached
        return find(self, place, window, already)

    monkeypatch.setattr(KeysetChangeList, "_find", slow)
    monkeypatch.setattr(search, "WINDOW_OF_SCAN", 30)
    monkeypatch.setattr(lists, "PATIENCE", 0.0)
    assert "3 found among 3 rows. There are more." in read(root, url("changelist"), q="needle", p=AGAIN)
    page = opened(q="needle", p=AGAIN)
    assert [row.pk for row in page.result_list] == [new.pk, new.pk - 1, new.pk - 2]
    page = following(following(page.older).older)
    assert [row.pk for row in page.result_list] == [old.pk]
    assert not page.cut


def test_a_text_is_searched_in_one_part_whatever_the_queues() -> None:
    for status in ("pending", "failed"):
        values = {"kwargs": {"x": "needle"}, **STATES[status]}
        jobs = [JobFactory.create(queue_name=f"q{n % 3}", priority=n % 2, **values) for n in range(4)]
        with CaptureQueriesContext(connection) as captured:
            assert found(status=status, q="needle") == [job.pk for job in reversed(jobs)]
        [statement] = [entry["sql"] for entry in captured if "needle" in entry["sql"]]
        assert statement.count("upper(kwargs::text)") == 1
