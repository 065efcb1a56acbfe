"""Other admin sites and other databases."""

from __future__ import annotations

import pytest
from django.db import connections
from django.test import Client
from django.utils import timezone

from django_pgqueue.admin import overview
from django_pgqueue.admin.bulk import confirm
from django_pgqueue.admin.bulk import task as bulk
from django_pgqueue.admin.job_page import why
from django_pgqueue.explanation import Reason
from django_pgqueue.models import Job, JobStat, Pause, Queue, Worker
from django_pgqueue.postgres.timeout import TimeLimitReached
from django_pgqueue.testing import run_jobs
from tests.support.factories import JobFactory, JobStatFactory, QueueFactory, WorkerFactory
from tests.support.failures import fold, note

from .helpers import Page, body, listed, post

pytestmark = [pytest.mark.django_db(databases=["default", "other"]), pytest.mark.urls("tests.admin.sites")]


def test_another_site_on_another_database(root: Client) -> None:
    here = JobFactory.create()
    there = JobFactory.create(failed=True, queue_name="there")
    there = Job.objects.get(pk=there.pk)
    there._state.adding, there.pk = True, None
    there.save(using="other")
    QueueFactory.create(name="same")

    assert listed(root, "/ops/django_pgqueue/job/") == [there.pk]
    assert listed(root, "/ops/django_pgqueue/job/", queue="there", q="add") == [there.pk]
    page = body(root, "/ops/django_pgqueue/job/overview/")
    assert "/ops/django_pgqueue/job/?status=pending" in page
    assert 'href="/admin/' not in page
    page = body(root, f"/ops/django_pgqueue/job/{there.pk}/change/")
    assert f'action="/ops/django_pgqueue/job/{there.pk}/retry/"' in page
    assert post(root, f"/ops/django_pgqueue/job/{there.pk}/retry/") == ("1 job runs again.", "success")
    assert Job.objects.using("other").get(pk=there.pk).status == "pending"

    assert root.post("/ops/django_pgqueue/queue/add/", {"name": "same"}).status_code == 302
    again = root.post("/ops/django_pgqueue/queue/add/", {"name": "same"})
    assert "A queue with this name already exists." in again.content.decode()
    assert root.post("/ops/django_pgqueue/queue/same/change/", {"backoff_base": "3"}).status_code == 302
    assert Queue.objects.using("other").get().backoff_base == 3
    assert root.post("/ops/django_pgqueue/queue/same/delete/", {"post": "yes"}).status_code == 302
    assert not Queue.objects.using("other").exists()
    assert Queue.objects.get().backoff_base is None
    assert Job.objects.get(pk=here.pk).status == "pending"


def test_the_overview_pauses_a_queue_of_its_database(root: Client) -> None:
    address = "/ops/django_pgqueue/job/overview/"
    assert post(root, address, button="pause", queue="mail")[1] == "success"
    assert not Pause.objects.exists()
    assert Pause.objects.using("other").get().name == "mail"
    assert 'value="resume"' in body(root, address)
    assert 'value="resume"' not in body(root, "/admin/django_pgqueue/job/overview/")


def test_the_page_that_asks_is_one_of_its_site_and_database(root: Client) -> None:
    here = JobFactory.create(failed=True)
    there = [JobFactory.build(pk=here.pk + n, failed=True) for n in range(2)]
    Job.objects.using("other").bulk_create(there)
    data = {"action": "retry_jobs", "_selected_action": [here.pk], "select_across": 1, "index": 0}
    response = root.post("/ops/django_pgqueue/job/?status=failed", data)
    page = Page("/ops/django_pgqueue/job/?status=failed", response.content.decode())
    assert page.sentences == ["2 failed jobs would run again."]
    assert 'href="/ops/django_pgqueue/job/?status=failed"' in page.content
    assert 'href="/admin/' not in page.html
    assert page.confirm(root) == ("2 jobs run again.", "success")
    assert set(Job.objects.using("other").values_list("status", flat=True)) == {"pending"}
    assert Job.objects.get().status == "failed"


def test_many_jobs_of_another_database_change_in_a_job_there(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirm, "MOST_AT_ONCE", 1)
    here = JobFactory.create(failed=True)
    Job.objects.using("other").bulk_create(JobFactory.build(pk=here.pk + n, failed=True) for n in range(3))
    WorkerFactory.build().save(using="other")
    data = {"action": "retry_jobs", "_selected_action": [here.pk], "select_across": 1, "index": 0}
    address = "/ops/django_pgqueue/job/?status=failed"
    page = Page(address, root.post(address, data).content.decode())
    response = root.post(address, page.fields)
    job = Job.objects.using("other").get(task_path=bulk.run.module_path)
    assert response["Location"] == f"/ops/django_pgqueue/job/{job.pk}/change/"
    [ran] = run_jobs(using="other", limit=1)
    assert ran.result == {"changed": 3, "of": 3, "words": "3 jobs run again."}
    assert Job.objects.using("other").filter(status="pending").count() == 3
    assert Job.objects.get().status == "failed"


