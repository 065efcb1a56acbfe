"""The list of tasks, and the page of a task."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from django_pgqueue import pause, set_limit, task
from django_pgqueue.admin import tasks as list_module
from django_pgqueue.admin.tasks import policy
from django_pgqueue.tasks.keys import Concurrency, RateLimit
from django_pgqueue.tasks.unique import Unique
from tests.app.tasks import noop
from tests.support.factories import BatchFactory, JobFactory, JobStatFactory, ScheduleFactory
from tests.support.figures import classes, failure, roll_up
from tests.support.schedules import FAR

from .helpers import body, chosen_links, seen, staff, url

pytestmark = pytest.mark.django_db

TASKS = "/admin/django_pgqueue/jobstat/"
MAIL = "tests.app.tasks.mail"


def ran(path: str, done: int = 0, minutes_ago: float = 5, **columns: Any) -> None:
    """Write the statistics of a minute. Each attempt waited up to 2 ms and ran up to 1 s."""
    attempts = done + columns.get("failed", 0) + columns.get("retried", 0)
    minute = timezone.now() - timedelta(minutes=minutes_ago)
    histograms = {"wait_histogram": classes(c1=attempts), "run_histogram": classes(c10=attempts)}
    JobStatFactory.create(task_path=path, minute=minute, done=done, **{**histograms, **columns})


def rows(client: Client, **query: Any) -> list[Any]:
    response = client.get(TASKS, query)
    assert response.status_code == 200
    return list(response.context["rows"])


def path_of(row: dict[str, Any]) -> str:
    return str(row["figures"].task_path)


def names(client: Client, **query: Any) -> list[str]:
    """Return the tasks that ran, from the top. The page of all that this process knows is long."""
    found = rows(client, **{"q": "depot", **query})
    return [path_of(row).removeprefix("depot.") for row in found if row["figures"].attempts]


def test_the_list(root: Client, wording: Any) -> None:
    """A task that ran and is not known to this process, and one that is known and has not run."""
    ran("depot.sync", 600, failed=4, retried=2)
    [sync], [idle] = rows(root, q="depot.sync"), rows(root, q="tests.app.tasks.mail")
    assert (sync["is_known"], idle["is_known"]) == (False, True)
    assert "<svg" in sync["trend"]
    told = [seen(root, TASKS, "pgqueue-tasks", q=task) for task in ("depot.sync", "app.tasks.mail")]
    assert told == wording
    times = re.findall(r"\d[\d.]* ms", seen(root, TASKS, q="depot.sync"))
    assert times == ["1.5 ms", "1.9 ms", "768 ms", "998 ms"]
    [rate] = re.findall(r"([\d.]+) jobs/min", body(root, TASKS, q="depot.sync"))
    assert 8 <= float(rate) <= 10, "since a full quarter of an hour"


def test_a_span_is_a_fixed_one_or_from_one_time_to_another(root: Client) -> None:
    """Whole sums are counted: quarters of an hour, hours, or days, as long as each is kept."""
    ages = {"now": 5, "hours": 600, "later": 660, "week": 3 * 1440, "days": 10 * 1440, "months": 50 * 1440}
    for path, minutes in ages.items():
        ran(f"depot.{path}", 4, minutes_ago=minutes)
    connection.ensure_connection()
    roll_up(connection.connection)

    def between(first: float, last: float) -> dict[str, str]:
        times = (timezone.now() - timedelta(minutes=minutes) for minutes in (first, last))
        texts = (f"{time:%Y-%m-%dT%H:%M:%S%z}" for time in times)
        return dict(zip(("span_from", "span_to"), texts, strict=True))

    assert names(root) == names(root, span="x") == ["now"]
    assert sorted(names(root, span="24h")) == ["hours", "later", "now"]
    assert sorted(names(root, span="7d")) == ["hours", "later", "now", "week"]
    assert chosen_links(body(root, TASKS, span="24h", q="depot")) == ["All", "24 hours"]
    assert names(root, **between(630, 570)) == ["hours"]
    assert names(root, **between(690, 570)) == ["hours", "later"]
    assert names(root, **between(11 * 1440, 9 * 1440)) == ["days"]
    assert names(root, **between(52 * 1440, 48 * 1440)) == ["months"]
    assert names(root, span_from=between(30, 0)["span_from"]) == ["now"], "to now"
    [row] = rows(root, **between(630, 570), q="depot.hours")
    assert 0 < row["figures"].per_second <= 4 / 3600
    assert "<svg" in row["trend"]
    page = body(root, TASKS, **between(630, 570), queue="default")
    assert chosen_links(page) == ["default"], "no fixed span is chosen"
    assert 'href="?queue=default&amp;span=7d"' in page, "without the times"
    assert names(root, span_from="2999-01-01T00:00") == names(root, span="x..y") == ["now"], "what is no span"


def test_filters(root: Client) -> None:
    ran("depot.sync", 1)
    ran("depot.mail", 2, queue_name="bulk")
    assert names(root, queue="bulk") == ["mail"]
    assert names(root, q="DEPOT sy") == ["sync"]
    idle = {path_of(row) for row in rows(root, queue="mail")}
    assert "tests.app.tasks.mail" in idle
    assert "tests.app.tasks.noop" not in idle
    assert names(root, queue="none") == []
    page = body(root, TASKS, queue="none", span="7d", q="sync", p=2)
    assert chosen_links(page) == ["none", "7 days"]
    assert '<input type="hidden" name="queue" value="none">' in page
    assert 'href="?queue=none&amp;q=sync&amp;span=24h"' in page, "a filter leads to the first page"


def test_columns_sort(root: Client) -> None:
    ran("depot.a", 9, failed=1, wait_histogram=classes(c5=10), run_histogram=classes(c2=10))
    ran("depot.b", 5, retried=5, wait_histogram=classes(c2=10), run_histogram=classes(c8=10))
    ran("depot.c", 30, wait_histogram=classes(c9=30), run_histogram=classes(c1=30))
    assert names(root) == names(root, o="x") == ["c", "a", "b"]
    orders = {"task": "abc", "-done": "cab", "-failed": "abc", "-retried": "bac", "-errors": "bac",
              "errors": "cab", "-wait95": "cab", "-wait50": "cab", "-run50": "bac",
              "run95": "cab"}  # fmt: skip
    found = [row["figures"] for row in rows(root)]
    for order, expected in orders.items():
        list_module._sort(found, order)
        assert "".join(row.task_path[-1] for row in found if row.attempts) == expected, order
    assert names(root, o="-retried") == ["b", "a", "c"]
    page = body(root, TASKS, o="-failed", span="24h")
    assert '<th scope="col" aria-sort="descending"><a href="?span=24h&amp;o=failed">' in page


def test_pages(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_module, "PER_PAGE", 2)
    monkeypatch.setattr(list_module, "MOST_TASKS", 3)
    for name in "abcd":
        ran(f"depot.{name}", 1)
    assert names(root) == names(root, p="x") == ["a", "b"]
    assert names(root, p=2, q="depot") == names(root, p=99, q="depot") == ["c"]
    page = body(root, TASKS, q="depot")
    assert "Only the 3 tasks with the most attempts are listed." in page
    assert '<a href="?q=depot&amp;p=2">2</a>' in page


def test_the_page_of_a_task(root: Client, wording: Any) -> None:
    """With the policy of its own and of the settings, what pauses and limits it, and what enqueues it."""
    ran(MAIL, 60, failed=2, queue_name="mail")
    ScheduleFactory.create(name="nightly", task_path=MAIL, cron="0 3 * * *", next_run_at=FAR)
    ScheduleFactory.create(name="other")
    pause(task=MAIL, reason="bounces", author="ann")
    pause(queue="mail")
    pause(queue="slow")
    set_limit(queue="mail", concurrency=7)
    parent = JobFactory.create(done=True, task="depot.tasks.parent")
    batch = BatchFactory.create()
    JobFactory.create(done=True, task=MAIL, batch=batch, context={"user": 5})
    JobFactory.create(failed=True, task=MAIL, parents=[parent])
    JobFactory.create(running=True, task=MAIL, context={"user": 6})
    page = f"{TASKS}task/{MAIL}/"
    text = re.sub(r"tasks\.py:\d+", "tasks.py:<line>", seen(root, page, span="24h"))
    assert [text.partition("Attempts\n")[0], text[text.index("Policy") :]] == wording
    assert body(root, page).count("data-pgqueue-chart") == 3


def test_the_failures_of_a_task() -> None:
    failure("f", failed=2, task_path="tests.app.tasks.mail", error_class="depot.Down")
    failure("g", failed=1, task_path="depot.tasks.other", error_class="depot.Late")
    page = f"{TASKS}task/tests.app.tasks.mail/"
    shown = body(staff("view_jobstat", "view_job"), page, span="24h")
    assert f'href="{url("failure", "f")}"' in shown
    assert "Late" not in shown
    assert f'href="{url("failures")}?task=tests.app.tasks.mail"' in shown
    assert "Down" not in body(staff("view_jobstat"), page, span="24h"), "failures are for who may view jobs"


def test_a_task_that_this_process_does_not_know(root: Client) -> None:
    ran("depot.<b>.gone", 3)
    page = body(root, f"{TASKS}task/depot.<b>.gone/")
    assert "This process cannot find this task" in page
    assert "Done\n3\n" in seen(root, f"{TASKS}task/depot.<b>.gone/")
    page = seen(root, f"{TASKS}task/never.heard.of/")
    assert "none in this time" in page
    assert "There are none among the jobs that were enqueued or ended last." in page


@task(
    unique=Unique(key="order", scope="live", on_conflict="raise"),
    rate_limit=RateLimit(10, per=timedelta(minutes=1), burst=5, key="order", name="orders"),
    concurrency=Concurrency(2, key="order", name="orders"),
    group="order",
    backoff=(1, 60),
    retry_on=(ValueError, KeyError),
    fail_on=TypeError,
    timeout=30,
    expires_after=timedelta(hours=2),
    atomic=True,
    capture_logs="WARNING",
)
def everything(order: int) -> None:
    """A task with all options."""


def test_a_policy_in_words(wording: Any) -> None:
    assert {option.label: option.text for option in policy(everything) if not option.is_default} == wording


def test_the_defaults_of_a_policy_name_their_settings(settings: Any) -> None:
    settings.PGQUEUE = {"MAX_ATTEMPTS": 9, "TIMEOUT": 90}
    words = {option.label: option.text for option in policy(noop) if option.is_default}
    assert len(words) == len(policy(noop))
    assert words["Attempts"] == "9 (the setting MAX_ATTEMPTS)"
    assert words["Timeout"] == "1 min (the setting TIMEOUT)"
    assert words["Wait before a retry"] == "15 s, doubled up to 1 h, unless the queue has its own"
