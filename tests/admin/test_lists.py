"""Lists of jobs: filters, search, pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.contrib.admin import site
from django.test import Client
from django.utils import timezone

from django_pgqueue import pause
from django_pgqueue.admin import JobAdmin, lists
from django_pgqueue.admin.jobs import filters, search
from django_pgqueue.models.job import Status
from django_pgqueue.monitoring import queues as figures
from django_pgqueue.monitoring.depth import Counted
from django_pgqueue.monitoring.queues import queue_figures
from tests.app import tasks  # noqa: F401 - known to this process
from tests.support.factories import (
    BatchFactory,
    JobFactory,
    JobStatFactory,
    QueueFactory,
    ScheduleFactory,
    WorkerFactory,
)
from tests.support.wording import shown

from .helpers import LIST, STATES, body, chosen_links, listed, opened, pages_of, url

pytestmark = pytest.mark.django_db


def test_the_filter_by_status(root: Client) -> None:
    jobs = {name: JobFactory.create(**options) for name, options in STATES.items()}
    assert {state: listed(root, status=state) for state in jobs} == {
        state: [job.pk] for state, job in jobs.items()
    }
    kept = JobFactory.create(done=True, shelf=9)
    assert listed(root, status="done") == [kept.pk, jobs["done"].pk], "a queue may keep done jobs for long"


def test_the_filters_by_queue_task_and_time(root: Client) -> None:
    mail = JobFactory.create(queue_name="mail", done=True, finished_at=timezone.now() - timedelta(hours=2))
    other = JobFactory.create(task_path="a.b", failed=True)
    JobFactory.create()
    assert listed(root, queue="mail") == [mail.pk]
    assert listed(root, task="a.b") == [other.pk]
    assert listed(root, finished="hour") == [other.pk]
    assert listed(root, finished="day") == [other.pk, mail.pk]
    assert listed(root, finished="day", queue="mail", status="done") == [mail.pk]


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
    for query in ("p=x", "p=0", f"p={10**30}", "o=2"):
        assert listed(root, f"{LIST}?{query}") in ([job.pk], []), query
    for query in ODD:
        response = root.get(f"{LIST}?{query}", follow=True)
        [(address, _status)] = response.redirect_chain
        assert address == f"{LIST}?", query
        [message] = response.context["messages"]
        assert re.search("no filter|no choice|no time", str(message)), query
    for query, other in SAME.items():
        response = root.get(f"{LIST}?{query}", follow=True)
        assert sorted(response.redirect_chain[-1][0].partition("?")[2].split("&")) == sorted(
            other[1:].split("&")
        )
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
    """On every page of the console, in the query and in each part of the path."""
    values = dict.fromkeys(("object_id", "fingerprint", "task_path", "path"), "a\x00b")
    for model in site._registry.values():
        if model.opts.app_label == "django_pgqueue":
            for name, address in pages_of(model, **values):
                assert root.get(address, {"q": "a\0b"}).status_code == 400, name
                assert root.get(address, {"a\0": "b"}).status_code == 400, name
                if "%00" in address:
                    assert root.get(address).status_code == 400, name
                    assert root.post(address).status_code == 400, name
                if "object_id" in address or "/a%00b/" in address:
                    assert root.get(address.replace("%00", "_00")).status_code != 500, name


@pytest.mark.usefixtures("small_pages")
def test_pages_forth_and_back_miss_nothing(root: Client) -> None:
    ids = sorted((job.pk for job in JobFactory.create_batch(8)), reverse=True)
    assert [listed(root), *walk("older")] == [ids[:3], ids[3:6], ids[6:]]
    assert list(walk("newer", start=f"?p={ids[5]}")) == [ids[3:6], ids[:3]]
    assert listed(root, queue="default", p=ids[2]) == ids[3:6]


def test_the_choices_of_the_filters(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the address, what is configured, what ran in the last day, and what live jobs have."""
    monkeypatch.setattr(filters, "MOST_CHOICES", 10_000)  # the tests have many tasks
    for state, options in STATES.items():
        JobFactory.create(queue_name=f"queue {state}", task_path=f"shop.tasks.{state}", **options)
    queues = lists.queue_names("default")
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
    found = {path.removeprefix("shop.tasks.") for path in lists.task_paths("default")}
    assert {"first", "second", "running", "second to last", "last"} <= found
    assert "between" not in found
    assert {"between", "running"} <= set(lists.queue_names("default")), "these have indexes"


