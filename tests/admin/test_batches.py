"""The list and the page of batches, their actions, and what a job is tied to on its page."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_pgqueue import Batch
from django_pgqueue.models import Job, JobBatch
from tests.support.factories import BatchFactory, JobFactory

from .helpers import body, listed, staff, url

pytestmark = pytest.mark.django_db

LIST = "/admin/django_pgqueue/jobbatch/"


def page(client: Client, batch: Any) -> str:
    return body(client, url("change", batch.pk, model="jobbatch"))


def confirm(client: Client, address: str, **data: Any) -> tuple[str, str]:
    """Post, read the page that asks, and confirm it. Return that page and the message."""
    asked = client.post(address, data)
    assert asked.status_code == 200
    done = client.post(address, {**data, "confirmed": "1"})
    assert done.status_code == 302
    [message] = get_messages(done.wsgi_request)
    return asked.content.decode(), message.message


def test_the_list_shows_numbers_as_bars(root: Client) -> None:
    big = BatchFactory.create(
        name="imp<b>ort", numbers={"added": 12_000, "done": 9_000, "failed": 30, "cancelled": 600}
    )
    empty = BatchFactory.create(name="", over=True, numbers=None)
    shown = body(root, LIST)
    assert "9,630 of 12,000 finished: 9,000 done, 30 failed, 600 cancelled, 2,370 live" in shown
    assert '<rect x="75" width="0.25" height="10" class="pgqueue-part-failed">' in shown
    assert "0 of 0 finished" in shown
    assert f"batch {empty.pk}" in shown
    assert "<b>ort" not in shown
    assert "style=" not in shown.split('id="result_list"')[1].split("</table>")[0]
    assert listed(root, LIST) == [empty.pk, big.pk]


def test_filters_and_search(root: Client) -> None:
    running = BatchFactory.create(name="one")
    opened = BatchFactory.create(name="two", is_open=True)
    failed = BatchFactory.create(name="three", over=True, outcome="failed")
    for state, batch in (("running", running), ("open", opened), ("failed", failed)):
        assert listed(root, LIST, state=state) == [batch.pk]
    assert listed(root, LIST, state="done") == []
    assert listed(root, LIST, state="nonsense") == [failed.pk, opened.pk, running.pk]
    assert listed(root, LIST, q="HREE") == listed(root, LIST, q=str(failed.pk)) == [failed.pk]
    assert listed(root, LIST, q="\0") == [failed.pk, opened.pk, running.pk]


def test_the_list_needs_the_same_queries_for_any_number_of_batches(root: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as context:
            body(root, LIST)
        return len(context)

    BatchFactory.create(numbers={"added": 1})
    queries()
    before = queries()
    for _ in range(5):
        BatchFactory.create(numbers={"added": 1})
    assert queries() == before


def test_the_page_of_a_batch(root: Client) -> None:
    batch = BatchFactory.create(name="import")
    bad = JobFactory.create(failed=True, batch=batch)
    good = JobFactory.create(done=True, batch=batch)
    child = JobFactory.create(parents=[batch])
    shown = page(root, batch)
    assert "2 of 2 finished: 1 done, 1 failed" in shown
    assert f"/job/?q=batch%3A{batch.pk}&amp;status=failed" in shown
    tables = shown.split("pgqueue-tied-")
    assert "no answer from the gateway" in shown
    assert f'/job/{bad.pk}/change/">' in shown
    assert f'/job/{child.pk}/change/">' in shown
    assert f'/job/{good.pk}/change/">' not in shown.split('class="module pgqueue-workflow"')[0]
    assert len(tables) > 2
    assert root.get(url("change", 2**40, model="jobbatch")).status_code == 302


def test_the_page_reads_failed_jobs_where_they_are_kept_and_no_others(root: Client) -> None:
    """A batch may have a million done jobs in history."""
    batch = BatchFactory.create()
    JobFactory.create(done=True, batch=batch)

    def of_batch() -> list[str]:
        with CaptureQueriesContext(connection) as queries:
            page(root, batch)
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


def test_the_page_of_a_job_shows_what_it_is_tied_to(root: Client) -> None:
    batch, closed = BatchFactory.create(name="import"), BatchFactory.create(name="other", over=True)
    one, two = JobFactory.create(batch=batch), JobFactory.create(done=True)
    job = JobFactory.create(parents=[one, two, closed])
    Job.objects.filter(pk=job.pk).update(parent_ids=[one.pk, two.pk, closed.pk, 2**40])
    shown = body(root, url("change", job.pk))
    for text in (
        f'/job/{one.pk}/change/">', f'/job/{two.pk}/change/">', f'/jobbatch/{closed.pk}/change/">',
        "no longer kept", "wait until it is retried", "pgqueue-done", "Runs after",
    ):  # fmt: skip
        assert text in shown
    parent = body(root, url("change", one.pk))
    assert f'/job/{job.pk}/change/">' in parent
    assert f'/jobbatch/{batch.pk}/change/">import</a>' in parent
    assert "0 of 1 finished" in parent
    JobBatch.objects.all().delete()
    assert f"batch {batch.pk}, which is no longer kept" in body(root, url("change", one.pk))


def test_a_plain_job_costs_no_query_for_that(root: Client) -> None:
    plain, tied = JobFactory.create(), JobFactory.create(batch=BatchFactory.create())
    body(root, url("change", plain.pk))
    with CaptureQueriesContext(connection) as queries:
        shown = body(root, url("change", plain.pk))
    assert "pgqueue-tied" not in shown
    text = " ".join(query["sql"] for query in queries)
    assert not any(
        table in text for table in ("pgqueue_batch", "pgqueue_edge", "pgqueue_tally", "parents @>")
    )
    assert "pgqueue-tied" in body(root, url("change", tied.pk))


def test_cancel_and_retry_after_a_confirmation(root: Client) -> None:
    batch = BatchFactory.create(name="import")
    waiting, failed = JobFactory.create(batch=batch), JobFactory.create(failed=True, batch=batch)
    asked, message = confirm(root, url("retry", batch.pk, model="jobbatch"))
    assert "<strong>import" in asked
    assert "would go on: 1 job would run again." in asked
    assert message == "1 job runs again."
    asked, message = confirm(root, LIST, action="cancel_batches", _selected_action=[batch.pk], index=0)
    assert "would be closed, and 2 jobs would be cancelled" in asked
    assert message == "2 jobs were cancelled or asked to stop."
    assert {Job.objects.get(pk=job.pk).status for job in (waiting, failed)} == {"cancelled"}
    assert Batch.get(batch.pk).outcome == "cancelled"
    assert [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")] == [
        "Action: Retry failed jobs.", "Action: Cancel batch.",
    ]  # fmt: skip
    asked = root.post(url("cancel", batch.pk, model="jobbatch")).content.decode()
    assert "Nothing would change." in asked
    assert "has finished." in asked
    _, message = confirm(root, LIST, action="retry_batches", _selected_action=[batch.pk], index=0)
    assert message == "0 jobs run again."


def test_permissions() -> None:
    batch = BatchFactory.create(name="import", numbers={"added": 2, "failed": 1})
    JobFactory.create(failed=True, batch=batch)
    assert staff("view_job").get(LIST).status_code == 403
    viewer = staff("view_jobbatch")
    shown = page(viewer, batch)
    assert "pgqueue-tool" not in shown
    assert "/job/" not in shown
    for act in ("cancel", "retry"):
        assert viewer.post(url(act, batch.pk, model="jobbatch")).status_code == 403
        assert staff(f"{act}_job").post(url(act, batch.pk, model="jobbatch")).status_code == 403
        may = staff("view_jobbatch", f"{act}_job")
        assert page(may, batch).count("pgqueue-tool") == 1
        assert may.get(url(act, batch.pk, model="jobbatch")).status_code == 405
        assert may.post(url(act, batch.pk, model="jobbatch")).status_code == 200
    assert (
        staff("view_jobbatch", "cancel_job").post(url("cancel", 2**40, model="jobbatch")).status_code == 302
    )
    job = JobFactory.create(batch=batch, parents=[batch])
    assert "/jobbatch/" not in body(staff("view_job"), url("change", job.pk))
