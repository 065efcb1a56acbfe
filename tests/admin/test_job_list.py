"""The list of jobs: what it says of each, their order and its pages, and the search with its bounds."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.db import OperationalError, connection, transaction
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from syrupy.assertion import SnapshotAssertion

from django_pgqueue.admin import lists
from django_pgqueue.admin.bulk import selection
from django_pgqueue.admin.jobs import search
from django_pgqueue.admin.lists import AGAIN, KeysetChangeList
from django_pgqueue.models import Job, JobProgress
from django_pgqueue.postgres.timeout import TimeLimitReached, time_limit
from tests.support.factories import ERROR, BatchFactory, JobFactory, WorkerFactory
from tests.support.wording import shown

from .helpers import STATES, body, opened, read, staff, url

pytestmark = pytest.mark.django_db

NOW = timezone.now().replace(microsecond=123456)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def found(**query: str) -> list[int]:
    return [row.pk for row in opened(**query).result_list]


def following(link: str) -> Any:
    return opened(**dict(parse_qsl(link[1:])))


def test_jobs_of_a_tenant(root: Client) -> None:
    """The filter is there only if a job has a tenant. It reads the index of tenants."""
    plain = JobFactory.create()
    page = body(root, url("changelist"))
    assert "By tenant" not in page
    assert re.findall(r"Filter by \w*", page) == ["Filter by enqueued", "Filter by finished"]
    jobs = [JobFactory.create(context={"tenant": name}) for name in ("acme", "bolt", "acme", "cone")]
    ended = JobFactory.create(context={"tenant": "acme"}, done=True)
    page = body(root, url("changelist"))
    assert all(f"?tenant={name}" in page for name in ("acme", "bolt", "cone"))
    assert found(tenant="acme") == [ended.pk, jobs[2].pk, jobs[0].pk]
    assert found(tenant="acme", status="done") == [ended.pk]
    assert found(tenant="nobody") == []
    assert plain.pk in found()


def test_what_the_list_says_of_each_job(root: Client, wording: SnapshotAssertion) -> None:
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
    rows = body(root, url("changelist")).split("<tbody>")[1].split("</tbody>")[0]
    assert shown(f'<div id="content">{rows}</div>') == wording


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


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("state", ["pending", "running", "done", "failed", "cancelled"])
def test_pages_in_the_order_of_a_state_forth_and_back(state: str) -> None:
    jobs = {"pending": waiting, "running": running}.get(state, lambda: over(state))()
    JobFactory.create(status="blocked")
    for queue in ("", "a", "b"):
        ids = [job.pk for job in jobs if not queue or job.queue_name == queue]
        page = opened(status=state, **({"queue": queue} if queue else {}))
        seen = [[row.pk for row in page.result_list]]
        while link := page.older:
            page = following(link)
            seen.append([row.pk for row in page.result_list])
        assert seen == ([ids[start : start + 3] for start in range(0, len(ids), 3)] or [[]])
        back: list[int] = []
        while link := page.newer:
            page = following(link)
            back = [*(row.pk for row in page.result_list), *back]
        assert back == ids[: len(back)]
        assert len(back) >= len(ids) - 3


def looked_back(**query: str) -> list[list[int]]:
    """Return the jobs of each page, until there is no link to a further one."""
    page = opened(**query, p=AGAIN)
    pages = [[row.pk for row in page.result_list]]
    while link := page.older:
        assert page.cut
        page = following(link)
        pages.append([row.pk for row in page.result_list])
    return pages


def test_a_filter_that_no_index_serves_looks_at_so_many_rows_in_this_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(KeysetChangeList, "window", 4)
    monkeypatch.setattr(lists, "PATIENCE", 0.0)
    rare = JobFactory.create(done=True, task_path="rare.task", finished_at=ago(100))
    for n in range(10):
        JobFactory.create(done=True, finished_at=ago(n), shelf=9 if n % 2 else 3)
    assert looked_back(status="done", task="rare.task") == [[], [], [rare.pk]]


@pytest.mark.parametrize("status", ["retry", "blocked"])
def test_a_rare_state_of_waiting_jobs_is_found_at_once(monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    monkeypatch.setattr(KeysetChangeList, "window", 4)
    monkeypatch.setattr(lists, "PATIENCE", 0.0)
    rare = JobFactory.create(status=status, run_after=ago(-100))
    for n in range(10):
        JobFactory.create(run_after=ago(n), queue_name="ab"[n % 2], group_key="g" if n % 3 else None)
    assert looked_back(status=status) == [[rare.pk]]


def test_with_many_queues_the_newest_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_QUEUES", 2)
    jobs = [JobFactory.create(queue_name=name, priority=n) for n, name in enumerate("cba")]
    assert found(status="pending") == [job.pk for job in reversed(jobs)]
    Job.objects.filter(pk=jobs[0].pk).update(status="blocked")
    Job.objects.filter(pk=jobs[2].pk).update(priority=-1)
    assert found(status="pending") == [jobs[1].pk, jobs[2].pk]


@pytest.mark.parametrize("state", ["pending", "done", "running"])
def test_a_place_that_makes_no_sense_is_answered(state: str) -> None:
    JobFactory.create()
    for place in (
        "1", "5~6", "5~6~7~8", "5~2026-01-01 00:00~1e9", "5~9999-12-31 23:59:59-12:00~0",
        "-5~0001-01-01 00:00+12:00~-3", "5~2026-01-01 00:00Z~99999999999999999999", f"{10**30}~2026-13-01",
        "5~x~1",
    ):  # fmt: skip
        assert len(found(status=state, p=place)) <= 1, place


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
        ("ann@example", {"args": ["Ann@Example.com"]}),
        ("order-77", {"kwargs": {"reference": "order-77"}}),
        ('"ref": "order', {"kwargs": {"ref": "order-78"}}),
        ('say "hi"', {"args": ['say "hi"']}),
        ("C:\\temp", {"args": ["C:\\temp"]}),
        ("Grüße", {"args": ["Viele Grüße"]}),
        ("100%", {"args": ["100%"]}),
        ("a_b", {"args": ["a_b"]}),
        ("gatewaydown", {"failed": True, "errors": [{**ERROR, "message": "", "traceback": ""}]}),
        ("no answer from", {"retrying": True, "errors": [{**ERROR, "class": "", "traceback": ""}]}),
        ('File "x.py"', {"failed": True, "errors": [{"traceback": 'File "x.py"'}]}),
        ("send_receipt", {"task_path": "shop.tasks.send_receipt", "done": True}),
        ("acme", {"limit_key": "tenant/Acme", "done": True}),
        ("doc-9", {"unique_key": "my Doc-9", "unique_scope": "live"}),
    ]
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


@pytest.mark.parametrize("state", ["failed", "retry", "running"])
def test_the_search_finds_the_jobs_of_a_group_of_failures(state: str) -> None:
    job, _other = (JobFactory.create(**STATES[state], error_fingerprint=each) for each in "fg")
    for shelf in (1, 9):
        JobFactory.create(done=True, shelf=shelf, error_fingerprint="f")
    assert found(q="fingerprint:f") == found(q=" fingerprint: f", status=state) == [job.pk]


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
    old, recent = (
        JobFactory.create(**CALL, done=True, finished_at=now - timedelta(days=days)) for days in (8, 6)
    )
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
def test_a_search_that_takes_too_long_gives_up_and_says_so(
    root: Client, monkeypatch: pytest.MonkeyPatch, term: str, finder: str
) -> None:
    JobFactory.create(args=["needle"])
    monkeypatch.setattr(lists, "SECONDS", 0.05)
    monkeypatch.setattr(lists, "MOST_SHRINKS", 1)
    monkeypatch.setattr(search, finder, asleep)
    page = body(root, url("changelist"), q=term)
    assert "The search gave up after 0.1 s." in page, "it has tried two windows"
    assert "Choose a status, a queue or a time" in page
    assert "Nothing found" not in page


def test_a_smaller_window_is_read_if_a_larger_one_takes_too_long(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize(("status", "options"), [("pending", {}), ("failed", {"failed": True})])
def test_a_text_is_searched_in_one_part_whatever_the_queues(status: str, options: dict[str, Any]) -> None:
    jobs = [
        JobFactory.create(queue_name=f"q{number % 3}", priority=number % 2, kwargs={"x": "needle"}, **options)
        for number in range(4)
    ]
    with CaptureQueriesContext(connection) as captured:
        assert found(status=status, q="needle") == [job.pk for job in reversed(jobs)]
    [statement] = [entry["sql"] for entry in captured if "needle" in entry["sql"]]
    assert statement.count("upper(kwargs::text)") == 1


def test_an_action_on_all_that_a_slow_search_finds_is_not_counted(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = JobFactory.create(failed=True)
    monkeypatch.setattr(selection, "SECONDS", 0.05)
    monkeypatch.setattr(search, "_with_text", asleep)
    data = {"action": "retry_jobs", "_selected_action": [job.pk], "select_across": 1, "index": 0}
    page = root.post(f"{url('changelist')}?q=needle&status=failed", data).content.decode()
    assert "? failed jobs would run again." in page


def timeout() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        [(value,)] = cursor.fetchall()
    return str(value)


def test_the_time_limit_ends_with_its_block_and_the_transaction_goes_on() -> None:
    before = timeout()
    with transaction.atomic():  # as with ATOMIC_REQUESTS
        kept = JobFactory.create()
        with time_limit("default", 2):
            assert timeout() == "2s"
        assert timeout() == before
        with pytest.raises(TimeLimitReached), time_limit("default", 0.02), connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(5)")
        assert timeout() == before
        with pytest.raises(OperationalError, match="something else"), time_limit("default", 2):
            raise OperationalError("something else")
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 1000")
        with time_limit("default", 2):
            assert timeout() == "1s", "a shorter limit of the connection stays"
    assert type(kept).objects.filter(pk=kept.pk).exists()


@pytest.mark.django_db(transaction=True)
def test_the_time_limit_leaves_nothing_on_a_connection_in_autocommit() -> None:
    before = timeout()
    with time_limit("default", 2):
        assert timeout() == "2s"
    assert timeout() == before
