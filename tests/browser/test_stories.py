"""Seven stories of a person who is on call, beside a long backlog: from the overview to what one has to read
or to do, within a number of clicks. A form that is filled in and sent is one click, and so is a confirmation.

As many jobs wait as the demonstration has. With ``-s``, each story prints its clicks, and how long the server
took for each page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connection, transaction
from django.test import override_settings
from django.utils import timezone

from django_pgqueue import enqueue
from django_pgqueue.models import Job, Pause
from django_pgqueue.testing import running_worker
from tests.app.async_tasks import sleep_forever
from tests.support import schedules
from tests.support.factories import WorkerFactory
from tests.support.figures import count, fold, note
from tests.support.waiting import until

from .conftest import ROWS, TIMEOUT
from .hands import SURE, address, press

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Request

    from .conftest import Open

pytestmark = pytest.mark.browser

FAILED = 3000
ORDER = ROWS // 2 + 1  # that of the export which somebody asks for
#: One feed sends most jobs of a queue, and one tenant most of another.
FILL_SQL = """
    INSERT INTO pgqueue_job_live (queue_name, task_path, group_key, kwargs, run_after, enqueued_at)
    SELECT CASE WHEN n %% 50 = 0 THEN 'story-mail' ELSE 'story-imports' END,
        CASE WHEN n %% 50 = 0 THEN 'shop.mail.send_offer' ELSE 'shop.feeds.import_row' END,
        CASE WHEN n %% 200 = 0 THEN 'tenant-' || n %% 7 WHEN n %% 50 = 0 THEN 'tenant-acme' END,
        jsonb_build_object('order_id', n, 'feed', CASE WHEN n %% 10 = 1 THEN 'new' ELSE 'legacy' END),
        due, due
    FROM generate_series(1, %s) AS n, (VALUES (clock_timestamp() - interval '10 minutes')) AS clock (due)
"""
#: The failures of a deploy.
BREAK_SQL = """
    INSERT INTO pgqueue_job_kept (
        shelf, status, queue_name, task_path, args, attempts, enqueued_at, started_at, last_attempted_at,
        finished_at, duration, errors, error_fingerprint
    )
    SELECT 9, 'failed', 'story-deploy', 'tests.app.tasks.noop', jsonb_build_array(n), 1, now, now, now, now,
        0.1, '[{"attempt": 1, "class": "shop.PriceMissing", "message": "no price"}]', 'story-deploy'
    FROM generate_series(1, %s) AS n, clock_timestamp() AS now
"""
#: In each of the last ten minutes, more jobs were ready.
GROW_SQL = """
    INSERT INTO pgqueue_depth (queue_name, minute, ready, oldest_ready)
    SELECT queue, date_trunc('minute', now()) - back * interval '1 minute', %s * (20 - back) / 20, 600
    FROM generate_series(0, 10) AS back, unnest(ARRAY['', 'story-imports']) AS queue
    ON CONFLICT (queue_name, minute) DO UPDATE SET ready = excluded.ready
"""
TABLES = "pgqueue_job", "pgqueue_depth", "pgqueue_stat", "pgqueue_stat_rollup", "pgqueue_failure_count"


class Operator:
    """A person at a window, whose clicks are counted."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0
        self.pages: list[str] = []
        page.on("requestfinished", self._note)
        page.goto(address("job_overview"))

    def click(self, target: Locator) -> None:
        """Click on something that leads to another page."""
        self.clicks += 1
        with self.page.expect_navigation():
            target.click()

    def link(self, name: str, within: str = "#content") -> None:
        """Click on the first link with this text."""
        self.click(self.page.locator(within).get_by_role("link", name=name, exact=True).first)

    def press(self, name: str) -> None:
        """Press the first button with this name."""
        self.clicks += 1
        press(self.page, name)

    def reads(self, *texts: str, timeout: float = TIMEOUT) -> None:
        """These texts come within seconds, because the page shows itself anew."""
        for text in texts:
            self.page.locator("#content, .messagelist").get_by_text(text).first.wait_for(timeout=timeout)

    def _note(self, request: Request) -> None:
        if request.resource_type == "document":
            took = request.timing["responseStart"] - request.timing["requestStart"]
            path = urlsplit(request.url)._replace(scheme="", netloc="").geturl()
            self.pages.append(f"    {took:5.0f} ms  {request.method} {path}")


