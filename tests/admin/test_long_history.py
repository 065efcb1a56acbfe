"""Neither a long history nor many rows slow down the admin. The query plans show what the statements of each
page read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import DjangoDbBlocker

from django_pgqueue.admin import JobAdmin, lists
from django_pgqueue.admin.bulk import actions
from django_pgqueue.jobs import chunks
from django_pgqueue.models import Job, JobProgress, Worker
from django_pgqueue.monitoring import queues
from tests.support import schedules
from tests.support.factories import BatchFactory, JobFactory, JobStatFactory, QueueFactory, WorkerFactory
from tests.support.jobs import sql

from .helpers import Page, url

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def history(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Insert 20,000 finished jobs, so that a plan that reads them all is expensive. Committed once for
    all.
    """
    with django_db_blocker.unblock():
        sql(
            "INSERT INTO pgqueue_job (shelf, status, task_path, queue_name, args, finished_at, errors)"
            " SELECT CASE WHEN i % 10 = 0 THEN 9 ELSE 1 END,"
            "  CASE WHEN i % 10 = 0 THEN 'failed' ELSE 'done' END,"
            "  'shop.tasks.t' || i % 7, 'queue-' || i % 3, jsonb_build_array(i, repeat('x', 100)),"
            "  now() - (20000 - i) * interval '30 s', '[]'"
            " FROM generate_series(1, 20000) AS i"
        )
        sql("ANALYZE pgqueue_job, pgqueue_job_live, pgqueue_job_past_1, pgqueue_job_kept")
    yield
    with django_db_blocker.unblock():
        sql("TRUNCATE pgqueue_job_past_1, pgqueue_job_kept")


def sent(client: Client, address: str) -> list[str]:
    """Return the statements about the queue that a page sends."""
    with CaptureQueriesContext(connection) as captured:
        assert client.get(address).status_code == 200
    return [entry["sql"] for entry in captured if "pgqueue" in entry["sql"]]


LISTS = [
    "", "status=running", "status=done", "status=failed", "status=cancelled", "queue=queue-1", "queue=none",
    "task=shop.tasks.t1", "q=receipt", "q=t1", "q=19999", "p=10000", "p=-10000", "finished=hour",
    "finished=hour&queue=none&status=failed", "status=done&finished=day", "status=pending", "status=blocked",
    "status=failed&queue=queue-1", "status=failed&task=none", "status=done&queue=none",
    "status=done&q=receipt", "status=failed&q=receipt", "q=receipt&finished=day",
]  # fmt: skip


@pytest.mark.usefixtures("history")
def test_lists_read_little_of_a_history(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists.KeysetChangeList, "window", 500)
    monkeypatch.setattr(lists, "PATIENCE", 0.0)  # one window
    monkeypatch.setattr(lists, "FIRST_LOOK", 0.0)
    monkeypatch.setattr(JobAdmin, "list_per_page", 20)
    monkeypatch.setattr(queues, "state_counts", lambda alias: {})  # see tests/plans/lists.py
    for query in LISTS:
        about_jobs = sent(root, f"{url('changelist')}?{query}")
        assert len(about_jobs) <= 10, query
        assert_reads_little(about_jobs)


