"""The search of the list of jobs: what it finds, its bounds, and that it gives up in time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgqueue.admin import lists
from django_pgqueue.admin.bulk import selection
from django_pgqueue.admin.jobs import search
from django_pgqueue.admin.lists import KeysetChangeList
from django_pgqueue.postgres.timeout import TimeLimitReached, time_limit
from tests.support.factories import ERROR, JobFactory

from .helpers import body, listed, staff, url

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("term", "options"),
    [
        ("ann@example", {"args": ["Ann@Example.com"]}),
        ("order-77", {"kwargs": {"reference": "order-77"}}),
        ('"reference": "order', {"kwargs": {"reference": "order-77"}}),
        ('say "hi"', {"args": ['say "hi"']}),
        ("C:\\temp", {"args": ["C:\\temp"]}),
        ("Grüße", {"args": ["Viele Grüße"]}),
        ("100%", {"args": ["100%"]}),
        ("a_b", {"args": ["a_b"]}),
        ("gatewaydown", {"failed": True, "errors": [ERROR]}),
        ("no answer from", {"retrying": True, "errors": [ERROR]}),
        ('File "x.py"', {"failed": True, "errors": [{**ERROR, "traceback": 'File "x.py"'}]}),
        ("send_receipt", {"task_path": "shop.tasks.send_receipt", "done": True}),
    ],
)
def test_a_text_is_found_in_the_task_the_arguments_and_the_errors(
    root: Client, term: str, options: dict[str, Any]
) -> None:
    job = JobFactory.create(**options)
    decoy = {**ERROR, "class": "Other", "message": "x", "traceback": ""}
    JobFactory.create(args=["1000", "axb"], failed=True, errors=[decoy])
    assert listed(root, q=term) == [job.pk]


def test_the_keys_of_an_error_are_no_text_of_it(root: Client) -> None:
    JobFactory.create(failed=True)
    assert listed(root, q="finished_at") == listed(root, q='traceback":') == []


def test_a_number_is_an_id_first_and_a_text_if_there_is_no_such_job(root: Client) -> None:
    job = JobFactory.create(args=[1])
    other = JobFactory.create(args=[job.pk, 987654321])
    assert listed(root, q=str(job.pk)) == [job.pk]
    assert listed(root, q=f"default:{job.pk}") == [job.pk]
    assert listed(root, q=f"other:{job.pk}") == []  # a job of another database, whatever is here
    assert listed(root, q="987654321") == [other.pk]


def test_a_key_finds_the_jobs_that_run_or_wait_with_it(root: Client) -> None:
    runs = JobFactory.create(running=True, limit_key="crm/7")
    blocked = JobFactory.create(status="blocked", limit_key="crm/7", wait_position=2)
    waiting = JobFactory.create(limit_key="crm/7", wait_position=1, queue_name="mail")
    JobFactory.create(limit_key="crm/77", wait_position=3)
    JobFactory.create(done=True, limit_key="crm/7")
    assert listed(root, q="key:crm/7") == [waiting.pk, blocked.pk, runs.pk]
    assert listed(root, q=" key: crm/7 ", status="blocked") == [blocked.pk]
    assert listed(root, q="key:crm/7", queue="mail") == [waiting.pk]
    one = JobFactory.create(unique_key="doc-7", unique_scope="waiting")
    two = JobFactory.create(running=True, unique_key="doc-7", unique_scope="live")
    JobFactory.create(running=True, unique_key="doc-7", unique_scope="waiting")
    assert listed(root, q="key:doc-7") == [two.pk, one.pk]


def test_a_key_that_no_job_has_is_a_text(root: Client) -> None:
    job = JobFactory.create(args=["key:abc"])
    assert listed(root, q="key:abc") == [job.pk]
    assert listed(root, q="key:") == [job.pk]
    assert listed(root, q="key:none") == []


def test_a_text_is_found_in_keys(root: Client) -> None:
    one = JobFactory.create(limit_key="tenant/Acme", done=True)
    two = JobFactory.create(unique_key="doc-acme", unique_scope="live")
    assert listed(root, q="acme") == [two.pk, one.pk]


def test_jobs_that_finished_long_ago_are_not_searched(root: Client) -> None:
    args, now = ["needle"], timezone.now()
    waiting = JobFactory.create(args=args, enqueued_at=now - timedelta(days=30))
    recent = JobFactory.create(args=args, done=True, finished_at=now - timedelta(days=2))
    old = JobFactory.create(args=args, done=True, finished_at=now - timedelta(days=8))
    assert listed(root, q="needle") == [recent.pk, waiting.pk]
    assert listed(root, q="needle", finished="day") == []
    assert listed(root, q="needle", status="pending") == [waiting.pk]
    assert listed(root, q=str(old.pk)) == [old.pk], "an id is found at any age"


def test_a_search_that_takes_too_long_gives_up_and_says_so(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    JobFactory.create(args=["needle"])
    monkeypatch.setattr(lists, "SECONDS", 0.05)
    monkeypatch.setattr(lists, "SMALLER", (10,))
    monkeypatch.setattr(search, "_with_text", lambda jobs, *_: jobs.extra(where=["pg_sleep(5) IS NULL"]))
    page = body(root, url("changelist"), q="needle")
    assert "The search gave up after 0.1 s." in page, "it has tried two windows"
    assert "Choose a status, a queue or a time" in page
    assert "Nothing found" not in page


def test_a_smaller_window_is_read_if_a_larger_one_takes_too_long(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, *_between, new = JobFactory.create_batch(7, args=["needle"])
    find = KeysetChangeList._find

    def slow(self: KeysetChangeList, place: Any) -> Any:
        if self.window > 3:
            raise TimeLimitReached
        return find(self, place)

    monkeypatch.setattr(KeysetChangeList, "_find", slow)
    monkeypatch.setattr(search, "WINDOW_OF_SCAN", 30)
    page = root.get(url("changelist"), {"q": "needle"})
    assert [row.pk for row in page.context["cl"].result_list] == [new.pk, new.pk - 1, new.pk - 2]
    assert "Found 3 in 3 rows." in page.content.decode()
    further = root.get(f"{url('changelist')}{page.context['cl'].older}").context["cl"]
    further = root.get(f"{url('changelist')}{further.older}").context["cl"]
    assert [row.pk for row in further.result_list] == [old.pk]
    assert not further.cut


@pytest.mark.parametrize(("status", "options"), [("pending", {}), ("failed", {"failed": True})])
def test_a_text_is_searched_in_one_part_whatever_the_queues(
    root: Client, status: str, options: dict[str, Any]
) -> None:
    jobs = [
        JobFactory.create(queue_name=f"q{number % 3}", priority=number % 2, kwargs={"x": "needle"}, **options)
        for number in range(4)
    ]
    with CaptureQueriesContext(connection) as captured:
        assert listed(root, status=status, q="needle") == [job.pk for job in reversed(jobs)]
    [found] = [entry["sql"] for entry in captured if "needle" in entry["sql"]]
    assert found.count("upper(kwargs::text)") == 1


def test_an_action_on_all_that_a_slow_search_finds_is_not_counted(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = JobFactory.create(failed=True)
    monkeypatch.setattr(selection, "SECONDS", 0.05)
    monkeypatch.setattr(search, "_with_text", lambda jobs, *_: jobs.extra(where=["pg_sleep(5) IS NULL"]))
    data = {"action": "retry_jobs", "_selected_action": [job.pk], "select_across": 1, "index": 0}
    page = root.post(f"{url('changelist')}?q=needle&status=failed", data).content.decode()
    assert "0 or more failed jobs would run again." in page


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
    assert type(kept).objects.filter(pk=kept.pk).exists()


@pytest.mark.django_db(transaction=True)
def test_the_time_limit_leaves_nothing_on_a_connection_in_autocommit() -> None:
    before = timeout()
    with time_limit("default", 2):
        assert timeout() == "2s"
    assert timeout() == before


def test_a_shorter_limit_of_the_connection_stays() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 1000")
        with time_limit("default", 2):
            assert timeout() == "1s"


def test_other_errors_of_the_server_are_not_hidden() -> None:
    with pytest.raises(OperationalError, match="something else"), time_limit("default", 2):
        raise OperationalError("something else")


CALL = {
    "args": [{"customer": 5, "name": "Ann Lee"}, True],
    "kwargs": {"order_id": 17, "ref": "17", "a.b": {"x": [1.5, None]}},
}


@pytest.mark.parametrize(
    ("term", "is_found"),
    [
        ("args.0.customer=5", True), ("args.0.customer = 5", True), ('args.0.customer="5"', False),
        ("args.0.name=Ann Lee", True), ('args.0.name="Ann Lee"', True), ("args.0.name=Ann", False),
        ("args.0.name=ann lee", False), ("args.1=true", True), ("args.1=True", False), ("args.2=5", False),
        ("args.customer=5", False), ("kwargs.order_id=17", True), ("kwargs.order_id=1", False),
        ('kwargs.ref="17"', True), ("kwargs.ref=17", True), ('kwargs."a.b".x.0=1.5', True),
        ('kwargs."a.b".x.1=null', True), ('kwargs."a.b".x.0=null', False), ("kwargs.none=null", False),
        ('kwargs."a.b".x=[1.5, null]', False), ("kwargs.order_id", False), ("kwargs.order_id=", False),
        (r'kwargs.ref="\ud800"', False), (r'kwargs.ref="\u0000"', False),
        ("kwargs.99999999999999999999=1", False),
    ],
)  # fmt: skip
def test_a_place_in_the_arguments(root: Client, term: str, is_found: bool) -> None:
    job = JobFactory.create(**CALL)
    JobFactory.create(args=[{"customer": 50, "name": "Bob"}, False], kwargs={"order_id": 170})
    assert listed(root, q=term) == [job.pk] * is_found


def test_a_place_is_searched_like_a_text_in_recent_jobs_and_within_the_time_limit(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = JobFactory.create(**CALL, done=True, finished_at=timezone.now() - timedelta(days=8))
    new = JobFactory.create(**CALL, done=True, finished_at=timezone.now() - timedelta(days=6))
    assert listed(root, q="kwargs.order_id=17") == [new.pk]
    assert listed(root, q="kwargs.order_id=17", finished="2020-01-01..") == [new.pk, old.pk]
    monkeypatch.setattr(lists, "SECONDS", 0.05)
    monkeypatch.setattr(lists, "SMALLER", (10,))
    monkeypatch.setattr(search, "at_path", lambda jobs, *_: jobs.extra(where=["pg_sleep(5) IS NULL"]))
    assert "The search gave up after" in body(root, url("changelist"), q="kwargs.order_id=17")


def test_the_help_of_the_field_tells_what_this_user_may_search(root: Client) -> None:
    assert "kwargs.order_id=17" in body(root, url("changelist"))
    page = body(staff("view_job"), url("changelist"))
    assert "kwargs.order_id=17" not in page
    assert "or text in the task, keys or classes of errors" in page
    with override_settings(PGQUEUE={"REDACT": ["re:x"]}):
        assert "kwargs.order_id=17" not in body(root, url("changelist"))