@pytest.fixture(scope="module")
def backlog(console: str) -> Iterator[None]:
    """The jobs of all stories. No trigger sees them, and no worker wakes up."""

    def change(*statements: tuple[str, list[int]]) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL session_replication_role = replica")
            for statement, values in statements:
                cursor.execute(statement, values)
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE pgqueue_job_live, pgqueue_job_kept")

    change((FILL_SQL, [ROWS]), (BREAK_SQL, [FAILED]))
    yield
    change(
        ("DELETE FROM pgqueue_failure_group WHERE fingerprint = 'story-deploy'", []),
        *((f"DELETE FROM {table} WHERE queue_name LIKE 'story-%%'", []) for table in TABLES),
    )


@pytest.fixture(scope="module", autouse=True)
def worker(backlog: None) -> Iterator[None]:
    """A real worker, which also runs actions on many jobs. Other tests look at the demonstration, with dead
    workers and late schedules: so it may do no maintenance, but for the groups of failures.
    """
    far = WorkerFactory.create(
        queues=["story-imports", "story-mail"], heartbeat_at=timezone.now() + timedelta(hours=1)
    )
    queues = "story-bulk", "story-deploy", "story-exports"
    with (
        psycopg.connect(**connection.get_connection_params()) as holder,
        override_settings(PGQUEUE={"BULK_QUEUE": "story-bulk"}),
    ):
        holder.execute("SELECT FROM pgqueue_duty WHERE name <> 'failures' FOR UPDATE")
        with running_worker(queues=queues):
            yield
    far.delete()


@pytest.fixture
def arrive(window: Open, request: pytest.FixtureRequest) -> Iterator[Callable[[], Operator]]:
    """Return a function that opens the overview, as a story begins."""
    came: list[Operator] = []

    def open_overview() -> Operator:
        came.append(Operator(window()))
        return came[-1]

    yield open_overview
    name = request.node.name.removeprefix("test_")
    for each in came:
        print(f"\n{name}, clicks: {each.clicks}", *each.pages, sep="\n")


