"""What the list and the page of a job say of its times, its worker, and what it was called with."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_django
from django.test import Client
from django.utils import timezone

from django_pgqueue.admin import display
from django_pgqueue.admin.jobs import texts
from tests.support.factories import ERROR, JobFactory, QueueFactory, WorkerFactory

from .helpers import STATES, ask, body, staff, url

pytestmark = pytest.mark.django_db

GONE = 4_503_599_627_370_496_123


def ago(**length: float) -> Any:
    return timezone.now() - timedelta(**length)


def rows(client: Client, **query: Any) -> str:
    return body(client, url("changelist"), **query).split('id="result_list"')[1]


@pytest.mark.parametrize(
    ("options", "column", "seconds", "text"),
    [
        ({}, "run_after", -210, "in 3 min"),
        ({}, "run_after", 190, "due for 3 min"),
        ({"status": "blocked"}, "enqueued_at", 250, "waiting for 4 min"),
        ({"running": True}, "last_attempted_at", 310, "running for 5 min"),
        ({"done": True}, "finished_at", 7210, "2 h ago"),
    ],
)
def test_the_list_tells_when(
    root: Client, options: dict[str, Any], column: str, seconds: float, text: str
) -> None:
    JobFactory.create(**options, **{column: ago(seconds=seconds)})
    assert f">{text}</time>" in rows(root)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"run_after": timedelta(seconds=-250)}, "pending, due for 4 min"),
        ({"running": True, "last_attempted_at": timedelta(seconds=-250)}, "running for 4 min"),
        ({"done": True, "finished_at": timedelta(seconds=-250)}, "done 4 min ago"),
    ],
)
def test_the_page_tells_since_when_a_job_is_in_its_state(
    root: Client, options: dict[str, Any], text: str
) -> None:
    now = timezone.now()
    times = {key: now + value for key, value in options.items() if isinstance(value, timedelta)}
    page = body(root, url("change", JobFactory.create(**{**options, **times}).pk))
    assert text in page.replace("</span>", "")


def test_the_list_tells_how_long_a_job_waited_and_ran(root: Client) -> None:
    due = ago(minutes=1)
    JobFactory.create(
        done=True, attempts=2, run_after=due, last_attempted_at=due + timedelta(seconds=2), duration=1.5
    )
    assert "waited 2.0 s, ran 1.5 s, attempt 2" in rows(root)


def test_a_job_that_never_ran_tells_neither(root: Client) -> None:
    JobFactory.create(cancelled=True, attempts=0, started_at=None, last_attempted_at=None)
    assert "waited" not in rows(root)


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ([], {}, "-"),
        ([1, "a"], {"b": [2]}, "1, &quot;a&quot;, b=[2]"),
        (["x" * 500], {"b": 1}, "&quot;" + "x" * 78 + "…"),
    ],
)
def test_the_list_shows_the_arguments_in_a_line(root: Client, args: Any, kwargs: Any, text: str) -> None:
    JobFactory.create(args=args, kwargs=kwargs)
    assert f'<td class="field-call">{text}</td>' in rows(root)


@pytest.mark.parametrize("beat", [None, 300, 0])
def test_a_running_job_that_lost_its_worker_says_so(root: Client, beat: float | None) -> None:
    job = JobFactory.create(running=True, worker=GONE)
    if beat is not None:
        WorkerFactory.create(id=GONE, host="app-7", pid=12, heartbeat_at=ago(seconds=beat))
    is_lost = beat != 0
    assert ("worker lost, waiting for recovery" in rows(root)) is is_lost
    page = body(root, url("change", job.pk))
    assert (">worker lost, waiting for recovery</div>" in page) is is_lost
    assert ("app-7:12" in page) is (beat is not None)
    assert str(GONE) not in page.replace(f"/worker/{GONE}/", "")


def test_workers_that_are_gone_have_a_short_name_also_in_errors(root: Client) -> None:
    job = JobFactory.create(failed=True, worker=GONE, errors=[{**ERROR, "worker": str(GONE)}])
    page = body(root, url("change", job.pk))
    assert page.count(f">{GONE:x}"[:7] + "</span>") == 2
    assert str(GONE) not in page
    odd = JobFactory.create(failed=True, errors=[{**ERROR, "worker": "9" * 40}, {**ERROR, "worker": "?"}])
    assert "GatewayDown" in body(root, url("change", odd.pk)).replace("<wbr>", "")


def test_what_has_nothing_to_say_is_left_out(root: Client) -> None:
    plain = body(root, url("change", JobFactory.create(done=True, result=None).pk))
    full = JobFactory.create(
        failed=True, kwargs={"a": 1}, metadata={"b": 2}, result=3, crash_count=1, timeout=60
    )
    rich = body(root, url("change", full.pk))
    for field in ("why", "keyword_arguments", "noted", "outcome", "crash_count", "timeout"):
        assert f"field-{field}" not in plain
        assert f"field-{field}" in rich
    assert "field-arguments" in plain, "a call without arguments is worth to know"
    assert "pgqueue-errors" not in plain


def test_the_times_are_a_line_in_their_order(root: Client) -> None:
    at = ago(hours=1)
    job = JobFactory.create(
        done=True, enqueued_at=at, run_after=at + timedelta(minutes=5),
        started_at=at + timedelta(minutes=6), last_attempted_at=at + timedelta(minutes=6),
        finished_at=at + timedelta(minutes=7), duration=60.0,
    )  # fmt: skip
    line = body(root, url("change", job.pk)).split('class="pgqueue-line"')[1].split("</ol>")[0]
    assert re.findall(r"<li>([a-z ]+) <", line) == ["enqueued", "run after", "started", "finished"]
    assert "(waited 1 min)" in line
    assert "(ran 1 min)" in line


def test_the_date_of_a_later_time_is_told_if_it_is_another_one() -> None:
    first = datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert ">12:05:00<" in display.later_time(first + timedelta(minutes=5), first)
    assert ">2026-07-02 00:00:00<" in display.later_time(first + timedelta(hours=12), first)
    with timezone.override("Asia/Tokyo"):
        assert ">2026-07-02 00:00:00<" in display.later_time(first + timedelta(hours=3), first)


def test_pages_ask_a_bounded_number_of_questions(
    root: Client, django_assert_max_num_queries: pytest_django.DjangoAssertNumQueries
) -> None:
    errors = [{**ERROR, "worker": str(GONE + n)} for n in range(20)]
    job = JobFactory.create(failed=True, errors=errors)
    for options in STATES.values():
        JobFactory.create_batch(5, **options)
    # Eight for the limits of the view and its template, and five for the chart of the task.
    with django_assert_max_num_queries(5 + 8 + 5):
        body(root, url("change", job.pk))
    body(root, url("changelist"))  # counts the states, for all viewers within some seconds
    with django_assert_max_num_queries(8 + 8 + 4):  # four for the limit of the rows
        body(root, url("changelist"))


def test_names_break_between_their_words_only() -> None:
    assert texts.breakable("shop.tasks.send_<b>") == "shop.<wbr>tasks.<wbr>send_&lt;b&gt;"
    assert texts.breakable("GatewayDown") == "Gateway<wbr>Down"


def test_the_page_that_asks_has_one_way_back_where_nothing_would_change(root: Client) -> None:
    page = ask(root, "cancel_jobs", *JobFactory.create_batch(2, done=True))
    assert re.findall(r"<a [^>]*>([^<]*)</a>", page.content) == ["Back"]
    page = ask(root, "cancel_jobs", *JobFactory.create_batch(2))
    assert "No, take me back" in page.content
    assert ">Back<" not in page.content


def test_the_page_links_only_to_pages_that_the_user_may_view(root: Client) -> None:
    QueueFactory.create(name="mail")
    job = JobFactory.create(running=True, queue_name="mail", worker=WorkerFactory.create(id=7).pk)
    links = [f'href="{url("change", 7, model="worker")}"', f'href="{url("change", "mail", model="queue")}"']
    page = body(root, url("change", job.pk))
    assert all(link in page for link in links)
    page = body(staff("view_job"), url("change", job.pk))
    assert not any(link in page for link in links)
    assert "mail" in page