@pytest.mark.usefixtures("history")
def test_one_running_job_is_found_behind_all_others(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobFactory.create(pk=Job.objects.earliest("pk").pk - 1, task_path="shop.tasks.rare", running=True)
    monkeypatch.setattr(lists, "FIRST_LOOK", 60.0)  # however slow the machine is
    page = root.get(f"{url('changelist')}?task=shop.tasks.rare")
    assert [row.pk for row in page.context["cl"].result_list] == [job.pk]
    assert page.context["cl"].read > 20_000


QUERIES = ["", "status=done", "status=failed", "status=cancelled", "queue=none", "q=t1", "finished=day"]
#: The others do with jobs that are over what the first of them does: they only count them.
OTHERS = [("queue=none", "cancel_jobs"), ("q=t1", "cancel_jobs"), ("", "cancel_jobs"), ("", "run_now_jobs")]


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize(("query", "action"), [*((query, "retry_jobs") for query in QUERIES), *OTHERS])
def test_actions_read_little(root: Client, monkeypatch: pytest.MonkeyPatch, query: str, action: str) -> None:
    monkeypatch.setattr(actions, "MOST_FINISHED", 500)
    monkeypatch.setattr(actions, "FIRST_COUNTED", (100, 200))
    monkeypatch.setattr(lists.KeysetChangeList, "window", 500)
    monkeypatch.setattr(JobAdmin, "list_per_page", 20)
    monkeypatch.setattr(lists, "BACKLOG_WINDOW", 100)
    monkeypatch.setattr(chunks, "FIRST_SIZE", 50)  # for 500 of 2,000 rows, PostgreSQL 14 reads all of them
    data = {"action": action, "_selected_action": [1], "select_across": 1}
    address = f"{url('changelist')}?{query}"
    with CaptureQueriesContext(connection) as captured:
        response = root.post(address, {**data, "index": 0, "count": "all"})
        response = root.post(address, {**data, "index": 0})
        if response.status_code == 200 and (page := Page(address, response.content.decode())).offers_to_act:
            assert page.confirm(root)[1] == "success"
    about_jobs = [entry["sql"] for entry in captured if "pgqueue" in entry["sql"]]
    assert all(any(limit in each for each in about_jobs) for limit in ("LIMIT 100001", "LIMIT 101"))
    assert_reads_little(about_jobs)


@pytest.mark.usefixtures("history")
def test_figures_read_little_of_a_long_history(root: Client) -> None:
    """The failures of a day are counted on their index."""
    for page, statements in (("job_overview", 17), ("queue_changelist", 13)):
        about_jobs = sent(root, reverse(f"admin:django_pgqueue_{page}"))
        assert len(about_jobs) == statements
        assert not any("pgqueue_job_past" in each or '"pgqueue_job"' in each for each in about_jobs)
        assert_reads_little(about_jobs, most=500)


def queue(name: str) -> None:
    JobFactory.create(queue_name=name)
    QueueFactory.create(name=name)
    WorkerFactory.create(queues=[name])


def progress(name: str) -> None:
    job = JobFactory.create(running=True, marks=8)
    JobProgress.objects.create(job=job, done=1, total=2, note=name)


def worker(name: str) -> None:
    """It runs jobs, and so does the first one, of the same queue."""
    made = WorkerFactory.create(queues=[name])
    for pk in {made.pk, Worker.objects.earliest("pk").pk}:
        JobFactory.create_batch(2, running=True, worker=pk, queue_name=name)


@pytest.mark.parametrize(
    ("page", "make", "most"),
    [
        ("queue_changelist", queue, 12),
        ("schedule_changelist", lambda name: schedules.run(schedules.create(name)), 10),
        ("jobstat_changelist", lambda name: JobStatFactory.create(task_path=name), 4),
        ("jobbatch_changelist", lambda name: BatchFactory.create(name=name, numbers={"added": 1}), 4),
        ("job_changelist", progress, 8),
        ("job_overview", worker, 17),
        ("worker_changelist", worker, 4),
        ("worker_change", worker, 3),
    ],
)
def test_more_rows_cost_no_statements(page: str, make: Callable[[str], Any], most: int, root: Client) -> None:
    def statements() -> int:
        parts = [Worker.objects.earliest("pk").pk] if page == "worker_change" else []
        address = reverse(f"admin:django_pgqueue_{page}", args=parts)
        return sum("pgqueue_" in each for each in sent(root, address))

    make("first")
    statements()  # what is counted for all viewers within some seconds
    few = statements()
    for number in range(5):
        make(f"more-{number}")
    assert statements() == few <= most


@pytest.mark.usefixtures("history")
def test_a_job_is_found_without_reading_others(root: Client) -> None:
    job = Job.objects.order_by("pk")[5000]
    statements = sent(root, url("change", job.pk))
    about_jobs = [each for each in statements if "pgqueue_stat" not in each]
    assert len(about_jobs) <= 3
    assert_reads_little(about_jobs, most=10)
    assert_reads_little([each for each in statements if each not in about_jobs], most=96)  # points of a chart


#: Parts of statements that read jobs by their ids: to retry them, and to see which have changed.
BY_IDS = ("pgqueue_retry(ARRAY", '"pgqueue_job"."id" AS "pk", "pgqueue_job"."task_path" AS "task_path" FROM')


def assert_reads_little(statements: list[str], most: int = 1000) -> None:
    """Assert that no statement scans a leaf of history or handles more than `most` rows in a node of its
    plan.
    """
    for statement in statements:
        # To read 200 jobs of 2,000 by their ids, PostgreSQL 14 prefers a scan to the index of a longer table.
        by_ids = any(known in statement for known in BY_IDS)
        sql(f"SET LOCAL enable_seqscan = {'off' if by_ids else 'on'}")
        plan = sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
        for node in nodes(plan[0]["Plan"]):
            if node["Node Type"] == "Bitmap Index Scan":
                continue  # it counts what earlier tests rolled back; the heap scan above it does not
            rows = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            assert rows <= most, (statement, node["Node Type"], node.get("Relation Name"))
            if node.get("Relation Name") in {"pgqueue_job_past_1", "pgqueue_job_kept"}:
                assert node["Node Type"] != "Seq Scan", statement


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)
