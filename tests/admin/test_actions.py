"""The actions on jobs, and the permissions that they need."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_pgqueue.admin import JobAdmin
from django_pgqueue.models import Job
from tests.support.factories import JobFactory, QueueFactory, WorkerFactory

from .helpers import STATES, act, body, post, staff, url

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("model", ["job", "worker"])
def test_nothing_of_the_queues_own_can_be_edited(root: Client, model: str) -> None:
    factory: Any = {"job": JobFactory, "worker": WorkerFactory}[model]
    row = factory.create()
    for page, *arguments in (("add",), ("delete", row.pk)):
        assert root.get(url(page, *arguments, model=model)).status_code == 403
        assert root.post(url(page, *arguments, model=model), {"post": "yes"}).status_code == 403
    assert root.post(url("change", row.pk, model=model), {"status": "done"}).status_code == 403
    page = body(root, url("change", row.pk, model=model))
    assert "_save" not in page
    assert "deletelink" not in page


def test_nothing_is_editable_even_for_a_subclass_that_lets_people_change(root: Client) -> None:
    class Careless(JobAdmin):
        def has_change_permission(self, request: Any, obj: Any = None) -> bool:
            return True

    job = JobFactory.create()
    request = root.get(url("changelist")).wsgi_request
    form = Careless(Job, admin.site).get_form(request, job, change=True)
    assert form.base_fields == {}


def test_more_time(root: Client) -> None:
    soon = timezone.now() + timedelta(minutes=1)
    job, without = JobFactory.create(running=True, deadline=soon), JobFactory.create(running=True)
    told = post(root, url("changelist"), action="extend_jobs", _selected_action=[job.pk, without.pk], index=0)
    assert told == ("1 job has one more hour.", "success")
    deadline = Job.objects.get(pk=job.pk).deadline
    assert deadline is not None
    assert deadline > timezone.now() + timedelta(minutes=59)


@pytest.mark.parametrize("across", [0, 1])
def test_more_time_locks_no_job_of_the_history(root: Client, across: int) -> None:
    """A job that was over in time keeps its deadline there."""
    soon = timezone.now() + timedelta(minutes=1)
    running, over = (JobFactory.create(deadline=soon, **{state: True}) for state in ("running", "done"))
    data = {"action": "extend_jobs", "_selected_action": [running.pk, over.pk], "select_across": across}
    assert post(root, url("changelist"), **data, index=0)[0] == "1 job has one more hour."
    with connection.cursor() as cursor:
        cursor.execute("SELECT xmax = '0' FROM pgqueue_job WHERE id = %s", [over.pk])
        assert cursor.fetchone() == (True,)


@pytest.mark.parametrize(
    ("action", "state"),
    [
        ("retry_jobs", "running"),
        ("cancel_jobs", "done"),
        ("run_now_jobs", "pending"),
        ("extend_jobs", "running"),
    ],
)
def test_when_nothing_changes_it_says_why(root: Client, action: str, state: str) -> None:
    message, kind = act(root, action, JobFactory.create(**STATES[state]))
    assert message.startswith("No job changed: ")
    assert kind == "warning"
    assert not LogEntry.objects.exists()


@pytest.mark.promise("each-action-in-history")
def test_who_did_it_is_in_the_history_of_the_job(root: Client) -> None:
    job = JobFactory.create(failed=True)
    act(root, "retry_jobs", job)
    assert "Action: Retry." in body(root, url("history", job.pk))


ALLOWED: dict[str, dict[str, Any]] = {
    "retry": {"failed": True},
    "run_now": {"scheduled": True},
    "extend": {"running": True, "deadline": timezone.now()},
    "cancel": {"scheduled": True},
}


@pytest.mark.parametrize(
    "permissions", [("retry_job",), ("retry_job", "rerun_done_job"), ("rerun_done_job",)]
)
def test_who_may_retry_jobs_may_not_run_done_ones_again(permissions: tuple[str, ...]) -> None:
    done, failed = JobFactory.create(done=True), JobFactory.create(failed=True)
    client = staff("view_job", *permissions)
    may_rerun, may_retry = len(permissions) == 2, "retry_job" in permissions
    for job, may in ((done, may_rerun), (failed, may_retry)):
        assert (url("retry", job.pk) in body(client, url("change", job.pk))) is may
    if may_retry:
        expected = ("1 job runs again.", "success")
        refused = ("No job changed: you may not run done jobs again.", "warning")
        assert act(client, "retry_jobs", done) == (expected if may_rerun else refused)
    else:
        assert client.post(url("retry", done.pk)).status_code == 403
    assert Job.objects.get(pk=done.pk).status == ("pending" if may_rerun else "done")


def test_the_button_of_a_done_job_needs_its_permission() -> None:
    done = JobFactory.create(done=True)
    assert staff("view_job", "retry_job").post(url("retry", done.pk)).status_code == 403
    assert Job.objects.get(pk=done.pk).status == "done"
    client = staff("view_job", "retry_job", "rerun_done_job")
    assert post(client, url("retry", done.pk)) == ("1 job runs again.", "success")


def test_a_job_that_was_failed_on_its_page_and_is_done_by_now_does_not_run_again(root: Client) -> None:
    done, running = JobFactory.create(done=True), JobFactory.create(running=True)
    assert '<input type="hidden" name="status" value="done">' in body(root, url("change", done.pk))
    assert post(root, url("retry", done.pk), status="failed") == (
        "No job changed: this job is now done.",
        "warning",
    )
    assert Job.objects.get(pk=done.pk).status == "done"
    assert post(root, url("cancel", running.pk), status="pending")[1] == "success", "it is asked to stop"


@pytest.mark.parametrize("name", ALLOWED)
def test_each_action_has_its_permission(name: str) -> None:
    job = JobFactory.create(**ALLOWED[name])
    client = staff("view_job", f"{name}_job")
    page = body(client, url("changelist"))
    for other in ALLOWED:
        assert (f'value="{other}_jobs"' in page) is (other == name)
    page = body(client, url("change", job.pk))
    assert (url(name, job.pk) in page) is True
    for other in ALLOWED.keys() - {name}:
        assert url(other, job.pk) not in page
        assert client.post(url(other, job.pk)).status_code == 403
    message, kind = post(client, url(name, job.pk))
    assert (message.startswith("1 job "), kind) == (True, "success")


def test_who_may_only_look_sees_no_action() -> None:
    job = JobFactory.create(failed=True)
    client = staff("view_job")
    assert 'select name="action"' not in body(client, url("changelist"))
    assert "pgqueue-tool" not in body(client, url("change", job.pk))
    client.post(url("changelist"), {"action": "retry_jobs", "_selected_action": [job.pk], "index": 0})
    assert Job.objects.get(pk=job.pk).status == "failed"


@pytest.mark.parametrize("page", ["changelist", "change", "overview", "retry"])
@pytest.mark.promise("nothing-until-granted")
def test_who_may_not_look_sees_nothing(page: str) -> None:
    arguments = [JobFactory.create(failed=True).pk] if page in {"change", "retry"} else []
    client = staff("retry_job", "view_queue")
    response = client.post(url(page, *arguments)) if page == "retry" else client.get(url(page, *arguments))
    assert response.status_code == 403


def test_strangers_are_sent_to_the_login(client: Client) -> None:
    job = JobFactory.create(failed=True)
    for response in (client.get(url("overview")), client.post(url("retry", job.pk))):
        assert response.status_code == 302
        assert "/login/" in response["Location"]
    assert Job.objects.get(pk=job.pk).status == "failed"


def test_buttons_need_post_and_a_token() -> None:
    job = JobFactory.create(failed=True)
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("root"))
    assert client.get(url("retry", job.pk)).status_code == 405
    assert client.post(url("retry", job.pk)).status_code == 403
    page = body(client, url("change", job.pk))
    token = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page)[0]
    assert client.post(url("retry", job.pk), {"csrfmiddlewaretoken": token}).status_code == 302
    assert Job.objects.get(pk=job.pk).status == "pending"


@pytest.mark.parametrize(
    ("options", "offered"),
    [
        ({}, {"cancel"}),
        ({"scheduled": True}, {"cancel", "run_now"}),
        (STATES["retry"], {"cancel", "run_now", "retry"}),
        (STATES["running"], {"cancel"}),
        ({**STATES["running"], "deadline": timezone.now()}, {"cancel", "extend"}),
        ({**STATES["running"], "cancel_requested_at": timezone.now()}, set()),
        (STATES["blocked"], {"cancel"}),
        (STATES["done"], {"retry"}),
        (STATES["failed"], {"retry"}),
        (STATES["cancelled"], {"retry"}),
    ],
)
def test_buttons_offer_what_can_be_done_now(root: Client, options: dict[str, Any], offered: set[str]) -> None:
    job = JobFactory.create(**options)
    page = body(root, url("change", job.pk))
    assert {name for name in ALLOWED if f'action="{url(name, job.pk)}"' in page} == offered
    for name in offered:
        assert act(root, f"{name}_jobs", job)[1] == "success"
        break


def test_a_button_leads_back_to_the_job_with_its_filters(root: Client) -> None:
    job = JobFactory.create(failed=True)
    query = "_changelist_filters=status%3Dfailed"
    assert f'action="{url("retry", job.pk)}?{query}"' in body(root, f"{url('change', job.pk)}?{query}")
    response = root.post(f"{url('retry', job.pk)}?{query}")
    assert response["Location"] == f"{url('change', job.pk)}?{query}"


def test_a_job_that_its_queue_does_not_keep(root: Client) -> None:
    QueueFactory.create(name="forgetful", retention=timedelta(0))
    job = JobFactory.create(queue_name="forgetful")
    assert root.post(url("cancel", job.pk))["Location"] == url("changelist")
    assert root.post(url("cancel", job.pk))["Location"] == reverse("admin:index")
