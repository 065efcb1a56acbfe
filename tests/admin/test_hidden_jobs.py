"""A project hides jobs with ``JobAdmin.get_queryset()``: no page shows them, and no action changes them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone

from django_pgqueue import enqueue, set_limit
from django_pgqueue.models import FailureGroup, Job, JobProgress
from tests.app.unique_tasks import render
from tests.receipts.admin import ReceiptAdmin
from tests.receipts.models import Order, Receipt
from tests.support import schedules
from tests.support.factories import BatchFactory, JobFactory, JobStatFactory, ScheduleFactory, WorkerFactory
from tests.support.figures import failure

from .helpers import body, pages_of, post, staff, url
from .sites import hiding_site, hiding_urls

pytestmark = [pytest.mark.django_db, pytest.mark.urls(hiding_urls)]

SECRET = "zanzibar"
TASK = "tests.app.tasks.add"
GROUP = "abc"
KINDS = [str(model._meta.model_name) for model in hiding_site._registry]


@pytest.fixture
def restricted() -> Client:
    """A user with all permissions who sees a part of the jobs."""
    names = Permission.objects.filter(content_type__app_label="django_pgqueue")
    return staff(*names.values_list("codename", flat=True))


def hidden(**values: Any) -> Job:
    job: Job = JobFactory.create(queue_name="hidden", args=[SECRET], **values)
    return job


@pytest.fixture(autouse=True)
def rows() -> dict[str, Any]:
    """Visible rows, with hidden jobs around each of them, and the group of a hidden failure."""
    batch, worker = BatchFactory.create(), WorkerFactory.create()
    error = {"class": "ValueError", "message": SECRET, "traceback": SECRET, "attempt": 1}
    failed = hidden(failed=True, batch_id=batch.pk, errors=[error], error_fingerprint=GROUP)
    ran = hidden(running=True, worker=worker.pk, marks=8)
    JobProgress.objects.create(job=ran, done=1, note=SECRET)
    job = JobFactory.create(batch_id=batch.pk, status="blocked", parent_ids=[failed.pk], marks=2)
    hidden(status="blocked", parent_ids=[job.pk, batch.pk], waiting_reason=SECRET)
    schedule = ScheduleFactory.create(name="nightly")
    schedules.run(schedule, at=timezone.now(), job_id=failed.pk)
    failure(GROUP, failed=2, task_path=TASK, error_class="shop.Down", message=SECRET, traceback=SECRET,
            job_id=failed.pk)  # fmt: skip
    return {
        "job": job, "hidden": failed, "jobbatch": batch, "worker": worker, "schedule": schedule,
        "jobstat": JobStatFactory.create(),
    }  # fmt: skip


def admin_of(kind: str) -> Any:
    return next(each for model, each in hiding_site._registry.items() if model._meta.model_name == kind)


def addresses(kind: str, rows: dict[str, Any]) -> dict[str, str]:
    """Return the names of the pages of an admin class by their URLs, for a visible row and a hidden job."""
    shown = rows.get(kind)
    keys = ["1" if shown is None else str(shown.pk), *([str(rows["hidden"].pk)] if kind == "job" else [])]
    return {
        address: name
        for key in keys
        for name, address in pages_of(admin_of(kind), object_id=key, fingerprint=GROUP, task_path=TASK)
    }


@pytest.mark.promise("queryset-decides", "hidden-jobs", "hidden-failures")
def test_no_page_shows_anything_of_a_hidden_job_and_no_button_changes_it(
    rows: dict[str, Any], root: Client, restricted: Client
) -> None:
    # One that waits for a job that was cancelled follows it, as it has asked for.
    others = Job.objects.filter(queue_name="hidden", parent_ids=None).order_by("pk")
    before = list(others.values())
    assert len(before) == 2
    pages = {kind: addresses(kind, rows) for kind in KINDS}
    for kind, named in pages.items():
        known = kind not in {"job", "jobbatch", "jobstat"}
        for address, name in named.items():
            html = restricted.get(address).content.decode()
            assert SECRET not in html, name
            assert url("failures") not in html, f"{name} leads to the failures"
            known = known or SECRET in root.get(address).content.decode()
        assert known, "who sees all jobs sees these texts"
    data = {
        "_selected_action": [str(row.pk) for row in rows.values()], "confirmed": "1", "index": "0",
        "select_across": "1", "priority": "9", "names": '["nightly"]',
    }  # fmt: skip
    for kind, named in pages.items():
        for address, name in named.items():
            if name.endswith("_history"):
                continue  # Django's own page, which only reads
            for action in (admin_of(kind).actions or ()) if name.endswith("changelist") else ("",):
                restricted.post(address, {**data, "action": action})
    assert list(others.values()) == before
    assert FailureGroup.objects.get().muted_at is None


@pytest.mark.parametrize("act", ["cancel", "retry"])
@pytest.mark.promise("hidden-batch")
def test_a_batch_with_hidden_jobs_is_refused(act: str, rows: dict[str, Any], restricted: Client) -> None:
    batch = rows["jobbatch"]
    address = url(act, batch.pk, model="jobbatch")
    assert address not in body(restricted, url("change", batch.pk, model="jobbatch"))
    message, level = post(restricted, address, confirmed="1")
    assert level == "error"
    assert message.startswith("You may not see all jobs of ")
    own = BatchFactory.create()
    for state in ({}, {"failed": True}):
        JobFactory.create(batch_id=own.pk, **state)
    address = url(act, own.pk, model="jobbatch")
    assert address in body(restricted, url("change", own.pk, model="jobbatch"))
    assert post(restricted, address, confirmed="1")[1] == "success"


@pytest.mark.promise("hidden-failures")
def test_failures_are_for_who_sees_all_jobs(rows: dict[str, Any], root: Client, restricted: Client) -> None:
    for page in (url("failures"), url("failure", GROUP)):
        assert root.get(page).status_code == 200
        assert restricted.get(page).status_code == 403
    assert restricted.post(url("failure_mute", GROUP)).status_code == 403
    task = reverse("admin:django_pgqueue_jobstat_task", args=[TASK])
    for page in (url("overview"), url("changelist"), task):
        assert url("failures") in body(root, page), "see above for who sees fewer"


def test_a_job_has_no_links_to_hidden_ones(rows: dict[str, Any], root: Client, restricted: Client) -> None:
    """To its parents, and to those that hold its limit."""
    set_limit(name="acme", concurrency=1)
    holder = hidden(running=True, limit_key="acme")
    Job.objects.filter(pk=rows["job"].pk).update(limit_key="acme")
    links = {f'href="{url("change", each.pk)}"' for each in (holder, rows["hidden"])}
    all_of_it, shown = (body(client, url("change", rows["job"].pk)) for client in (root, restricted))
    assert "not kept any more, or not for you to see" in shown
    assert [{link for link in links if link in page} for page in (all_of_it, shown)] == [links, set()]


def test_a_copy_does_not_take_the_place_of_a_hidden_job(rows: dict[str, Any], restricted: Client) -> None:
    """The unique key of the call is that of a hidden job, which it would replace."""
    taken = enqueue(render.using(queue_name="hidden"), 1)
    job = JobFactory.create(task_path=render.module_path, args=[1], done=True)
    data = {"args": "[1]", "kwargs": "{}", "queue_name": "default", "priority": "7"}
    answer = restricted.post(url("clone", job.pk), data)
    assert "another job has the unique key of this call" in answer.content.decode()
    assert Job.objects.get(pk=taken.pk).queue_name == "hidden"


def test_a_row_of_a_payload_says_nothing_of_its_hidden_job() -> None:
    row = Receipt.objects.create(order=Order.objects.create(pk=17), email="ann@example.com")
    Job.objects.filter(pk=row.pk).update(queue_name="hidden", waiting_reason=SECRET)
    request: Any = RequestFactory().get("/")
    request.user = User.objects.create_user("ann")
    shown = ReceiptAdmin(Receipt, hiding_site)
    assert shown.job_status(shown.get_queryset(request).get()) == "not kept any more, or not for you to see"
    request.user.is_superuser = True
    assert SECRET in shown.job_status(shown.get_queryset(request).get())