def test_queues_workers_and_statistics_of_another_database(root: Client) -> None:
    JobFactory.create(queue_name="only here")
    WorkerFactory.create(id=7, host="only here")
    JobStatFactory.create(queue_name="only here")
    Job.objects.using("other").bulk_create([JobFactory.build(pk=9, queue_name="there", running=True)])
    WorkerFactory.build(id=7, host="there").save(using="other")
    JobStat.objects.using("other").create(
        minute=timezone.now(), queue_name="there", task_path="shop.tasks.there", done=1
    )
    assert Worker.objects.using("other").get().host == "there"
    for address in (
        "/ops/django_pgqueue/queue/",
        "/ops/django_pgqueue/queue/there/change/",
        "/ops/django_pgqueue/worker/",
        "/ops/django_pgqueue/worker/7/change/",
        "/ops/django_pgqueue/jobstat/",
        "/ops/django_pgqueue/jobstat/task/shop.tasks.there/",
        "/ops/django_pgqueue/job/overview/",
        "/ops/django_pgqueue/job/",
    ):
        page = body(root, address)
        assert "there" in page, address
        assert ">only here" not in page, address
        assert 'href="/admin/' not in page, address
    assert "pgqueue_job_live" in body(root, "/ops/django_pgqueue/jobstat/database/")
    assert 'href="/ops/django_pgqueue/queue/there/change/"' in body(root, "/ops/django_pgqueue/queue/")
    page = body(root, "/ops/django_pgqueue/worker/7/change/")
    assert 'href="/ops/django_pgqueue/job/9/change/"' in page


def test_a_workflow_is_read_from_the_database_of_the_site(root: Client) -> None:
    parent, child = (JobFactory.build(pk=pk, task_path=f"there.t{pk}") for pk in (10**9, 10**9 + 1))
    child.parent_ids = [parent.pk]
    Job.objects.using("other").bulk_create([parent, child])
    page = body(root, f"/ops/django_pgqueue/job/{parent.pk}/workflow/")
    assert f'href="/ops/django_pgqueue/job/{child.pk}/change/"' in page
    assert "there.t1000000001" in page
    assert 'href="/admin/' not in page
    assert root.get(f"/admin/django_pgqueue/job/{parent.pk}/workflow/").status_code == 302


def test_failures_are_those_of_the_database(root: Client) -> None:
    raw = connections["other"]
    raw.ensure_connection()
    note(raw.connection, "f", message="only there")
    fold(raw.connection)
    assert "only there" in body(root, "/ops/django_pgqueue/job/failures/")
    assert "only there" in body(root, "/ops/django_pgqueue/job/failures/f/")
    assert "only there" not in body(root, "/admin/django_pgqueue/job/failures/")
    assert post(root, "/ops/django_pgqueue/job/failures/f/mute/", action="mute")[1] == "success"


def test_a_copy_of_a_job_is_in_the_database_of_the_site(root: Client) -> None:
    Job.objects.using("other").bulk_create(
        [JobFactory.build(pk=9, task_path="tests.app.tasks.noop", failed=True)]
    )
    page = body(root, "/ops/django_pgqueue/job/9/change/")
    assert 'href="/ops/django_pgqueue/job/9/clone/"' in page
    assert 'href="http://testserver/ops/django_pgqueue/job/9/change/"' in page
    assert "9" in body(root, "/ops/django_pgqueue/job/other:9/change/")
    assert 'href="/admin/' not in body(root, "/ops/django_pgqueue/job/9/clone/")
    data = {"args": "[3, 4]", "kwargs": "{}", "queue_name": "", "priority": ""}
    response = root.post("/ops/django_pgqueue/job/9/clone/", data)
    [made] = Job.objects.using("other").exclude(pk=9)
    assert response.headers["Location"] == f"/ops/django_pgqueue/job/{made.pk}/change/"
    assert (made.args, Job.objects.count()) == ([3, 4], 0)


@pytest.mark.urls("tests.admin.plain_site")
def test_a_site_with_a_plain_class_of_statistics_has_no_link_to_its_pages(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even on a page that is too slow, and on that of a locked job, where the link is the fix."""
    job = JobFactory.create()
    monkeypatch.setattr(why, "why", lambda job: Reason("locked", {"pid": 5}, job.pk, "default"))
    assert "5" in body(root, f"/admin/django_pgqueue/job/{job.pk}/change/")

    def slow(*_arguments: object, **_context: object) -> None:
        raise TimeLimitReached

    monkeypatch.setattr(overview, "console_page", slow)
    answer = root.get("/admin/django_pgqueue/job/overview/")
    assert answer.status_code == 503
    assert "Who waits for whom" not in answer.content.decode()
