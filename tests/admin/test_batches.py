"""The list and the page of batches, and their actions."""

from __future__ import annotations

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from syrupy.assertion import SnapshotAssertion

from django_pgqueue import Batch
from django_pgqueue.models import Job, JobBatch
from tests.support.factories import BatchFactory, JobFactory
from tests.support.wording import shown

from .helpers import Page, body, listed, read, staff, url

pytestmark = pytest.mark.django_db

LIST = "/admin/django_pgqueue/jobbatch/"


def test_the_list_shows_numbers_as_bars(root: Client, wording: SnapshotAssertion) -> None:
    numbers = {"added": 12_000, "done": 9_000, "failed": 30, "cancelled": 600}
    BatchFactory.create(id=101, name="imp<b>ort", numbers=numbers)
    BatchFactory.create(id=102, name="", over=True, numbers=None)
    rows = body(root, LIST).split("<tbody>")[1].split("</tbody>")[0]
    assert re.sub(r"\b\d s", "0 s", shown(f'<div id="content">{rows}</div>')) == wording
    assert '<rect x="75" width="0.25" height="10" class="pgqueue-part-failed">' in rows
    assert "style=" not in rows


def test_filters_and_search(root: Client) -> None:
    running = BatchFactory.create(name="one")
    opened = BatchFactory.create(name="two", is_open=True)
    failed = BatchFactory.create(name="three", over=True, outcome="failed")
    for state, batch in (("running", running), ("open", opened), ("failed", failed)):
        assert listed(root, LIST, state=state) == [batch.pk]
    assert listed(root, LIST, state="done") == []
    assert listed(root, LIST, finished="hour") == [failed.pk]
    assert listed(root, LIST, created="hour", state="running") == [running.pk]
    assert listed(root, LIST, created="..2020-01-01") == []
    assert root.get(LIST, {"state": "nonsense"}).status_code == 302
    assert listed(root, LIST, q="HREE") == listed(root, LIST, q=str(failed.pk)) == [failed.pk]


def test_the_page(root: Client, wording: SnapshotAssertion) -> None:
    batch = BatchFactory.create(id=101, name="import")
    JobFactory.create(id=102, failed=True, batch=batch)
    JobFactory.create(id=103, done=True, batch=batch)
    JobFactory.create(id=104, parents=[batch])
    text = read(root, url("change", 101, model="jobbatch"))
    assert re.sub(r"\b\d s", "0 s", text) == wording
    assert "/job/" not in read(staff("view_jobbatch"), url("change", 101, model="jobbatch"))
    assert root.get(url("change", 2**40, model="jobbatch")).status_code == 302
    assert root.post(url("cancel", 2**40, model="jobbatch")).status_code == 302
    JobBatch.objects.all().delete()
    assert "batch 101, which is no longer kept" in body(root, url("change", 103))


def test_the_page_reads_failed_jobs_where_they_are_kept_and_no_others(root: Client) -> None:
    """A batch may have a million done jobs in history."""
    batch = BatchFactory.create()
    JobFactory.create(done=True, batch=batch)

    def of_batch() -> list[str]:
        with CaptureQueriesContext(connection) as queries:
            body(root, url("change", batch.pk, model="jobbatch"))
        found = (query["sql"] for query in queries)
        return [sql for sql in found if '"batch" =' in sql and '"pgqueue_job"."errors"' in sql]

    assert of_batch() == []
    JobFactory.create(failed=True, batch=batch)
    [statement] = of_batch()
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement}")
        plan = "".join(line for (line,) in cursor.fetchall())
    assert "pgqueue_job_kept" in plan
    assert "pgqueue_job_past" not in plan


def test_cancel_and_retry_after_a_confirmation(root: Client, wording: SnapshotAssertion) -> None:
    batch = BatchFactory.create(id=101, name="import")
    jobs = [JobFactory.create(batch=batch), JobFactory.create(failed=True, batch=batch)]
    of_list = {"_selected_action": [101], "index": 0}
    told = []
    for address, data in (
        (url("retry", 101, model="jobbatch"), {}),
        (LIST, {"action": "cancel_batches", **of_list}),
        (url("cancel", 101, model="jobbatch"), {}),
        (LIST, {"action": "retry_batches", **of_list}),
    ):
        asked = Page(address, root.post(address, data).content.decode())
        done = root.post(address, {**data, "confirmed": "1"}, follow=True)
        told += [shown(asked.html), *(f"Then: {message}" for message in done.context["messages"]), ""]
    assert "\n".join(told) == wording
    assert {Job.objects.get(pk=job.pk).status for job in jobs} == {"cancelled"}
    assert Batch.get(101).outcome == "cancelled"
    notes = [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]
    assert notes == ["Action: Retry failed jobs.", "Action: Cancel batch."]
