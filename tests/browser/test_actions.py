"""The buttons of the page of a job, by clicks or keys, as somebody who may do exactly this."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from django.utils import timezone

from django_pgqueue.models import Job
from tests.support.factories import JobFactory

from .addresses import change
from .hands import press, said

if TYPE_CHECKING:
    from .conftest import Open

pytestmark = pytest.mark.browser

#: With and without JavaScript: the buttons are forms.
LOOKS = pytest.mark.parametrize("look", ["phone", "plain"])


@LOOKS
def test_retry_a_failed_job(look: str, window: Open) -> None:
    failed = JobFactory.create(failed=True)
    page = window(look, user="operator")
    page.goto(change(failed))
    press(page, "^retry", "Enter")
    assert said(page) == "1 job runs again."
    assert Job.objects.get(pk=failed.pk).status == "pending"


@LOOKS
def test_cancel_a_waiting_job(look: str, window: Open) -> None:
    waiting = JobFactory.create(scheduled=True)
    page = window(look, user="operator")
    page.goto(change(waiting))
    press(page, "^cancel")
    assert "1 job was cancelled" in said(page)
    assert Job.objects.get(pk=waiting.pk).status == "cancelled"


def test_run_a_job_now_that_waits_for_its_time(window: Open) -> None:
    waiting = JobFactory.create(scheduled=True)
    page = window(user="operator")
    page.goto(change(waiting))
    press(page, "^run now", "Space")
    assert said(page) == "1 job is due now."
    assert Job.objects.get(pk=waiting.pk).run_after <= timezone.now()


def test_give_a_running_job_one_more_hour(window: Open) -> None:
    soon = timezone.now() + timedelta(minutes=5)
    running = JobFactory.create(running=True, timeout=300, deadline=soon)
    page = window(user="operator")
    page.goto(change(running))
    press(page, "^give it one more hour")
    assert said(page) == "1 job has one more hour."
    assert Job.objects.filter(pk=running.pk, deadline__gt=soon + timedelta(minutes=50)).exists()


@LOOKS
def test_edit_a_waiting_job_after_a_mistake(look: str, window: Open) -> None:
    waiting = JobFactory.create(scheduled=True)
    page = window(look, user="operator")
    page.goto(change(waiting))
    press(page, "^edit")
    press(page, "^save")
    assert "Enter at least one value to change." in page.locator("#content").inner_text()
    page.get_by_label("Queue", exact=True).fill("not a name!")
    page.get_by_label("Priority").fill("7")
    press(page, "^save")
    assert page.locator("#content .errorlist").count() == 1
    assert Job.objects.get(pk=waiting.pk).priority == 0
    assert page.get_by_label("Priority").input_value() == "7", "it is not typed twice"
    page.get_by_label("Queue", exact=True).fill("mail")
    press(page, "^save", "Enter")
    assert said(page) == "1 job was edited."
    edited = Job.objects.get(pk=waiting.pk)
    assert (edited.priority, edited.queue_name, edited.run_after) == (7, "mail", waiting.run_after)


@LOOKS
def test_enqueue_again_after_a_mistake(look: str, window: Open) -> None:
    failed = JobFactory.create(failed=True, task="tests.app.tasks.mail", args=[1])
    page = window(look, user="editor")
    page.goto(change(failed))
    with page.expect_navigation():
        page.get_by_role("link", name="Enqueue again").click()
    for wrong, error in (
        ("{}", "Enter a JSON list."),
        ("[1,", "Enter a valid JSON."),
        ('"1"', "Enter a JSON list."),
    ):
        page.get_by_label("Arguments", exact=True).fill(wrong)
        press(page, "^enqueue again")
        assert error in page.locator("#content .errorlist").first.inner_text()
        assert page.get_by_label("Arguments", exact=True).input_value().split() == wrong.split()
    page.get_by_label("Arguments", exact=True).fill("[1, 2, 3]")
    press(page, "^enqueue again")
    assert "mail" in page.locator("#content .errorlist").inner_text(), "the call does not fit the task"
    page.get_by_label("Arguments", exact=True).fill("[22]")
    press(page, "^enqueue again", "Enter")
    made = Job.objects.filter(task_path=failed.task_path).latest("pk")
    assert made.pk != failed.pk
    assert said(page) == f"Job {made.pk} was enqueued."
    assert page.url.endswith(change(made))
    assert (made.args, made.status, made.timeout) == ([22], "pending", 60)


def test_a_confirmation_leads_back_and_changes_nothing(window: Open) -> None:
    waiting = JobFactory.create(scheduled=True)
    page = window(user="operator")
    page.goto(change(waiting))
    press(page, "^edit")
    with page.expect_navigation():
        page.get_by_role("link", name="No, take me back").click()
    assert page.url.endswith(change(waiting))
    assert Job.objects.get(pk=waiting.pk).run_after == waiting.run_after
