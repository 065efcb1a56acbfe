"""Pause, resume, run now, and back to what is declared: the buttons, the actions of the list, permissions."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from django_pgqueue.admin.schedules.admin import ACTIONS
from django_pgqueue.models import Job, Schedule, ScheduleRun
from tests.app import limit_tasks, unique_tasks
from tests.support import shown_schedules as schedules

from .helpers import Page, body, post, staff, url

pytestmark = pytest.mark.django_db

ALLOWED = {
    "pause": "pause_schedule",
    "resume": "pause_schedule",
    "enqueue": "enqueue_schedule",
    "restore": "change_schedule",
}


def ask(client: Client, action: str, name: str, query: str = "") -> Page:
    """Press a button, and return the page that asks for confirmation."""
    return asked(client, url(action, quote(name), model="schedule") + query)


def ask_many(client: Client, action: str, *names: str, query: str = "") -> Page:
    """Run an action of the list, and return the page that asks for confirmation."""
    address = url("changelist", model="schedule") + query
    return asked(client, address, {"action": action, "_selected_action": names, "index": 0})


def asked(client: Client, address: str, data: dict[str, Any] | None = None) -> Page:
    response = client.post(address, data)
    assert response.status_code == 200
    return Page(address, response.content.decode())


def effects(page: Page) -> list[str]:
    """Return the sentences that say what would happen."""
    found = re.findall(r"<li[^>]*><strong>([^<]*)</strong>([^<]*)</li>", page.content)
    return [html.unescape(name + text) for name, text in found]


def confirm(client: Client, page: Page, **more: str) -> tuple[str, str]:
    """Press the button of the page that asks."""
    assert page.offers_to_act
    return post(client, page.address, **page.fields, **more)


def test_pause_and_resume(root: Client) -> None:
    schedules.create("nightly", every=timedelta(minutes=10))
    page = ask(root, "pause", "nightly")
    assert effects(page) == ["nightly would not run until it is resumed."]
    assert Schedule.objects.get().is_active, "nothing has changed yet"
    assert confirm(root, page, reason=" the bank is closed ") == ("1 schedule is paused.", "success")
    schedule = Schedule.objects.get()
    assert (schedule.pause_author, schedule.pause_reason) == ("root", "the bank is closed")
    history = body(root, url("history", "nightly", model="schedule"))
    assert "Action: Pause. Reason: the bank is closed" in history
    page = ask(root, "resume", "nightly")
    [effect] = effects(page)
    assert re.fullmatch(
        r"nightly would run next in \d+ (s|min)\. What it has missed since the pause would not run\.", effect
    )
    assert 'name="reason"' not in page.content
    assert confirm(root, page) == ("1 schedule is resumed.", "success")
    assert Schedule.objects.get().is_active


def test_run_now(root: Client) -> None:
    schedules.create("nightly", paused_at=timezone.now())
    page = ask(root, "enqueue", "nightly")
    call = "tests.app.tasks.mail(7)"
    assert effects(page) == [f"nightly would enqueue one job now, although it is paused: {call}"]
    assert confirm(root, page) == ("1 job is enqueued.", "success")
    assert Job.objects.get().args == [7]
    assert ScheduleRun.objects.get().outcome == "manual"
    assert "run by hand" in body(root, url("change", "nightly", model="schedule"))


def test_run_now_says_that_another_job_has_the_unique_key(root: Client) -> None:
    schedules.create("nightly", task_path=unique_tasks.index.module_path)
    assert confirm(root, ask(root, "enqueue", "nightly")) == ("1 job is enqueued.", "success")
    no = "No job is enqueued: the schedule is retired, or another job has its unique key."
    assert confirm(root, ask(root, "enqueue", "nightly")) == (no, "warning")
    Schedule.objects.update(task_path=unique_tasks.once.module_path, args=["a"])
    assert confirm(root, ask(root, "enqueue", "nightly")) == ("1 job is enqueued.", "success")
    assert confirm(root, ask(root, "enqueue", "nightly")) == (no, "warning")
    assert Job.objects.count() == 2
    page = body(root, url("change", "nightly", model="schedule"))
    assert page.count("skipped, because another job had its unique key") == 2


def test_a_schedule_without_a_key_says_why_it_cannot_run(root: Client) -> None:
    schedules.create("nightly", task_path=limit_tasks.sync.module_path, args=[5])
    why = "The callable for the limit key of tests.app.limit_tasks.sync raised AttributeError"
    [effect] = effects(ask(root, "enqueue", "nightly"))
    assert effect.startswith(f"nightly cannot run: {why}")
    for page in (url("changelist", model="schedule"), url("change", "nightly", model="schedule")):
        assert why in html.unescape(body(root, page))
    Schedule.objects.update(args=["acme.eu"])
    assert why not in body(root, url("change", "nightly", model="schedule"))


def test_back_to_what_is_declared(root: Client) -> None:
    schedules.declare("nightly", cron=None, every=timedelta(hours=1), jitter=timedelta(minutes=5))
    page = ask(root, "restore", "nightly")
    [effect] = effects(page)
    assert effect == (
        "nightly would be as declared again: cron expression: 0 3 * * * instead of empty; "
        "interval: empty instead of 1:00:00; jitter: 0:00:00 instead of 0:05:00."
    )
    assert confirm(root, page) == ("1 schedule is as declared again.", "success")
    schedule = Schedule.objects.get()
    assert (schedule.cron, schedule.every, schedule.jitter) == ("0 3 * * *", None, timedelta(0))
    assert schedule.overridden == []


def test_the_actions_of_the_list(root: Client) -> None:
    schedules.create("b")
    schedules.create("a", paused_at=timezone.now())
    schedules.create("c", source="code", retired_at=timezone.now())
    schedules.create("d")
    page = ask_many(root, "pause_schedules", "a", "b", "c", query="?q=tasks")
    assert "3 schedules are selected." in page.content
    assert effects(page) == [
        "a is already paused.",
        "b would not run until it is resumed.",
        "c is retired and does not run.",
    ]
    response = root.post(page.address, page.fields)
    assert response["Location"] == url("changelist", model="schedule") + "?q=tasks"
    assert {name for name in "abcd" if not Schedule.objects.get(pk=name).is_active} == {"a", "b", "c"}


def test_a_list_of_schedules_that_the_action_does_not_fit(root: Client) -> None:
    schedules.create("nightly")
    page = ask(root, "resume", "nightly")
    assert effects(page) == ["nightly is not paused."]
    assert "Nothing would change." in page.content
    assert not page.offers_to_act
    page = ask(root, "restore", "nightly")
    assert effects(page) == ["nightly does not differ from what is declared."]


def test_the_button_leads_back_to_the_page_with_its_filters(root: Client) -> None:
    schedules.create("nightly_1")
    query = "?_changelist_filters=q%3Dn"
    shown = body(root, url("change", "nightly_5F1", model="schedule") + query)
    page = ask(root, "pause", "nightly_1", query)
    assert f'action="{page.address}"' in shown
    target = url("change", "nightly_5F1", model="schedule") + query
    assert f'href="{target}"' in page.content
    assert root.post(page.address, page.fields)["Location"] == target


@pytest.mark.parametrize("column", ["paused_at", "retired_at"])
def test_what_changed_after_the_page_was_shown_is_left_alone(root: Client, column: str) -> None:
    schedules.create("nightly", source="code")
    page = ask(root, "pause" if column == "paused_at" else "enqueue", "nightly")
    Schedule.objects.update(**{column: timezone.now()}, pause_author="anna")
    message, level = confirm(root, page)
    assert (message.startswith(("No schedule changed.", "No job is enqueued: ")), level) == (True, "warning")
    assert not Job.objects.exists()
    assert Schedule.objects.get().pause_author == "anna"
    assert not LogEntry.objects.exists()


def test_a_schedule_that_is_gone_in_the_meantime(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    schedules.create("nightly")
    schedules.create("other")

    def pause_late(schedule: Schedule, author: str, reason: str) -> bool:
        Schedule.objects.filter(pk="other").delete()
        return schedule.pause(author=author)

    action = ACTIONS["pause"]
    monkeypatch.setitem(ACTIONS, "pause", action._replace(run=pause_late))
    page = ask_many(root, "pause_schedules", "nightly", "other")
    assert confirm(root, page) == ("1 schedule is paused.", "success")


@pytest.mark.parametrize("action", ALLOWED)
def test_each_action_has_its_permission(action: str) -> None:
    paused = timezone.now() if action == "resume" else None
    schedule = schedules.declare("nightly", priority=5)
    Schedule.objects.update(paused_at=paused)
    client = staff("view_schedule", ALLOWED[action])
    page = body(client, url("change", schedule.pk, model="schedule"))
    for other in ALLOWED:
        may = ALLOWED[other] == ALLOWED[action]
        fits = other != ("pause" if paused else "resume")
        assert (f'action="{url(other, "nightly", model="schedule")}"' in page) is (may and fits)
        response = client.post(url(other, "nightly", model="schedule"))
        assert response.status_code == (200 if may else 403)
    assert confirm(client, ask(client, action, "nightly"))[1] == "success"
    listing = body(client, url("changelist", model="schedule"))
    assert ('value="enqueue_schedules"' in listing) is (action == "enqueue")
    assert ('value="pause_schedules"' in listing) is (action in {"pause", "resume"})


def test_who_may_not_look_may_do_nothing() -> None:
    schedules.create("nightly")
    client = staff("pause_schedule", "enqueue_schedule")
    address = url("pause", "nightly", model="schedule")
    assert client.post(address, {"confirmed": "1"}).status_code == 403
    assert Schedule.objects.get().is_active


def test_actions_need_post_and_a_token() -> None:
    schedules.create("nightly")
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("root"))
    address, data = url("enqueue", "nightly", model="schedule"), {"confirmed": "1"}
    assert client.get(address).status_code == 405
    assert client.post(address, data).status_code == 403
    page = body(client, url("change", "nightly", model="schedule"))
    data["csrfmiddlewaretoken"] = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page)[0]
    assert not Job.objects.exists()
    assert client.post(address, data).status_code == 302
    assert Job.objects.count() == 1


@pytest.mark.django_db(databases=["default", "other"])
@pytest.mark.urls("tests.admin.sites")
def test_another_site_on_another_database(root: Client) -> None:
    schedules.create("same")
    schedules.create("same", using="other", source="code")
    schedules.create(
        "there",
        using="other",
        source="code",
        declared={"priority": None},
        overridden=["priority"],
        priority=3,
    )
    base = "/ops/django_pgqueue/schedule/"
    assert [row.pk for row in root.get(base).context["cl"].result_list] == ["same", "there"]
    page = body(root, f"{base}there/change/")
    assert 'href="/admin/' not in page
    for name in ("pause", "enqueue", "restore"):
        assert f'action="{base}there/{name}/"' in page
        assert 'href="/admin/' not in root.post(f"{base}there/{name}/").content.decode()
        post(root, f"{base}there/{name}/", confirmed="1")
    there = Schedule.objects.using("other").get(pk="there")
    assert (there.pause_author, there.priority) == ("root", None)
    assert Job.objects.using("other").count() == 1
    assert not Job.objects.exists()
    assert "/ops/django_pgqueue/job/" in body(root, f"{base}there/change/")
    assert root.post(f"{base}same/delete/", {"post": "yes"}).status_code == 403
    Schedule.objects.using("other").update(retired_at=timezone.now())
    schedules.run(Schedule.objects.using("other").get(pk="same"))
    assert root.post(f"{base}same/delete/", {"post": "yes"}).status_code == 302
    assert not Schedule.objects.using("other").filter(pk="same").exists()
    assert Schedule.objects.get(pk="same").is_active


@pytest.mark.django_db(databases=["default", "other"])
@pytest.mark.urls("tests.admin.sites")
def test_a_form_of_another_database(root: Client) -> None:
    schedules.create("here")
    given: dict[str, Any] = {
        "name": "here", "task_path": "tests.app.tasks.noop", "args": "", "kwargs": "", "every": "60",
        "timezone": "UTC", "jitter": "0", "catch_up": "all", "catch_up_limit": "5", "overlap": "skip",
    }  # fmt: skip
    base = "/ops/django_pgqueue/schedule/"
    assert root.post(f"{base}add/", given).status_code == 302
    again = root.post(f"{base}add/", given).content.decode()
    assert "A schedule with this name already exists." in again
    assert root.post(f"{base}here/change/", {**given, "every": "90"}).status_code == 302
    assert Schedule.objects.using("other").get().every == timedelta(seconds=90)
    assert Schedule.objects.get().every is None
