"""Every action of the admin, as a story: what a user does on a page, with and without scripts, and what has
happened then. The stories list all actions that the pages offer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.test import RequestFactory, override_settings
from django.utils import timezone

from django_pgqueue import pause
from django_pgqueue.admin import JobAdmin, lists
from django_pgqueue.admin.bulk import confirm
from django_pgqueue.jobs import chunks
from django_pgqueue.models import FailureGroup, Job, JobBatch, Limit, Pause, Queue, Schedule, Worker
from tests.support import schedules
from tests.support.factories import BatchFactory, JobFactory, QueueFactory, WorkerFactory
from tests.support.figures import fold, note
from tests.support.waiting import until
from tests.support.workers import working

from .faults import SEEN, axe, overflow
from .hands import (
    NAMES,
    REASON,
    SURE,
    Pressed,
    address,
    answer,
    change,
    delete,
    page as address_of,
    press,
    said,
    tick,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from .conftest import Open

pytestmark = pytest.mark.browser

TASK = "tests.app.tasks.noop"

Rows = QuerySet[Any]


class Scene(NamedTuple):
    """The page, the name of the story, and its rows."""

    page: Page
    name: str
    rows: Rows


Step = Callable[[Scene], object]
P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


def later(act: Callable[Concatenate[T, P], R]) -> Callable[P, Callable[[T], R]]:
    """Let a function take its first argument, which the story gives, after all others."""
    return lambda *args, **kwargs: lambda first: act(first, *args, **kwargs)


# What a user does, as steps of a story.


@later
def goes(on: Scene, name: str) -> None:
    on.page.goto(address(name))


def opens(on: Scene) -> None:
    """Open the page of the first row; of jobs in a batch, that of the batch."""
    row = on.rows.earliest("pk")
    on.page.goto(change(JobBatch.objects.get(pk=row.batch_id) if getattr(row, "batch_id", None) else row))


def group(on: Scene) -> None:
    """Open the page of a group of failures."""
    on.page.goto(address_of("job_failure", on.name))


@later
def button(on: Scene, name: str, key: str = "") -> None:
    press(on.page, name, key)


@later
def clicks(on: Scene, locator: str) -> None:
    on.page.locator(locator).click()


@later
def leads(on: Scene, locator: str) -> None:
    with on.page.expect_navigation():
        on.page.locator("#content").locator(locator).first.click()


@later
def fills(on: Scene, /, **fields: str) -> None:
    """Type into fields. "NAME" is the name of the story."""
    for name, text in fields.items():
        field = on.page.locator(f"#content [name={name}]").filter(visible=True).first
        field.select_option(text) if name == "kind" else field.fill(text.replace("NAME", on.name))


@later
def ticks(on: Scene, action: str, listing: str) -> None:
    on.page.goto(address(listing))
    tick(on.page, {row.batch_id if "batches" in action else row.pk for row in on.rows.all()}, action)


def deletes(on: Scene) -> None:
    delete(on.page)


# What a user sees, and what is so.


@later
def says(on: Scene, text: str) -> None:
    assert text in said(on.page)


@later
def sees(on: Scene, *texts: str) -> None:
    content = on.page.locator("#content").inner_text()
    assert [text for text in texts if text not in content] == []


@later
def keeps(on: Scene, /, **fields: str) -> None:
    """What was typed is not typed twice."""
    for name, text in fields.items():
        assert on.page.locator(f"#content [name={name}]").input_value() == text


@later
def are(on: Scene, /, **columns: Any) -> None:
    assert on.rows.filter(**columns).count() == on.rows.count() > 0


def gone(on: Scene) -> None:
    assert not on.rows.all().exists()


# The rows of a story, which has a name of its own.


@later
def jobs(name: str, /, count: int = 1, **columns: Any) -> Rows:
    made = JobFactory.create_batch(count, **{"queue_name": name, **columns})
    return Job.objects.filter(pk__in=[job.pk for job in made])


@later
def batches(name: str, /, count: int, **columns: Any) -> Rows:
    made = BatchFactory.create_batch(count)
    for batch in made:
        JobFactory.create_batch(2, batch=batch, queue_name="clicks", **columns)
    return Job.objects.filter(batch_id__in=[batch.pk for batch in made])


@later
def failures(name: str, status: str = "") -> Rows:
    """A group of failures, of which two jobs have failed, and two wait for another attempt."""
    connection.ensure_connection()
    note(connection.connection, name, failed=2, retried=2, error_class="shop.Broken", message="a click")
    fold(connection.connection)
    for state in ("failed", "retrying"):
        JobFactory.create_batch(2, error_fingerprint=name, queue_name="clicks", **{state: True})
    found = Job.objects.filter(error_fingerprint=name)
    return found.filter(status=status) if status else FailureGroup.objects.filter(pk=name)


@later
def workers(name: str, count: int) -> Rows:
    WorkerFactory.create_batch(count, host=name, heartbeat_at=timezone.now() + timedelta(days=1))
    return Worker.objects.filter(host=name)


@later
def nothing(name: str, model: Any, key: str = "pk") -> Rows:
    """Rows that the story makes."""
    found: Rows = model._default_manager.filter(**{key: name})
    return found


@later
def several(name: str, model: Any, create: Callable[[str], Any], key: str = "pk") -> Rows:
    names = [f"{name}-{number}" for number in range(2)]
    for each in names:
        create(each)
    found: Rows = model._default_manager.filter(**{f"{key}__in": names})
    return found


@later
def scheduled(name: str, /, create: Callable[..., Any] = schedules.create, **columns: Any) -> Rows:
    create(name, **columns)
    return Schedule.objects.filter(pk=name)


def on_overview(name: str) -> Rows:
    return Pause.objects.filter(name="demo-images")


class Story(NamedTuple):
    """What is pressed, named as in ``hands.py``, by whom, on which rows, and the steps."""

    presses: str
    user: str
    make: Callable[[str], Rows]
    steps: tuple[Step, ...]


LIST = "job_changelist"
DUE_SOON: dict[str, Any] = {"running": True, "timeout": 300, "deadline": Now() + timedelta(minutes=5)}
LATER = {"deadline__gt": Now() + timedelta(minutes=30)}
ASKED = sees("2 jobs are selected. Nothing has changed yet.")
IN_THREE_DAYS = (timezone.now() + timedelta(days=3)).replace(microsecond=0)
STORIES: dict[str, Story] = {
    "retry a job": Story("job_retry", "operator", jobs(failed=True), (
        opens, button("^retry", "Enter"), says("1 job runs again."), are(status="pending"),
    )),
    "cancel a job": Story("job_cancel", "operator", jobs(scheduled=True), (
        opens, button("^cancel"), says("1 job was cancelled"), are(status="cancelled"),
    )),
    "run a job now": Story("job_run_now", "operator", jobs(scheduled=True), (
        opens, button("^run now", "Space"), says("1 job is due now."), are(run_after__lte=Now()),
    )),
    "give a job an hour": Story("job_extend", "operator", jobs(**DUE_SOON), (
        opens, button("^give it one more hour"), says("1 job has one more hour."), are(**LATER),
    )),
    "ask what a job does": Story("job_stack", "viewer", jobs(running=True), (
        opens, button("^show the stack"), sees("The worker has not answered yet."),
    )),
    "edit a job after mistakes": Story("job_edit", "operator", jobs(scheduled=True), (
        opens, button("^edit"), leads("text=No, take me back"), are(priority=0),
        button("^edit"), button("^save"), sees("Enter at least one value to change."),
        fills(queue_name="not a name!", priority="7"), button("^save"), are(priority=0), keeps(priority="7"),
        fills(queue_name="mail"), button("^save", "Enter"), says("1 job was edited."),
        are(priority=7, queue_name="mail", run_after__gt=Now()),
    )),
    "enqueue again after mistakes": Story(
        "job_clone", "editor", jobs(failed=True, task="tests.app.tasks.mail", args=[1]), (
        opens, leads("text=Enqueue again"),
        fills(args="{}"), button("^enqueue again"), sees("Enter a JSON list."), keeps(args="{}"),
        fills(args="[1,"), button("^enqueue again"), sees("Enter a valid JSON."), keeps(args="[1,"),
        fills(args="[1, 2, 3]"), button("^enqueue again"), sees("too many positional arguments"),
        fills(args="[22]"), button("^enqueue again", "Enter"), says("was enqueued."), sees("[22]", "pending"),
        are(status="failed", args=[1]),
    )),
    "retry jobs": Story("job_changelist retry_jobs", "operator", jobs(2, failed=True), (
        ticks("retry_jobs", LIST), ASKED, button(SURE), says("2 jobs run again."), are(status="pending"),
    )),
    "run jobs now": Story("job_changelist run_now_jobs", "operator", jobs(2, scheduled=True), (
        ticks("run_now_jobs", LIST), ASKED, button(SURE), says("2 jobs are due now."),
        are(run_after__lte=Now()),
    )),
    "edit jobs": Story("job_changelist edit_jobs", "operator", jobs(2, scheduled=True), (
        ticks("edit_jobs", LIST), ASKED, fills(priority="3"), button("^save"), says("2 jobs were edited."),
        are(priority=3),
    )),
    # It harms nobody, and is not confirmed.
    "give jobs an hour": Story("job_changelist extend_jobs", "operator", jobs(2, **DUE_SOON), (
        ticks("extend_jobs", LIST), says("2 jobs have one more hour each."), are(**LATER),
    )),
    "cancel jobs": Story("job_changelist cancel_jobs", "operator", jobs(2, scheduled=True), (
        ticks("cancel_jobs", LIST), ASKED, button(SURE), says("2 jobs were cancelled"),
        are(status="cancelled"),
    )),
    "retry the jobs of a group": Story("", "operator", failures("failed"), (
        group, button("^retry the failed jobs"), sees("2 failed jobs would run again."), are(status="failed"),
        button(SURE), gone,
    )),
    "cancel the jobs of a group": Story("", "operator", failures("retry"), (
        group, button("^cancel the waiting jobs"), sees("2 waiting jobs would be cancelled."),
        are(status="retry"), button(SURE), gone,
    )),
    "mute a group and unmute it": Story(
        "job_failure_mute mute, job_failure_mute unmute", "operator", failures(), (
        group, button("^mute"), sees("muted by operator"), are(muted_by="operator"),
        button("^unmute", "Enter"), says("The group is no longer muted."), are(muted_at=None),
    )),
    # Without a script, the form of the button is folded by the browser itself.
    "pause a queue on the overview": Story(
        "job_overview pause, job_overview resume", "operator", on_overview, (
        goes("job_overview"), clicks("#pgqueue-pause-demo-images summary"), fills(reason=REASON),
        leads("#pgqueue-pause-demo-images button"), says("Queue demo-images is paused."), sees(REASON),
        are(author="operator", reason=REASON), leads("#pgqueue-resume-demo-images"),
        says("Queue demo-images is resumed."), gone,
    )),
    "pause a queue after mistakes": Story(
        "pause_add, pause_change, pause_resume", "operator", nothing(Pause, "name"), (
        goes("pause_add"), fills(kind="queue", name="not a name!", reason=REASON), button("^save$"),
        sees("Enter the name of a queue"), fills(name="NAME"), button("^save$", "Enter"),
        are(author="operator", reason=REASON, until=None),
        opens, fills(until_0="2020-01-01", until_1="00:00"), button("^save$"),
        sees("Enter a time in the future"),
        fills(until_0=f"{IN_THREE_DAYS:%Y-%m-%d}", until_1=f"{IN_THREE_DAYS:%H:%M:%S}"), button("^save$"),
        are(until=IN_THREE_DAYS, reason=REASON), opens, button("^resume"), says("1 pause has ended."), gone,
    )),
    "resume queues": Story(
        "pause_changelist resume_selected", "operator",
        several(Pause, lambda name: pause(queue=name), "name"), (
        ticks("resume_selected", "pause_changelist"), are(kind="queue"), button(SURE),
        says("2 pauses have ended."), gone,
    )),
    "replace a worker": Story("worker_replace", "operator", workers(1), (
        opens, button("^replace"), sees("would start no more jobs"), are(drain=""), button(SURE),
        are(drain="replace"),
    )),
    "stop a worker": Story("worker_stop", "operator", workers(1), (
        opens, button("^stop"), sees("would start no more jobs"), are(drain=""), button(SURE),
        are(drain="stop"),
    )),
    "replace workers": Story("worker_changelist replace_workers", "operator", workers(2), (
        ticks("replace_workers", "worker_changelist"), button(SURE), are(drain="replace"),
    )),
    "cancel a batch": Story("jobbatch_cancel", "operator", batches(1, scheduled=True), (
        opens, button("^cancel"), sees("2 jobs would"), button(SURE), says("2 jobs "),
        are(status="cancelled"),
    )),
    "retry a batch": Story("jobbatch_retry", "operator", batches(1, failed=True), (
        opens, button("^retry"), sees("2 jobs would"), button(SURE), says("2 jobs "), are(status="pending"),
    )),
    "cancel batches": Story(
        "jobbatch_changelist cancel_batches", "operator", batches(2, scheduled=True), (
        ticks("cancel_batches", "jobbatch_changelist"), button(SURE), says("4 jobs "),
        are(status="cancelled"),
    )),
    "retry batches": Story(
        "jobbatch_changelist retry_batches", "operator", batches(2, failed=True), (
        ticks("retry_batches", "jobbatch_changelist"), button(SURE), says("4 jobs "), are(status="pending"),
    )),
    "settings of a queue": Story("queue_add, queue_change, queue_delete", "editor", nothing(Queue), (
        goes("queue_add"), fills(name="NAME", backoff_base="60", backoff_ceiling="5"), button("^save$"),
        sees("must not be shorter"), fills(backoff_ceiling="600"), button("^save$", "Enter"),
        are(backoff_base=60, backoff_ceiling=600), opens, fills(retention="2 00:00:00"), button("^save$"),
        are(retention=timedelta(days=2)), opens, deletes, gone,
    )),
    "delete settings of queues": Story(
        "queue_changelist delete_selected", "editor",
        several(Queue, lambda name: QueueFactory.create(name=name)), (
        ticks("delete_selected", "queue_changelist"), button(SURE), gone,
    )),
    "a limit": Story("limit_add, limit_change, limit_delete", "editor", nothing(Limit), (
        goes("limit_add"), fills(name="NAME"), button("^save$"), sees("Enter how many jobs may run at once"),
        fills(concurrency="3"), button("^save$", "Enter"), are(concurrency=3),
        opens, fills(concurrency="", rate="100", per="00:01:00"), button("^save$"),
        are(concurrency=None, rate=100, per=timedelta(minutes=1)), opens, deletes, gone,
    )),
    "pause a schedule, resume and run it": Story(
        "schedule_pause, schedule_resume, schedule_enqueue", "operator",
        scheduled(task_path=TASK, args=[]), (
        opens, button("^pause"), fills(reason=REASON), button(SURE), sees(REASON),
        are(pause_author="operator", pause_reason=REASON),
        button("^resume", "Enter"), button(SURE, "Enter"), are(paused_at=None),
        button("^run now"), sees("would enqueue one job now"), button(SURE), says("1 job is enqueued."),
    )),
    "back to what is declared": Story(
        "schedule_restore", "editor",
        scheduled(schedules.declare, cron=None, every=timedelta(hours=1)), (
        opens, button("^back to what is declared"), sees("instead of 1:00:00"), button(SURE),
        are(cron="0 3 * * *", overridden=[]),
    )),
    "make a schedule after a mistake": Story(
        "schedule_add, schedule_change, schedule_delete", "editor", nothing(Schedule), (
        goes("schedule_add"), fills(name="NAME", task_path=TASK, cron="every day at six"),
        button("^save$"), sees("The cron expression 'every day at six'"),
        fills(cron="0 6 * * *"), button("^save$", "Enter"),
        are(task_path=TASK, cron="0 6 * * *"), opens, fills(kwargs='{"day": 1}'), button("^save$"),
        are(kwargs={"day": 1}), opens, deletes, gone,
    )),
    "delete schedules": Story(
        "schedule_changelist delete_selected", "editor", several(Schedule, schedules.create), (
        ticks("delete_selected", "schedule_changelist"), button(SURE), gone,
    )),
    "pause schedules, resume and run them": Story(
        "schedule_changelist pause_schedules, schedule_changelist resume_schedules,"
        " schedule_changelist enqueue_schedules",
        "operator", several(Schedule, lambda name: schedules.create(name, task_path=TASK, args=[])), (
        ticks("pause_schedules", "schedule_changelist"), button(SURE), says("2 schedules are paused."),
        are(paused_at__isnull=False),
        ticks("resume_schedules", "schedule_changelist"), button(SURE), says("2 schedules are resumed."),
        are(paused_at=None),
        ticks("enqueue_schedules", "schedule_changelist"), button(SURE), says("2 jobs are enqueued"),
    )),
}  # fmt: skip


@pytest.mark.parametrize("look", ["phone", pytest.param("plain", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", STORIES)
def test_a_story(name: str, look: str, window: Open, pressed: Pressed) -> None:
    """With and without JavaScript: the buttons are forms."""
    story = STORIES[name]
    unique = re.sub(r"\W+", "-", f"{name} {look}")
    on = Scene(window(look, user=story.user), unique, story.make(unique))
    for step in story.steps:
        step(on)
    assert set(filter(None, story.presses.split(", "))) <= pressed
    if on.rows.model in {Worker, Schedule}:  # other tests look at the last one
        on.rows.delete()


def test_a_user_who_acts_keeps_the_page_that_is_read_again(
    window: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Race: the first page of a search is read again while a user ticks a job on it."""
    monkeypatch.setattr(lists, "FIRST_LOOK", 0.0)
    JobFactory.create(queue_name="ticked", scheduled=True)
    page, again = window(user="operator"), re.compile("p=first")
    page.route(again, lambda route: None)  # it is on its way, for as long as this test takes
    with page.expect_request(again):
        page.goto(f"{address(LIST)}?queue=ticked", wait_until="commit")
    page.wait_for_load_state("domcontentloaded")
    with page.expect_event("requestfailed"):
        page.keyboard.type("jx")
    assert page.locator(".action-select:checked").count() == 1
    page.unroute(again)


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A queue for actions in the background, with a worker. Few jobs fill a page, are many, and take several
    chunks.
    """
    monkeypatch.setattr(JobAdmin, "list_per_page", 3)
    monkeypatch.setattr(confirm, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(chunks, "FIRST_SIZE", 2)
    with override_settings(PGQUEUE={"BULK_QUEUE": "background"}), working(queues=("background",)):
        # No supervisor sends heartbeats of that worker.
        row = WorkerFactory.create(queues=["background"], heartbeat_at=timezone.now() + timedelta(hours=1))
        yield "background"
        row.delete()


def test_all_that_match_run_in_the_background_are_stopped_and_go_on(background: str, window: Open) -> None:
    def cancelled() -> int:
        return Job.objects.filter(queue_name="many", status="cancelled").count()

    jobs = JobFactory.create_batch(7, queue_name="many", scheduled=True)
    page = window(user="operator")
    page.goto(f"{address(LIST)}?queue=many&status=pending")
    content = page.locator("#content")
    page.locator("#action-toggle").check()
    page.get_by_role("button", name="Select all that match, on every page").click()
    page.select_option("select[name=action]", "cancel_jobs")
    press(page, "^(run|go)$")
    assert "7 jobs are selected." in content.inner_text()
    assert "This runs in the background" in content.inner_text()
    assert overflow(page) == axe(page, SEEN) == []
    with transaction.atomic():  # the second chunk waits for this row, until the user has pressed the button
        Job.objects.select_for_update().get(pk=jobs[2].pk)
        press(page, SURE)
        assert "runs in the background" in said(page)
        order = Job.objects.get(queue_name=background)
        assert page.url.endswith(change(order))
        page.get_by_text("2 of 7").first.wait_for()  # the page shows itself anew
        assert cancelled() == 2
        page.reload()
        press(page, "^cancel")
    until(lambda: Job.objects.get(pk=order.pk).is_finished)
    assert cancelled() == 4, "the chunk that was being worked on, and no other"
    page.reload()
    assert "Cancelled. 4 jobs were cancelled" in content.inner_text()
    press(page, "^retry")
    until(lambda: Job.objects.get(pk=order.pk).status == "done")
    assert cancelled() == 7
    page.reload()
    assert "7 jobs were cancelled" in content.inner_text()
    page.get_by_role("link", name="History").click()
    assert "Ended. Action: Cancel. 7 jobs were cancelled" in content.inner_text()
    entries = LogEntry.objects.filter(object_id=order.pk).order_by("pk")
    assert [entry.change_message.partition(".")[0] for entry in entries] == [
        "Started in the background", "Action: Cancel", "Cancelled", "Action: Retry", "Ended",
    ]  # fmt: skip


def test_the_stories_press_all_that_is_offered(console: str) -> None:
    """What admin classes offer by a name of its own, and all that answers to a POST only. Who may press what:
    `tests.admin.test_access`.
    """
    told = {name for story in STORIES.values() for name in story.presses.split(", ")}
    request = RequestFactory().get("/")
    request.user = User.objects.get(username="root")
    offered = set()
    for model, page in admin.site._registry.items():
        if model._meta.app_label == "django_pgqueue":
            ways = ("add", "change", "delete")
            names = {way for way in ways if getattr(page, f"has_{way}_permission")(request)}
            names |= {f"changelist {action}" for action in page.get_actions(request)}
            names |= {*getattr(page, "row_actions", ())}
            offered |= {f"{model._meta.model_name}_{name}" for name in names}
    assert offered - told == set()
    posts = {name for name in NAMES if answer(address(name)).status_code == 405}
    assert posts - {name.partition(" ")[0] for name in told} == set()
