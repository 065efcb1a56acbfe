"""The list of tasks, and the page of a task."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgqueue import enqueue, pause, set_limit, task
from django_pgqueue.admin import task_page as page_module
from django_pgqueue.admin import tasks as list_module
from django_pgqueue.admin.task_page import policy
from django_pgqueue.postgres.timeout import TimeLimitReached
from django_pgqueue.tasks.keys import Concurrency, RateLimit
from django_pgqueue.tasks.unique import Unique
from tests.app.tasks import mail, noop
from tests.support.factories import BatchFactory, JobFactory, JobStatFactory, ScheduleFactory
from tests.support.failures import fold, note
from tests.support.statistics import classes

from .helpers import body, staff, url

pytestmark = pytest.mark.django_db

TASKS = "/admin/django_pgqueue/jobstat/"


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


def cells(client: Client, path: str) -> list[str]:
    """Return the figures of a task in words."""
    [row] = re.findall(r"<tr><th.*?</tr>", body(client, TASKS, q=path))
    return re.findall(r"<td(?: class=\"pgqueue-alarm\")?>(.*?)</td>", row)


def names(client: Client, **query: Any) -> list[str]:
    """Return the tasks that ran, from the top."""
    return [path_of(row).removeprefix("depot.") for row in rows(client, **query) if row["figures"].attempts]


def test_every_task_that_ran_or_is_known(root: Client) -> None:
    ran("depot.sync", 600, failed=4, retried=2)
    [sync], [idle] = rows(root, q="depot.sync"), rows(root, q="tests.app.tasks.mail")
    assert (sync["is_known"], idle["is_known"]) == (False, True)
    assert "<svg" in sync["trend"]
    rate, *others = cells(root, "depot.sync")
    assert re.fullmatch(r"(8\.[1-9]|9\.\d|10) jobs/min", rate), "since a full quarter of an hour"
    assert others == ["600", "4", "2", "1.0 %", "1.5 ms", "1.9 ms", "768 ms", "998 ms"]
    assert cells(root, "tests.app.tasks.mail") == ["0", *["-"] * 8]
    page = body(root, TASKS, q="tests.app.tasks.mail")
    assert f'<a href="{TASKS}task/tests.app.tasks.mail/">tests.<wbr>app.<wbr>tasks.<wbr>mail</a>' in page
    page = body(root, TASKS, q="depot.sync")
    assert "not known to this process" in page
    assert '<td class="pgqueue-alarm">4</td>' in page


def test_spans(root: Client) -> None:
    ran("depot.now", 1)
    ran("depot.today", 2, minutes_ago=600)
    ran("depot.week", 3, minutes_ago=3 * 1440)
    assert names(root) == names(root, span="x") == ["now"]
    assert names(root, span="24h") == ["today", "now"]
    assert names(root, span="7d") == ["week", "today", "now"]
    assert 'span=24h" aria-current="true"' in body(root, TASKS, span="24h", q="depot")


def test_filters(root: Client) -> None:
    ran("depot.sync", 1)
    ran("depot.mail", 2, queue_name="bulk")
    assert names(root, queue="bulk") == ["mail"]
    assert names(root, q="DEPOT sy") == ["sync"]
    idle = {path_of(row) for row in rows(root, queue="mail")}
    assert "tests.app.tasks.mail" in idle
    assert "tests.app.tasks.noop" not in idle
    assert names(root, queue="none") == names(root, q="a\0b") == []


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


def test_the_number_of_statements_is_constant(root: Client) -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            rows(root)
        return sum("pgqueue_" in entry["sql"] for entry in captured)

    ran("depot.a", 1)
    few = statements()
    for n in range(20):
        ran(f"depot.task{n}", 1)
    assert statements() == few <= 4


def test_permissions() -> None:
    ran("tests.app.tasks.add", 1)
    nobody, viewer = staff("view_job"), staff("view_jobstat")
    for page in (TASKS, f"{TASKS}database/", f"{TASKS}task/tests.app.tasks.add/"):
        assert nobody.get(page).status_code == 403
        assert viewer.get(page).status_code == 200
        assert Client().get(page).status_code == 302
    page = body(viewer, f"{TASKS}task/tests.app.tasks.add/")
    assert "/job/?" not in page
    assert "/pause/add/" not in page
    assert "Schedules" not in page


@contextmanager
def too_slow(monkeypatch: pytest.MonkeyPatch, *places: tuple[Any, str]) -> Iterator[None]:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise TimeLimitReached

    with monkeypatch.context() as patch:
        for place, name in places:
            patch.setattr(place, name, fail)
        yield


def test_a_part_that_is_too_slow_does_not_keep_the_others(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with too_slow(monkeypatch, (list_module, "breakdown"), (list_module, "trends")):
        page = body(root, TASKS, q="tests.app.tasks.mail")
    assert "The statistics could not be read in time" in page
    assert "tests.<wbr>app.<wbr>tasks.<wbr>mail" in page
    with too_slow(monkeypatch, (page_module, "series"), (page_module, "breakdown"), (page_module, "callers")):
        page = body(root, f"{TASKS}task/tests.app.tasks.mail/")
    assert "so the charts are missing" in page
    assert "could not be read in time" in page
    assert "tests/app/tasks.py:" in page


def facts(page: str) -> dict[str, str]:
    """Return the terms of the page and what is said about them, without markup."""
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page, re.DOTALL)
    return {label: " ".join(re.sub(r"<[^>]+>", "", text).split()) for label, text in found}


def test_the_page_of_a_task(root: Client) -> None:
    ran("tests.app.tasks.mail", 60, failed=2, queue_name="mail")
    ScheduleFactory.create(name="nightly", task_path="tests.app.tasks.mail", cron="0 3 * * *")
    ScheduleFactory.create(name="other")
    pause(task="tests.app.tasks.mail", reason="bounces", author="ann")
    pause(queue="mail")
    pause(queue="slow")
    set_limit(queue="mail", concurrency=7)
    page = body(root, f"{TASKS}task/tests.app.tasks.mail/", span="24h")
    said = facts(page)
    assert said["Source"].startswith("tests/app/tasks.py:")
    assert (said["Done"], said["Failed"], said["Errors"]) == ("60", "2", "3.2 %")
    assert said["Queue"] == "mail, priority 10"
    assert said["Attempts"] == "3"
    assert said["If its worker is lost"] == "it fails"
    assert said["Limit"] == "queue:mail: at most 7 at once"
    assert "nightly: At 03:00 every day active in " in said["Schedules"]
    assert "other" not in said["Schedules"]
    assert "A task with a policy." in page
    assert page.count("<dt>Paused</dt>") == 2
    assert "this task: paused by ann: bounces" in page
    assert page.count("data-pgqueue-chart") == 3
    assert f'href="{url("changelist")}?task=tests.app.tasks.mail&amp;status=failed"' in page
    assert f'href="{url("add", model="pause")}?kind=task&amp;name=tests.app.tasks.mail"' in page


def test_the_failures_of_a_task() -> None:
    connection.ensure_connection()
    raw = connection.connection
    note(raw, "f", failed=2, task_path="tests.app.tasks.mail", error_class="depot.Down")
    note(raw, "g", failed=1, task_path="depot.tasks.other", error_class="depot.Late")
    fold(raw)
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
    assert "depot.<b>" not in page
    assert facts(page)["Done"] == "3"
    assert "none in this time" in body(root, f"{TASKS}task/never.heard.of/")
    assert root.get(f"{TASKS}task/a%00b/").status_code == 200


def test_what_enqueues_a_task(root: Client) -> None:
    parent = JobFactory.create(done=True, task="depot.tasks.parent")
    batch = BatchFactory.create()
    JobFactory.create(done=True, batch=batch, context={"user": 5})
    JobFactory.create(failed=True, parents=[parent])
    JobFactory.create(running=True, context={"user": 6})
    said = facts(body(root, f"{TASKS}task/tests.app.tasks.add/"))
    assert said["Its last jobs"] == "The last 3 jobs: 1 in batches, 2 for a user, 1 after other jobs."
    assert said["After jobs of"] == "depot.tasks.parent"
    said = facts(body(root, f"{TASKS}task/tests.app.tasks.mail/"))
    assert said["Its last jobs"].startswith("There are none among the jobs")


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


def test_a_policy_in_words() -> None:
    words = {option.label: option.text for option in policy(everything) if not option.is_default}
    assert words == {
        "Unique": "until the job has finished, by order, another call raises an error",
        "Concurrency": "at most 2 at once, for each order, limit orders, others wait",
        "Rate": ("at most 10 a minute, up to 5 at once after a quiet time, for each order, limit orders"),
        "Group": "order",
        "Wait before a retry": "1.0 s, 1 min; the last one repeats",
        "Retried after": "ValueError, KeyError",
        "Fails at once after": "TypeError",
        "Timeout": "30 s",
        "Expires": "if it has not started after 2 h",
        "Runs": "on a thread, in one transaction with its finish",
        "Logs": "are kept from WARNING on",
    }


def test_the_defaults_of_a_policy_name_their_settings(settings: Any) -> None:
    settings.PGQUEUE = {"MAX_ATTEMPTS": 9, "TIMEOUT": 90}
    words = {option.label: option.text for option in policy(noop) if option.is_default}
    assert len(words) == len(policy(noop))
    assert words["Attempts"] == "9 (the setting MAX_ATTEMPTS)"
    assert words["Timeout"] == "1 min (the setting TIMEOUT)"
    assert words["Wait before a retry"] == "15 s, doubled up to 1 h, unless the queue has its own"
    assert next(option for option in policy(mail) if option.label == "Queue").text == "mail, priority 10"


def test_no_page_has_inline_scripts_or_styles(root: Client) -> None:
    ran("tests.app.tasks.add", 4, failed=1)
    enqueue(noop)
    for page in (TASKS, f"{TASKS}database/", f"{TASKS}task/tests.app.tasks.add/"):
        content = body(root, page).split('<div id="content"')[1]
        assert " style=" not in content
        assert "<script" not in content.split("<footer")[0]
