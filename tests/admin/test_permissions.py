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

#: The row, the button, the class that is asked, and the permission.
BUTTONS: list[tuple[str, dict[str, Any], str, type, str]] = [
    ("job", {"failed": True}, "retry", JobAdmin, "retry"),
    ("job", {"done": True}, "retry", JobAdmin, "rerun_done"),
    ("job", {"run_after": "2100-01-01T00:00:00Z"}, "run_now", JobAdmin, "run_now"),
    ("job", {}, "edit", JobAdmin, "edit"),
    ("job", {}, "cancel", JobAdmin, "cancel"),
    ("job", {"task_path": "tests.app.tasks.noop"}, "clone", JobAdmin, "view_arguments"),
    ("job", {"failed": True, "error_fingerprint": "abc"}, "failure_mute", JobAdmin, "mute"),
    # That of jobs decides, unless the class of batches has its own.
    ("jobbatch", {}, "cancel", JobAdmin, "cancel"),
    ("jobbatch", {}, "cancel", BatchAdmin, "cancel"),
    ("jobbatch", {}, "retry", JobAdmin, "retry"),
    ("jobbatch", {}, "retry", BatchAdmin, "retry"),
    ("schedule", {"name": "nightly"}, "pause", ScheduleAdmin, "pause"),
    ("schedule", {"name": "nightly"}, "enqueue", ScheduleAdmin, "enqueue"),
    ("schedule", {"name": "nightly"}, "restore", ScheduleAdmin, "change"),
]
FACTORIES: dict[str, Any] = {
    "job": JobFactory,
    "jobbatch": BatchFactory,
    "schedule": ScheduleFactory,
    "worker": WorkerFactory,
}


@pytest.fixture
def one_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may view the rows whose queue, name or host is "hidden"."""

    def may_view(self: Any, request: Any, obj: Any = None) -> bool:
        return "hidden" not in [getattr(obj, name, "") for name in ("queue_name", "name", "host")]

    for admin in (JobAdmin, BatchAdmin, ScheduleAdmin, WorkerAdmin):
        monkeypatch.setattr(admin, "has_view_permission", may_view)


def state() -> tuple[Any, ...]:
    """Return what a button would change."""
    return (
        *Job.objects.order_by("pk").values_list("pk", "status", "cancel_requested_at", "priority"),
        *Schedule.objects.values_list("pk", "paused_at", "overridden"),
    )


@pytest.mark.parametrize(
    ("model", "columns", "button", "admin", "permission"),
    BUTTONS,
    ids=[f"{permission} of {admin.__name__} for {model}" for model, _, _, admin, permission in BUTTONS],
)
@pytest.mark.promise("action-permission")
def test_a_button_asks_the_method(
    model: str, columns: dict[str, Any], button: str, admin: type, permission: str,
    root: Client, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    row: Any = FACTORIES[model].create(**columns)
    if model == "jobbatch":
        JobFactory.create(batch_id=row.pk, failed=True)
    address = url(button, columns.get("error_fingerprint", row.pk), model=model)
    page = url("failure" if button == "failure_mute" else "change", *address.split("/")[4:5], model=model)
    before = state()
    if permission not in {"rerun_done", "mute", "change"}:
        assert address in body(root, page)
    monkeypatch.setattr(admin, f"has_{permission}_permission", lambda self, request, obj=None: False)
    if permission not in {"mute", "change"}:
        assert address not in body(root, page)
    assert root.post(address).status_code == 403
    assert state() == before


@pytest.mark.parametrize(
    ("model", "columns", "gets", "posts"),
    [
        ("job", {"queue_name": "hidden"}, ["change", "clone", "workflow"], ["cancel"]),
        ("jobbatch", {"name": "hidden"}, ["change", "workflow"], ["cancel"]),
        ("schedule", {"name": "hidden"}, [], ["pause", "enqueue"]),
        ("worker", {"host": "hidden"}, ["change"], ["stop"]),
    ],
)
@pytest.mark.promise("view-permission")
def test_a_row_that_one_may_not_view_has_no_page_and_no_buttons(
    model: str, columns: dict[str, str], gets: list[str], posts: list[str], root: Client, one_is_hidden: None
) -> None:
    shown, hidden = (FACTORIES[model].create(**each) for each in ({}, columns))
    before = state()
    for page in gets:
        assert root.get(url(page, shown.pk, model=model)).status_code == 200
        assert root.get(url(page, hidden.pk, model=model)).status_code == 403
    for button in posts:
        assert root.post(url(button, hidden.pk, model=model)).status_code == 403
    if model == "schedule":
        data = {"action": "pause_schedules", "_selected_action": [shown.pk, hidden.pk], "confirmed": "1"}
        assert root.post(url("changelist", model="schedule"), data).status_code == 403
    assert state() == before


def test_a_job_that_one_may_not_view_tells_no_progress(root: Client, one_is_hidden: None) -> None:
    jobs = [JobFactory.create(running=True, marks=8, queue_name=name) for name in ("default", "hidden")]
    for job in jobs:
        JobProgress.objects.create(job=job, done=1, note=f"reading {job.queue_name}")
    told = body(root, url("progress"), keys=",".join(str(job.pk) for job in jobs))
    assert "reading default" in told
    assert "reading hidden" not in told


@pytest.mark.promise("failures-permission")
def test_the_pages_of_failures_ask_the_method(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    JobFactory.create(failed=True, error_fingerprint="abc")
    monkeypatch.setattr(JobAdmin, "has_view_failures_permission", lambda self, request: False)
    assert root.get(url("failures")).status_code == 403
    assert root.get(url("failure", "abc")).status_code == 403
    assert url("failures") not in body(root, url("overview"))
