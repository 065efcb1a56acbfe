"""The buttons and actions of queues, pauses, workers, batches and limits, by clicks."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from django.utils import timezone

from django_pgqueue import pause
from django_pgqueue.models import Job, JobBatch, Limit, Pause, Queue, Worker
from tests.support.factories import BatchFactory, JobFactory, QueueFactory, WorkerFactory

from .addresses import address, change
from .addresses import page as address_of
from .hands import REASON, SURE, delete, press, said, tick

if TYPE_CHECKING:
    from .conftest import Open

pytestmark = pytest.mark.browser


# Without a script, the form of the button is folded by the browser itself.
@pytest.mark.parametrize("look", ["light", "phone", "plain"])
def test_pause_a_queue_on_the_overview_and_resume_it(look: str, window: Open) -> None:
    page = window(look, user="operator")
    page.goto(address("job_overview"))
    page.locator("#pgqueue-pause-demo-images summary").click()
    page.get_by_label("Reason to pause queue demo-images").fill(REASON)
    with page.expect_navigation():
        page.locator("#pgqueue-pause-demo-images button").click()
    assert said(page) == "Queue demo-images is paused."
    made = Pause.objects.get(name="demo-images")
    assert (made.author, made.reason) == ("operator", REASON)
    assert REASON in page.locator("#content").inner_text()
    resume = page.locator("#pgqueue-resume-demo-images")
    resume.focus()
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert said(page) == "Queue demo-images is resumed."
    assert not Pause.objects.filter(name="demo-images").exists()


@pytest.mark.parametrize("look", ["light", "plain"])
def test_pause_a_queue_change_the_pause_and_resume(look: str, window: Open) -> None:
    name = f"clicks-{look}"
    page = window(look, user="operator")
    page.goto(address("pause_add"))
    page.select_option("select[name=kind]", "queue")
    page.fill("input[name=name]", "not a name!")
    page.fill("[name=reason]", REASON)
    press(page, "^save$")
    assert "Enter the name of a queue" in page.locator("#content").inner_text()
    page.fill("input[name=name]", name)
    press(page, "^save$", "Enter")
    made = Pause.objects.get(name=name)
    assert (made.author, made.reason, made.until) == ("operator", REASON, None)

    page.goto(change(made))
    page.fill("input[name=until_0]", "2020-01-01")
    page.fill("input[name=until_1]", "00:00")
    press(page, "^save$")
    assert "Enter a time in the future" in page.locator("#content").inner_text()
    until = timezone.now().replace(microsecond=0) + timedelta(days=3)
    page.fill("input[name=until_0]", f"{until:%Y-%m-%d}")
    page.fill("input[name=until_1]", f"{until:%H:%M:%S}")
    press(page, "^save$")
    made.refresh_from_db()
    assert (made.until, made.reason) == (until, REASON)

    page.goto(change(made))
    press(page, "^resume")
    assert said(page) == "1 pause was ended."
    assert not Pause.objects.filter(pk=made.pk).exists()


def test_resume_what_is_selected(window: Open) -> None:
    made = [pause(queue=f"clicks-{number}") for number in range(2)]
    page = window(user="operator")
    page.goto(address("pause_changelist"))
    tick(page, [row.pk for row in made], "resume_selected")
    assert Pause.objects.filter(name__startswith="clicks-").count() == 2
    press(page, SURE)
    assert said(page) == "2 pauses were ended."
    assert not Pause.objects.filter(name__startswith="clicks-").exists()


@pytest.mark.parametrize(
    ("button", "how", "look"), [("^replace", "replace", "light"), ("^stop", "stop", "plain")]
)
def test_drain_a_worker(button: str, how: str, look: str, window: Open) -> None:
    worker = WorkerFactory.create(host="clicks", heartbeat_at=timezone.now() + timedelta(days=1))
    page = window(look, user="operator")
    page.goto(change(worker))
    press(page, button)
    assert "would start no more jobs" in page.locator("#content").inner_text()
    assert Worker.objects.get(pk=worker.pk).drain == ""
    press(page, SURE)
    assert Worker.objects.get(pk=worker.pk).drain == how
    worker.delete()


def test_replace_selected_workers(window: Open) -> None:
    soon = timezone.now() + timedelta(days=1)
    workers = WorkerFactory.create_batch(2, host="clicks", heartbeat_at=soon)
    page = window("phone", user="operator")
    page.goto(address("worker_changelist"))
    tick(page, [worker.pk for worker in workers], "replace_workers")
    press(page, SURE)
    drains = Worker.objects.filter(host="clicks")
    assert list(drains.values_list("drain", flat=True)) == ["replace", "replace"]
    drains.delete()


def batch(state: str) -> JobBatch:
    """Return a batch with two jobs in a state."""
    made: JobBatch = BatchFactory.create()
    JobFactory.create_batch(2, batch=made, queue_name="clicks", **{state: True})
    return made


def states(*batches: JobBatch) -> set[str]:
    return set(
        Job.objects.filter(batch_id__in=[each.pk for each in batches]).values_list("status", flat=True)
    )


BATCHES = pytest.mark.parametrize(
    ("act", "state", "after"), [("cancel", "scheduled", "cancelled"), ("retry", "failed", "pending")]
)


@BATCHES
def test_cancel_or_retry_a_batch(act: str, state: str, after: str, window: Open) -> None:
    made = batch(state)
    page = window("plain" if act == "cancel" else "phone", user="operator")
    page.goto(change(made))
    press(page, f"^{act}")
    assert "2 jobs would" in page.locator("#content").inner_text()
    press(page, SURE)
    assert said(page).startswith("2 jobs ")
    assert states(made) == {after}


@BATCHES
def test_cancel_or_retry_selected_batches(act: str, state: str, after: str, window: Open) -> None:
    made = [batch(state), batch(state)]
    page = window(user="operator")
    page.goto(address("jobbatch_changelist"))
    tick(page, [each.pk for each in made], f"{act}_batches")
    press(page, SURE)
    assert said(page).startswith("4 jobs ")
    assert states(*made) == {after}


def test_from_a_batch_through_its_workflow_to_a_job(window: Open) -> None:
    found = JobBatch.objects.get(name="demo: orders of Monday")
    page = window(user="viewer")
    page.goto(change(found))
    with page.expect_navigation():
        page.locator("#content a[href$='/workflow/']").first.click()
    assert page.locator("svg a").count() >= 4
    assert page.locator("svg path.pgqueue-arrow").count() >= 3
    boxes = [str(each.bounding_box()) for each in page.locator("svg .pgqueue-box").all()]
    assert len(set(boxes)) == len(boxes)
    assert not page.locator("#pgqueue-workflow-table").is_visible()
    link = page.locator("svg a[href*='/job/']").first
    link.focus()
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert "/job/" in page.url


def test_without_scripts_a_workflow_is_a_table(window: Open) -> None:
    page = window("plain", user="viewer")
    found = JobBatch.objects.get(name="demo: orders of Monday")
    page.goto(address_of("jobbatch_workflow", found.pk))
    assert page.locator("#pgqueue-workflow-table").is_visible()
    assert not page.locator("#pgqueue-drawing-box").is_visible()


def test_a_drawing_that_is_read_again_keeps_the_focus(window: Open) -> None:
    page = window(user="viewer")
    found = JobBatch.objects.get(name="demo: orders of Monday")
    page.goto(address_of("jobbatch_workflow", found.pk))
    page.locator("svg a[href*='/job/']").first.focus()
    before = page.evaluate("document.activeElement.id")
    again = """() => {
        const part = document.getElementById("pgqueue-workflow-now");
        part.dataset.pgqueuePause = "1";
        part.dataset.old = "yes";
    }"""
    page.evaluate(again)
    page.wait_for_selector("#pgqueue-workflow-now:not([data-old]) svg a")
    assert page.evaluate("document.activeElement.id") == before


@pytest.mark.parametrize("look", ["light", "plain"])
def test_settings_of_a_queue(look: str, window: Open) -> None:
    name = f"clicks-{look}"
    page = window(look, user="editor")
    page.goto(address("queue_add"))
    page.fill("[name=name]", name)
    page.fill("[name=backoff_base]", "60")
    page.fill("[name=backoff_ceiling]", "5")
    press(page, "^save$")
    assert "must not be shorter" in page.locator("#content").inner_text()
    page.fill("[name=backoff_ceiling]", "600")
    press(page, "^save$", "Enter")
    made = Queue.objects.get(pk=name)
    assert (made.backoff_base, made.backoff_ceiling) == (60, 600)
    page.goto(change(made))
    page.fill("[name=retention]", "2 00:00:00")
    press(page, "^save$")
    made.refresh_from_db()
    assert made.retention == timedelta(days=2)
    page.goto(change(made))
    delete(page)
    assert not Queue.objects.filter(pk=name).exists()


def test_delete_the_settings_of_selected_queues(window: Open) -> None:
    made = QueueFactory.create_batch(2)
    page = window(user="editor")
    page.goto(address("queue_changelist"))
    tick(page, [each.pk for each in made], "delete_selected")
    press(page, SURE)
    assert not Queue.objects.filter(pk__in=[each.pk for each in made]).exists()


@pytest.mark.parametrize("look", ["light", "plain"])
def test_a_limit(look: str, window: Open) -> None:
    name = f"clicks-{look}"
    page = window(look, user="editor")
    page.goto(address("limit_add"))
    page.fill("[name=name]", name)
    press(page, "^save$")
    assert "Enter how many jobs may run at once" in page.locator("#content").inner_text()
    page.fill("[name=concurrency]", "3")
    press(page, "^save$", "Enter")
    made = Limit.objects.get(pk=name)
    assert made.concurrency == 3
    page.goto(change(made))
    page.fill("[name=concurrency]", "")
    page.fill("[name=rate]", "100")
    page.fill("[name=per]", "00:01:00")
    press(page, "^save$")
    assert Limit.objects.filter(pk=name, concurrency=None, rate=100, per=timedelta(minutes=1)).exists()
    page.goto(change(made))
    delete(page)
    assert not Limit.objects.filter(pk=name).exists()