def test_a_queue_grows(arrive: Callable[[], Operator]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(GROW_SQL, [ROWS])
    count(connection.connection, range(11), 600, queue="story-imports", task="shop.feeds.import_row")
    operator = arrive()
    operator.reads("story-imports grows: from")
    operator.link("Queue story-imports", "#pgqueue-health li:has-text('grows')")
    operator.reads("arrive, and 10 jobs/s end", "kwargs.feed")
    row = operator.page.locator("#pgqueue-backlog tr", has_text="legacy").inner_text()
    assert re.search(r"(8[5-9]|9[0-5])%", row), "the share in a sample"
    assert operator.clicks <= 2


def test_a_broken_deploy(arrive: Callable[[], Operator]) -> None:
    connection.ensure_connection()
    note(
        connection.connection, "story-deploy", queue_name="story-deploy", version="2.5.0", failed=FAILED,
        error_class="shop.PriceMissing", message="no price",
    )  # fmt: skip
    fold(connection.connection)
    operator = arrive()
    operator.link("shop.PriceMissing", "#pgqueue-failures-now")
    operator.reads("2.5.0")
    operator.press("^retry the failed jobs")
    operator.reads("3,000 failed jobs would run again.")
    operator.press(SURE)
    operator.click(operator.page.locator(".messagelist").get_by_role("link"))  # what runs in the background
    operator.reads("3,000 jobs run again")
    until(lambda: Job.objects.filter(queue_name="story-deploy", status="done").count() == FAILED)
    assert operator.clicks <= 4


def test_a_tenant_floods(arrive: Callable[[], Operator]) -> None:
    mails = Job.objects.filter(queue_name="story-mail")
    flood, others = mails.filter(group_key="tenant-acme"), mails.exclude(group_key="tenant-acme")
    before = flood.count(), others.count()
    operator = arrive()
    operator.link("story-mail", "#pgqueue-queues-now")
    row = operator.page.locator("#pgqueue-backlog tr", has_text="tenant-acme").first
    # Three of four. In a sample of 1,000,000 jobs, 2% of which are in this queue, about 150 are of it.
    assert re.search(r"[6-8]\d%", row.inner_text()), "the share in a sample"
    operator.click(row.get_by_role("button", name="Cancel these"))
    operator.press(SURE)
    operator.reads("jobs were cancelled", timeout=6 * TIMEOUT)  # as many as 15,000 of 1,000,000
    assert operator.clicks <= 4
    assert flood.filter(status="cancelled").count() == before[0] > 0
    assert others.filter(status="pending").count() == before[1] > 0


def test_where_is_my_export(arrive: Callable[[], Operator]) -> None:
    operator = arrive()
    operator.link("Jobs", ".pgqueue-nav")
    operator.page.locator("#searchbar").fill(f"kwargs.order_id={ORDER}")
    operator.clicks += 1
    with operator.page.expect_navigation():
        operator.page.keyboard.press("Enter")
    # The search goes on by itself to a second page, if need be.
    row = operator.page.locator("#result_list tbody tr", has_text=f"order_id={ORDER}")
    row.filter(has_text="pending").wait_for()
    assert operator.clicks <= 2


def test_a_worker_hangs(arrive: Callable[[], Operator]) -> None:
    job = enqueue(sleep_forever.using(queue_name="story-exports"))
    until(lambda: Job.objects.get(pk=job.pk).status == "running")
    count(connection.connection, range(11), 60, queue="story-exports", task=sleep_forever.module_path)
    Job.objects.filter(pk=job.pk).update(last_attempted_at=timezone.now() - timedelta(hours=1))
    operator = arrive()
    operator.link(f"Job {job.pk}", "#pgqueue-health")
    operator.press("^show the stack")
    operator.reads("What the task did at", "sleep_forever")
    operator.press("^cancel")
    operator.reads("asked to stop")
    until(lambda: Job.objects.get(pk=job.pk).status == "cancelled")
    assert operator.clicks <= 3


def test_stop_everything_and_start_again(arrive: Callable[[], Operator]) -> None:
    operator = arrive()
    operator.page.get_by_text("Pause everything", exact=True).click()  # it unfolds
    operator.clicks += 1
    operator.press("^yes, pause everything")
    operator.reads("Everything is paused")
    assert operator.clicks <= 2
    assert Pause.objects.filter(kind="all").exists()
    later = arrive()
    later.press("^resume")  # the first one is that of everything
    later.reads("Everything is resumed.")
    assert later.clicks == 1
    assert not Pause.objects.filter(kind="all").exists()


def test_a_schedule_did_not_run(arrive: Callable[[], Operator]) -> None:
    schedule = schedules.create("story-nightly", task_path="shop.exports.nightly", args=[])
    before = Job.objects.filter(queue_name="story-imports").latest("pk")
    for days, outcome in enumerate(("skipped", "skipped", "skipped", "enqueued"), 1):
        schedules.run(schedule, outcome, timezone.now() - timedelta(days=days), job_id=before.pk)
    operator = arrive()
    operator.reads(f"story-nightly: its last 3 runs were skipped, the latest because of job {before.pk}")
    operator.link("Schedule story-nightly", "#pgqueue-health")
    operator.reads("skipped, because the previous job was not finished")
    operator.link(str(before.pk))
    operator.reads("pending", f"shop.feeds.import_row ({before.pk})")
    assert operator.clicks <= 2
    schedule.delete()
