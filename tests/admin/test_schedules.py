"""Schedules: their list and page, the form, and what the buttons and actions do."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin import site
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgqueue.admin.schedules.admin import ACTIONS
from django_pgqueue.models import Job, Schedule, ScheduleRun
from tests.app import limit_tasks, unique_tasks
from tests.support import schedules
from tests.support.factories import JobFactory, WorkerFactory
from tests.support.wording import of_forms

from .helpers import Page, body, listed, post, press, seen, staff, url, words

pytestmark = pytest.mark.django_db

LIST = "/admin/django_pgqueue/schedule/"
CLOSED = {"pause_author": "anna", "pause_reason": "the <b>bank</b> is closed"}


def address(name: str = "nightly", page: str = "change") -> str:
    return url(page, quote(name), model="schedule")


def test_the_list(root: Client, wording: Any) -> None:
    """Schedules in each state. A name that is the path of its task is not repeated."""
    now = timezone.now()
    WorkerFactory.create()
    schedules.run(schedules.declare("nightly", priority=5), "skipped")
    schedules.create("busy", every=timedelta(seconds=30))
    schedules.create("tests.app.tasks.mail")
    schedules.create("tests.app.tasks.noop", task_path="tests.app.tasks.noop", args=[])
    schedules.create("off", paused_at=now, **CLOSED)
    schedules.create("gone", source="settings", retired_at=now)
    schedules.create("late", next_run_at=now - timedelta(minutes=5))
    schedules.create("keyless", task_path=limit_tasks.sync.module_path, args=[5])
    schedules.create("wrong")
    Schedule.objects.filter(pk="wrong").update(cron="61 * * * *", next_run_at=None)
    page = body(root, LIST)
    assert words(page, "result_list") == wording
    reasons = ("The cron expression '61 * * * *' is wrong", "limit key of tests.app.limit_tasks.sync raised")
    for name, reason in zip(("wrong", "keyless"), reasons, strict=True):
        assert reason in unescape(page)
        assert reason in seen(root, address(name))


def nightly(**columns: Any) -> None:
    """With runs of jobs that are there, and that are not."""
    made = schedules.create("nightly", **columns)
    JobFactory.create(pk=11, failed=True)
    schedules.run(made, job_id=11)
    schedules.run(made, "manual", at=schedules.PAST + timedelta(hours=1), job_id=12)
    schedules.run(made, "missed", at=schedules.PAST + timedelta(hours=2))


@of_forms
@pytest.mark.parametrize("situation", ["active", "paused", "overridden", "of a viewer"])
def test_the_page(situation: str, root: Client, settings: Any, wording: Any) -> None:
    """The next runs are in the zone of the settings and in that of the schedule."""
    settings.TIME_ZONE = "Europe/Paris"
    client = root
    if situation == "paused":
        schedules.create("nightly", paused_at=timezone.now(), **CLOSED)
    elif situation == "overridden":
        schedules.declare("nightly", cron=None, every=timedelta(hours=1), jitter=timedelta(minutes=5))
    else:
        nightly(timezone="America/New_York", next_run_at=datetime(2100, 1, 1, 8, tzinfo=UTC))
        client = root if situation == "active" else staff("view_schedule")
    facts, head, form = seen(client, address()).partition("What runs")
    if situation != "active":  # the form is the same
        form = "".join(f"\n{line}" for line in form.splitlines() if "Declared: " in line)
    assert facts + head + form == wording


def test_one_column_of_times_is_enough_in_the_same_zone(root: Client, settings: Any) -> None:
    schedules.create("nightly", timezone="America/New_York")
    settings.TIME_ZONE = "America/New_York"
    assert body(root, address()).count("hidden data-pgqueue-elsewhere>") == 1 + 5


def test_without_time_zones_times_are_those_of_the_settings(root: Client, settings: Any) -> None:
    schedules.create("nightly")
    before = seen(root, address())
    settings.USE_TZ = False
    assert "2100-01-01 03:00:00" in before
    assert seen(root, address()).count("2100-") == before.count("2100-")
    assert "cannot" not in seen(root, LIST)


FILTERS: list[tuple[dict[str, str], str]] = [
    ({}, "changed gone off on"), ({"state": "active"}, "changed on"), ({"state": "paused"}, "off"),
    ({"state": "retired"}, "gone"), ({"overridden": "yes"}, "changed"), ({"source": "code"}, "changed"),
    ({"overridden": "no"}, "gone off on"), ({"q": "OFF"}, "off"),
    ({"q": "tasks.mail"}, "changed gone off on"),
]  # fmt: skip


def test_filters_and_search(root: Client) -> None:
    now = timezone.now()
    schedules.create("on")
    schedules.create("off", paused_at=now)
    schedules.create("gone", source="settings", retired_at=now, paused_at=now)
    schedules.declare("changed", priority=5)
    assert [(query, " ".join(listed(root, LIST, **query))) for query, _names in FILTERS] == FILTERS


def test_schedules_stand_still_without_a_worker(root: Client) -> None:
    words = "Schedules stand still, because no worker is running."
    schedules.create("nightly", next_run_at=timezone.now() - timedelta(minutes=5))
    for page in (LIST, address()):
        assert words in seen(root, page)
    WorkerFactory.create()
    assert words not in seen(root, LIST)
    Schedule.objects.update(paused_at=timezone.now())
    for page in (LIST, address()):
        assert words not in seen(root, page)
    assert "due for" not in seen(root, LIST)


def given(**changes: Any) -> dict[str, Any]:
    """Return what the form sends."""
    return {
        "name": "nightly", "task_path": "tests.app.tasks.mail", "args": "[7]", "kwargs": "{}",
        "queue_name": "", "priority": "", "cron": "0 3 * * *", "every": "", "timezone": "Europe/Paris",
        "jitter": "00:00:00", "catch_up": "latest", "catch_up_limit": "100", "overlap": "allow", **changes,
    }  # fmt: skip


def test_a_schedule_is_made_edited_and_deleted(root: Client) -> None:
    assert root.post(f"{LIST}add/", given(kwargs="", jitter="00:10:00")).status_code == 302
    schedule = Schedule.objects.get()
    assert (schedule.source, schedule.args, schedule.kwargs, schedule.declared) == ("admin", [7], {}, None)
    assert schedule.jitter == timedelta(minutes=10)
    changed = given(name="renamed", cron="", every="00:00:30", timezone="UTC")
    assert root.post(address(), changed).status_code == 302
    schedule.refresh_from_db()
    assert (schedule.pk, schedule.cron, schedule.every) == ("nightly", None, timedelta(seconds=30))
    for number in range(3):
        schedules.run(schedule, at=schedules.PAST + timedelta(hours=number))
    with CaptureQueriesContext(connection) as captured:
        page = seen(root, address(page="delete"))
    assert "2026-11-21" not in page, "its runs are not listed"
    read = [each["sql"] for each in captured if "pgqueue_schedule_run" in each["sql"]]
    assert [sql for sql in read if "last_key" not in sql] == []
    assert root.post(address(page="delete"), {"post": "yes"}).status_code == 302
    assert not Schedule.objects.exists()


MISTAKES: dict[str, dict[str, str]] = {
    "odd name": {"name": "a b"}, "taken name": {"name": "taken"},
    "no such task": {"task_path": "tests.app.tasks.gone"}, "arguments of another task": {"args": "[1, 2]"},
    "no list": {"args": "{}"}, "no JSON": {"args": "[1"}, "never": {"cron": "0 0 30 2 *"},
    "no cron": {"cron": "61 * * * *"}, "no time": {"cron": ""}, "two times": {"every": "00:00:30"},
    "too often": {"cron": "", "every": "00:00:00"}, "no time zone": {"timezone": "Europe/Pariss"},
    "negative jitter": {"jitter": "-1"}, "priority": {"priority": "101"}, "odd queue": {"queue_name": "a b"},
}  # fmt: skip


def test_a_schedule_that_cannot_be(root: Client, wording: Any) -> None:
    schedules.create("taken")
    said = {}
    form: Any = site.get_model_admin(Schedule).get_form(root.get(f"{LIST}add/").wsgi_request)
    for mistake, changes in MISTAKES.items():
        [errors] = form(given(**changes)).errors.values()  # one problem, one message
        said[mistake] = words(str(errors))
    assert said == wording
    assert Schedule.objects.count() == 1
    answer = root.post(f"{LIST}add/", given(priority="101")).content.decode()
    [errors] = re.findall(r'<ul class="errorlist.*?</ul>', answer, re.DOTALL)
    assert words(errors) == said["priority"]
    answer = root.post(address("taken"), given(cron="61 * * * *")).content.decode()
    assert "pgqueue-summary" not in answer, "it would push the error out of sight"


def test_editing_what_code_declares_overrides_it(root: Client) -> None:
    schedules.declare("nightly")
    assert root.post(address(), given(cron="30 4 * * *", timezone="UTC")).status_code == 302
    assert Schedule.objects.get().overridden == ["cron", "every"]


def test_only_schedules_of_the_admin_and_retired_ones_can_be_deleted(root: Client) -> None:
    schedules.create("own")
    schedules.declare("declared")
    schedules.create("gone", source="code", retired_at=timezone.now())
    for name, may in (("own", True), ("declared", False), ("gone", True)):
        assert ("deletelink" in body(root, address(name))) is may
        assert (root.get(address(name, "delete")).status_code == 200) is may
    data = {"action": "delete_selected", "_selected_action": ["own", "declared", "gone"], "index": 0}
    assert root.post(LIST, {**data, "post": "yes"}).status_code == 403
    assert "“declared”, which is declared in code" in root.post(LIST, data).content.decode()
    data |= {"_selected_action": ["own", "gone"], "post": "yes"}
    assert root.post(LIST, data).status_code == 302
    assert Schedule.objects.get().pk == "declared"


def ask(client: Client, action: str, *names: str, query: str = "") -> Page:
    """Press a button, or run an action of the list, and return the page that asks for confirmation."""
    chosen: dict[str, Any] = {"action": f"{action}_schedules", "_selected_action": names, "index": 0}
    data = chosen if len(names) > 1 else {}
    return press(client, (LIST if data else address(names[0], action)) + query, **data)


BUTTONS = {
    "pause": lambda: schedules.create("nightly"),
    "resume": lambda: schedules.create("nightly", every=timedelta(minutes=10), paused_at=timezone.now()),
    "enqueue": lambda: schedules.create("nightly", paused_at=timezone.now()),
    "restore": lambda: schedules.declare("nightly", cron=None, every=timedelta(hours=1), priority=5),
}


@pytest.mark.parametrize("action", BUTTONS)
def test_a_button(action: str, root: Client, wording: Any) -> None:
    """What it says would happen and has happened."""
    BUTTONS[action]()
    before: Any = Schedule.objects.values().get()
    page = ask(root, action, "nightly")
    assert Schedule.objects.values().get() == before, "nothing has changed yet"
    message, level = post(root, page.address, **page.fields, reason=" closed ")
    assert level == "success"
    schedule = Schedule.objects.get()
    columns = ("cron", "every", "jitter", "priority", "pause_author", "pause_reason", "overridden")
    after = {name: getattr(schedule, name) for name in columns if getattr(schedule, name) != before[name]}
    entry = LogEntry.objects.get().get_change_message()
    assert [words(page.html), message, str(after), entry] == wording
    ran = ScheduleRun.objects.filter(outcome="manual").count()
    assert [job.args for job in Job.objects.all()] == ran * [[7]] == (action == "enqueue") * [[7]]
    assert schedule.is_active is (action in {"resume", "restore"})


def test_run_now_says_that_another_job_has_the_unique_key(root: Client) -> None:
    schedules.create("nightly", task_path=unique_tasks.index.module_path)
    no = "No job is enqueued: the schedule is retired, or another job has its unique key."
    for task, args in ((unique_tasks.index, [7]), (unique_tasks.once, ["a"])):
        Schedule.objects.update(task_path=task.module_path, args=args)
        assert ask(root, "enqueue", "nightly").confirm(root) == ("1 job is enqueued.", "success")
        assert ask(root, "enqueue", "nightly").confirm(root) == (no, "warning")
    assert Job.objects.count() == 2
    assert body(root, address()).count("skipped, because another job had its unique key") == 2


def test_actions_that_do_not_fit(root: Client, wording: Any) -> None:
    """And a schedule that cannot run, since its limit has no key."""
    schedules.create("b")
    schedules.create("a", paused_at=timezone.now())
    schedules.create("c", source="code", retired_at=timezone.now())
    schedules.create("keyless", task_path=limit_tasks.sync.module_path, args=[5])
    page = ask(root, "pause", "a", "b", "c", query="?q=tasks")
    nothing = [ask(root, *pressed) for pressed in (("resume", "b"), ("restore", "b"), ("enqueue", "keyless"))]
    assert [words(each.html) for each in (page, *nothing)] == wording
    assert not any(each.offers_to_act for each in nothing)
    assert root.post(page.address, page.fields)["Location"] == f"{LIST}?q=tasks"
    assert {name for name in "abc" if not Schedule.objects.get(pk=name).is_active} == {"a", "b", "c"}


def test_a_button_leads_back_to_the_page_with_its_filters(root: Client) -> None:
    schedules.create("nightly_1")
    query = "?_changelist_filters=q%3Dn"
    page = ask(root, "pause", "nightly_1", query=query)
    assert f'action="{page.address}"' in body(root, address("nightly_1") + query)
    target = address("nightly_1") + query
    assert f'href="{target}"' in page.content
    assert root.post(page.address, page.fields)["Location"] == target


@pytest.mark.parametrize("column", ["paused_at", "retired_at"])
def test_what_changed_after_the_page_was_shown_is_left_alone(root: Client, column: str) -> None:
    schedules.create("nightly", source="code")
    page = ask(root, "pause" if column == "paused_at" else "enqueue", "nightly")
    Schedule.objects.update(**{column: timezone.now()}, pause_author="anna")
    message, level = page.confirm(root)
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

    monkeypatch.setitem(ACTIONS, "pause", replace(ACTIONS["pause"], run=pause_late))
    assert ask(root, "pause", "nightly", "other").confirm(root) == ("1 schedule is paused.", "success")
