"""A project may replace the methods that decide who may do what: each view asks them, not only the lists."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from django_pgqueue.admin import BatchAdmin, JobAdmin, ScheduleAdmin, WorkerAdmin
from django_pgqueue.models import Job, JobProgress, Schedule
from tests.support.factories import BatchFactory, JobFactory, ScheduleFactory, WorkerFactory

from .helpers import body, url

pytestmark = pytest.mark.django_db

JOBS: dict[str, dict[str, Any]] = {
    "retry": {"failed": True},
    "run_now": {"run_after": "2100-01-01T00:00:00Z"},
    "edit": {},
    "cancel": {},
}


def deny(monkeypatch: pytest.MonkeyPatch, admin: type, *names: str) -> None:
    """Replace the methods for these permissions, as a subclass does."""
    for name in names:
        monkeypatch.setattr(admin, f"has_{name}_permission", lambda self, request: False)


@pytest.fixture
def one_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may view the rows whose queue, name or host is "hidden"."""

    def may_view(self: Any, request: Any, obj: Any = None) -> bool:
        return "hidden" not in [getattr(obj, name, "") for name in ("queue_name", "name", "host")]

    for admin in (JobAdmin, BatchAdmin, ScheduleAdmin, WorkerAdmin):
        monkeypatch.setattr(admin, "has_view_permission", may_view)


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.promise("action-permission")
def test_a_button_of_a_job_asks_the_method(name: str, root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobFactory.create(**JOBS[name])
    page, address = url("change", job.pk), url(name, job.pk)
    assert address in body(root, page)
    deny(monkeypatch, JobAdmin, name)
    assert address not in body(root, page)
    assert root.post(address).status_code == 403
    assert Job.objects.filter(pk=job.pk, status=job.status, cancel_requested_at=None).exists()


def test_done_jobs_ask_the_method_too(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobFactory.create(done=True)
    deny(monkeypatch, JobAdmin, "rerun_done")
    assert root.post(url("retry", job.pk)).status_code == 403
    assert Job.objects.get(pk=job.pk).status == "done"


@pytest.mark.promise("failures-permission")
def test_the_pages_of_failures_ask_the_methods(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobFactory.create(failed=True, error_fingerprint="abc")
    deny(monkeypatch, JobAdmin, "mute")
    assert root.post(url("failure_mute", job.error_fingerprint)).status_code == 403


def test_a_copy_shows_arguments_only_if_the_method_says_so(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = JobFactory.create(task_path="tests.app.tasks.noop")
    assert root.get(url("clone", job.pk)).status_code == 200
    deny(monkeypatch, JobAdmin, "view_arguments")
    assert root.get(url("clone", job.pk)).status_code == 403


@pytest.mark.parametrize("page", ["change", "clone", "workflow"])
@pytest.mark.promise("view-permission")
def test_a_job_that_one_may_not_view_has_no_page(page: str, root: Client, one_is_hidden: None) -> None:
    shown, hidden = JobFactory.create(), JobFactory.create(queue_name="hidden")
    assert root.get(url(page, shown.pk)).status_code == 200
    assert root.get(url(page, hidden.pk)).status_code == 403


@pytest.mark.promise("view-permission")
def test_a_job_that_one_may_not_view_has_no_buttons(root: Client, one_is_hidden: None) -> None:
    hidden = JobFactory.create(queue_name="hidden")
    assert root.post(url("cancel", hidden.pk)).status_code == 403
    assert Job.objects.get(pk=hidden.pk).status == "pending"


def test_a_job_that_one_may_not_view_tells_no_progress(root: Client, one_is_hidden: None) -> None:
    jobs = [JobFactory.create(running=True, marks=8, queue_name=name) for name in ("default", "hidden")]
    for job in jobs:
        JobProgress.objects.create(job=job, done=1, note=f"reading {job.queue_name}")
    told = body(root, url("progress"), keys=",".join(str(job.pk) for job in jobs))
    assert "reading default" in told
    assert "reading hidden" not in told


@pytest.mark.parametrize("admin", [BatchAdmin, JobAdmin])
@pytest.mark.parametrize("name", ["cancel", "retry"])
def test_a_button_of_a_batch_asks_the_method(
    admin: type, name: str, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of jobs decides, unless the class of batches has its own."""
    batch = BatchFactory.create()
    JobFactory.create(batch_id=batch.pk, failed=True)
    address = url(name, batch.pk, model="jobbatch")
    assert root.post(address).status_code == 200
    deny(monkeypatch, admin, name)
    assert address not in body(root, url("change", batch.pk, model="jobbatch"))
    assert root.post(address).status_code == 403


def test_a_batch_that_one_may_not_view(root: Client, one_is_hidden: None) -> None:
    batch = BatchFactory.create(name="hidden")
    assert root.get(url("workflow", batch.pk, model="jobbatch")).status_code == 403
    assert root.post(url("cancel", batch.pk, model="jobbatch")).status_code == 403


@pytest.mark.parametrize(
    ("name", "permission"), [("pause", "pause"), ("enqueue", "enqueue"), ("restore", "change")]
)
def test_a_button_of_a_schedule_asks_the_method(
    name: str, permission: str, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ScheduleFactory.create(name="nightly")
    address = url(name, "nightly", model="schedule")
    assert root.post(address).status_code == 200
    monkeypatch.setattr(ScheduleAdmin, f"has_{permission}_permission", lambda self, request, obj=None: False)
    assert address not in body(root, url("change", "nightly", model="schedule"))
    assert root.post(address).status_code == 403


def test_schedules_that_one_may_not_view(root: Client, one_is_hidden: None) -> None:
    for name in ("shown", "hidden"):
        ScheduleFactory.create(name=name)
    data = {"action": "pause_schedules", "_selected_action": ["shown", "hidden"], "confirmed": "1"}
    assert root.post(url("changelist", model="schedule"), data).status_code == 403
    assert not Schedule.objects.filter(paused_at__isnull=False).exists()


def test_a_worker_that_one_may_not_view(root: Client, one_is_hidden: None) -> None:
    worker = WorkerFactory.create(host="hidden")
    assert root.post(url("stop", worker.pk, model="worker")).status_code == 403
