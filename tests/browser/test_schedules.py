"""What can be done with schedules, by clicks: make, change, delete, pause, resume, run, as declared again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from django_pgqueue.models import Job, Schedule
from tests.support import shown_schedules as schedules

from .addresses import address, change
from .hands import REASON, SURE, delete, press, said, tick

if TYPE_CHECKING:
    from .conftest import Open

pytestmark = pytest.mark.browser

TASK = "tests.app.tasks.noop"


@pytest.fixture(autouse=True)
def only_those_of_the_demonstration(console: str) -> Iterator[None]:
    """Other tests look at the last one."""
    yield
    Schedule.objects.exclude(name__startswith="demo-").delete()


def jobs_of(*made: Schedule) -> int:
    return Job.objects.filter(task_path=TASK, args__0__in=[schedule.pk for schedule in made]).count()


@pytest.mark.parametrize("look", ["light", "plain"])
def test_pause_a_schedule_resume_it_and_run_it(look: str, window: Open) -> None:
    made = schedules.create(f"clicks-{look}", task_path=TASK, args=[f"clicks-{look}"])
    page = window(look, user="operator")
    page.goto(change(made))
    press(page, "^pause")
    page.get_by_label("Reason").fill(REASON)
    press(page, SURE)
    made.refresh_from_db()
    assert (made.pause_author, made.pause_reason) == ("operator", REASON)
    assert REASON in page.locator("#content").inner_text()
    press(page, "^resume", "Enter")
    press(page, SURE, "Enter")
    made.refresh_from_db()
    assert made.paused_at is None
    press(page, "^run now")
    assert "would enqueue one job now" in page.locator("#content").inner_text()
    press(page, SURE)
    assert said(page) == "1 job is enqueued."
    assert jobs_of(made) == 1


def test_actions_on_selected_schedules(window: Open) -> None:
    names = ["selected-1", "selected-2"]
    made = [schedules.create(name, task_path=TASK, args=[name]) for name in names]
    paused = Schedule.objects.filter(pk__in=names, paused_at__isnull=False)
    page = window(user="operator")
    for action, words, count in (
        ("pause_schedules", "2 schedules are paused.", 2),
        ("resume_schedules", "2 schedules are resumed.", 0),
        ("enqueue_schedules", "2 jobs are enqueued, one for each schedule.", 0),
    ):
        page.goto(address("schedule_changelist"))
        tick(page, names, action)
        press(page, SURE)
        assert said(page) == words
        assert paused.count() == count
    assert jobs_of(*made) == 2


def test_back_to_what_is_declared(window: Open) -> None:
    made = schedules.declare("declared", cron=None, every=timedelta(hours=1))
    page = window("plain", user="editor")
    page.goto(change(made))
    press(page, "^back to what is declared")
    assert "instead of 1:00:00" in page.locator("#content").inner_text()
    press(page, SURE)
    made.refresh_from_db()
    assert (made.cron, made.overridden) == ("0 3 * * *", [])


def test_delete_selected_schedules(window: Open) -> None:
    made = [schedules.create(f"gone-{number}") for number in range(2)]
    page = window(user="editor")
    page.goto(address("schedule_changelist"))
    tick(page, [schedule.pk for schedule in made], "delete_selected")
    press(page, SURE)
    assert not Schedule.objects.filter(pk__in=[schedule.pk for schedule in made]).exists()


@pytest.mark.parametrize("look", ["light", "plain"])
def test_make_a_schedule_change_it_and_delete_it(look: str, window: Open) -> None:
    page = window(look, user="editor")
    page.goto(address("schedule_add"))
    page.fill("[name=name]", f"made-{look}")
    page.fill("[name=task_path]", TASK)
    page.fill("[name=cron]", "every day at six")
    press(page, "^save$")
    assert page.locator("#content .errorlist").count() == 1
    page.fill("[name=cron]", "0 6 * * *")
    press(page, "^save$", "Enter")
    made = Schedule.objects.get(pk=f"made-{look}")
    assert (made.task_path, made.cron) == (TASK, "0 6 * * *")
    page.goto(change(made))
    page.fill("[name=kwargs]", '{"day": 1}')
    press(page, "^save$")
    made.refresh_from_db()
    assert made.kwargs == {"day": 1}
    page.goto(change(made))
    delete(page)
    assert not Schedule.objects.filter(pk=made.pk).exists()
