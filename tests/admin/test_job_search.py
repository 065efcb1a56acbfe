"""The search of the list of jobs: what it finds, its bounds, and that it gives up in time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.test import Client
from django.utils import timezone

from django_pgqueue.admin import job_search
from django_pgqueue.time_limit import TimeLimitReached, time_limit
from tests.support.factories import ERROR, JobFactory

from .helpers import body, listed, post, url

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
    blocked = JobFactory.create(status="blocked", limit_key="crm/7", line=2)
    waiting = JobFactory.create(limit_key="crm/7", line=1, queue_name="mail")
    JobFactory.create(limit_key="crm/77", line=3)
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
    monkeypatch.setattr(job_search, "SECONDS", 0.05)
    monkeypatch.setattr(job_search, "_with_text", lambda jobs, *_: jobs.extra(where=["pg_sleep(5) IS NULL"]))
    page = body(root, url("changelist"), q="needle")
    assert "The search gave up after 0.1 s." in page or "The search gave up after 0.05 s." in page
    assert "Choose a status, a queue or a time" in page
    assert "Nothing found" not in page


def test_an_action_on_all_that_a_slow_search_finds_gives_up_too(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = JobFactory.create(failed=True)
    monkeypatch.setattr(job_search, "SECONDS", 0.05)
    monkeypatch.setattr(job_search, "_with_text", lambda jobs, *_: jobs.extra(where=["pg_sleep(5) IS NULL"]))
    data = {"action": "retry_jobs", "_selected_action": [job.pk], "select_across": 1, "index": 0}
    message, kind = post(root, f"{url('changelist')}?q=needle", **data)
    assert message.startswith("The search gave up after ")
    assert "No job changed." in message
    assert kind == "warning"


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