def walk(link: str, start: str = "") -> Iterator[list[int]]:
    """Follow one link after the other, and return the ids on each page."""
    page = opened(**dict(parse_qsl(start[1:])))
    while query := getattr(page, link):
        page = opened(**dict(parse_qsl(query[1:])))
        yield [row.pk for row in page.result_list]


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
    monkeypatch.setattr(lists.KeysetChangeList, "window", 5)
    monkeypatch.setattr(lists, "PATIENCE", 0.0)
    found = JobFactory.create(done=True, queue_name="rare")
    JobFactory.create_batch(12, done=True)
    pages = [[], *walk("older", start="?queue=rare&p=first")]
    assert pages == [[], [], [found.pk]]
    page = body(root, url("changelist"), queue="rare", p=lists.AGAIN)
    assert "0 found among 5 rows. There are more." in shown(page)
    assert "data-pgqueue-goes-on>Search on<" in page
    assert list(walk("newer", start=f"?queue=rare&p=-{found.pk}"))[-1] == []


def test_the_first_page_of_a_search_is_short_and_is_read_again(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is over, or too short for another window. Its link, which a script follows, reads it whole."""
    monkeypatch.setattr(lists, "FIRST_WINDOW", 5)
    old = JobFactory.create(done=True, queue_name="rare")
    JobFactory.create_batch(12, done=True)
    new = JobFactory.create(done=True, queue_name="rare")
    page = body(root, url("changelist"), queue="rare")
    assert "1 found among 5 rows. There are more." in shown(page)
    assert 'href="?p=first&amp;queue=rare" rel="next" data-pgqueue-goes-on>Search on<' in page
    assert listed(root, queue="rare", p=lists.AGAIN) == [new.pk, old.pk]
    monkeypatch.setattr(lists, "SMALLEST_WINDOW", 1)
    monkeypatch.setattr(lists, "FIRST_LOOK", 60.0)
    assert listed(root, queue="rare") == [new.pk, old.pk], "the time is enough for all"
    assert "data-pgqueue-goes-on" not in body(root, url("changelist"))


def test_with_a_status_the_first_page_of_a_search_reads_fewer_jobs(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be few among the jobs that are read."""
    monkeypatch.setattr(search, "FIRST_WINDOW_OF_SCAN", 2)
    monkeypatch.setattr(lists, "FIRST_LOOK", 0.0)
    jobs = JobFactory.create_batch(5, retrying=True, args=["needle"])
    assert listed(root, q="needle", status="retry") == [jobs[4].pk, jobs[3].pk]
    assert len(listed(root, q="needle", status="retry", p=lists.AGAIN)) == len(listed(root, q="needle")) == 5


def test_a_search_goes_on_by_itself_until_the_page_is_full_or_its_time_is_over(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each window has a time limit, and a fast one is followed by a larger one."""
    windows: list[int] = []
    find = lists.KeysetChangeList._find

    def looked(self: lists.KeysetChangeList, place: Any, window: int, already: int) -> Any:
        windows.append(window)
        return find(self, place, window, already)

    monkeypatch.setattr(lists.KeysetChangeList, "window", 2)
    monkeypatch.setattr(lists.KeysetChangeList, "_find", looked)
    monkeypatch.setattr(lists, "QUICK", 60.0)
    old = JobFactory.create_batch(2, done=True, queue_name="rare")
    JobFactory.create_batch(30, done=True)
    new = JobFactory.create(done=True, queue_name="rare")
    JobFactory.create_batch(2, done=True)
    assert listed(root, queue="rare", p=lists.AGAIN) == [new.pk, old[1].pk, old[0].pk]
    assert windows == [2, 8, 32]
    monkeypatch.setattr(JobAdmin, "list_per_page", 1)
    del windows[:]
    page = body(root, url("changelist"), queue="rare", p=lists.AGAIN)
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
    assert listed(root, finished=f"{start}..{end.replace('+', ' ')}") == [first.pk], (
        "an address without escapes"
    )
    assert listed(root, finished=f"{end}..", status="done") == [second.pk]
    assert listed(root, finished="2020-03-04..2020-03-05", status="done") == [second.pk, first.pk]
    assert listed(root, finished="..2020-03-04") == []
    assert listed(root, enqueued="..2020-03-05") == [late.pk]
    assert listed(root, enqueued="hour") == [second.pk, first.pk]
    page = body(root, url("changelist"), enqueued="2020-03-04..2020-03-05", finished="2020-03-04..")
    assert ">from 2020-03-04 00:00:00 UTC to 2020-03-05 00:00:00 UTC</a>" in page
    assert ">since 2020-03-04 00:00:00 UTC</a>" in page


def test_a_span_of_finished_jobs_is_one_part_of_the_history(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its index, newer jobs are not read one by one."""
    monkeypatch.setattr(lists.KeysetChangeList, "window", 3)
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
    assert numbers(body(root, url("changelist"), status="done", p=5)) == counts, (
        "they are shared for some seconds"
    )
    figures._shared.clear()
    assert numbers(body(root, url("changelist")))["pending"] == "3"
    monkeypatch.setattr(figures, "state_counts", lambda alias: {"pending": Counted(10_000, is_exact=False)})
    figures._shared.clear()
    found = numbers(body(root, url("changelist")))
    assert (found["pending"], found["done"]) == ("10,000+", "")


def test_there_are_no_numbers_of_other_jobs_than_the_list_shows(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    JobFactory.create(queue_name="secret")
    queries: list[dict[str, str]] = [
        {"queue": "default"}, {"q": "add"}, {"finished": "hour", "status": "done"},
    ]  # fmt: skip
    for query in queries:
        assert numbers(body(root, url("changelist"), **query)) == {}
    all_jobs = JobAdmin.get_queryset
    monkeypatch.setattr(JobAdmin, "get_queryset", lambda *args: all_jobs(*args).filter(queue_name="mail"))
    assert numbers(body(root, url("changelist"))) == {}, "who sees a part learns nothing about the others"


@pytest.mark.django_db
@pytest.mark.parametrize("model", ["job", "queue", "worker", "jobbatch", "schedule", "limit", "pause"])
def test_an_empty_list_says_what_it_is_for_and_offers_no_actions(root: Client, model: str) -> None:
    page = body(root, url("changelist", model=model))
    assert page.count('class="pgqueue-empty"') == 1
    assert 'name="action"' not in page
    assert "pgqueue-empty" not in body(root, url("changelist", model=model), q="7")


@pytest.mark.django_db
def test_a_queue_begins_with_its_name_and_its_figures(root: Client) -> None:
    JobFactory.create()
    page = body(root, url("changelist", model="queue"))
    columns = re.findall(r'<th scope="col" class="column-(\w+)', page)
    assert columns[:4] == ["name", "ready", "oldest", "running"]
    assert columns.index("paused") > columns.index("workers")


FORMS = {
    "job_changelist": {"status", "due", "queue", "task", "worker", "enqueued", "finished"},
    "job_failures": {"state", "queue", "task", "time"},
    "jobbatch_changelist": {"state", "created", "finished"},
    "jobstat_changelist": {"queue", "time"},
    "schedule_changelist": {"state", "declared in", "changes in the admin"},
}


@pytest.mark.parametrize("name", FORMS)
def test_all_lists_have_the_same_form_of_filters(root: Client, name: str) -> None:
    BatchFactory.create()
    ScheduleFactory.create()
    JobFactory.create(queue_name="mail")
    WorkerFactory.create()
    model, page = name.split("_")
    html = body(root, url(page, model=model))
    filters = re.split("</search>|</nav>", html.split('id="changelist-filter"')[1])[0]
    assert {*re.findall('data-filter-title="(.*?)"', filters)} == FORMS[name]
    assert len(chosen_links(html)) == len(FORMS[name])
    assert "<select" not in filters
    assert "Show all" not in html, "nothing is searched"


def test_a_pause_is_found_by_its_name_reason_and_author(root: Client) -> None:
    pause(queue="mail", reason="the partner is down", author="ann")
    pause(queue="sync")
    for term in ("MAIL", "partner", "ann"):
        page = body(root, url("changelist", model="pause"), q=term)
        assert ("queue mail" in page, "queue sync" in page) == (True, False)
        assert "1 result" in page
