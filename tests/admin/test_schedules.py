"""The list and the page of schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgqueue.models import Schedule
from tests.support import shown_schedules as schedules
from tests.support.factories import JobFactory, WorkerFactory

from .helpers import body, staff, url

pytestmark = pytest.mark.django_db


def page_of(client: Client, name: str) -> str:
    return body(client, url("change", name, model="schedule"))


def listing(client: Client, **query: Any) -> str:
    return body(client, url("changelist", model="schedule"), **query)


def listed(client: Client, **query: Any) -> list[str]:
    response = client.get(url("changelist", model="schedule"), query)
    assert response.status_code == 200
    return [schedule.pk for schedule in response.context["cl"].result_list]


def test_the_list_says_what_runs_when_and_what_came_of_it(root: Client) -> None:
    nightly = schedules.declare("nightly", priority=5)
    schedules.run(nightly, "skipped")
    schedules.create("busy", every=timedelta(seconds=30))
    page = listing(root)
    for text in (
        "At 03:00 every day",
        "0 3 * * *, UTC",
        "tests.<wbr>app.<wbr>tasks.<wbr>mail(7)",
        "2026-11-21 03:00:00</time>",
        "skipped, because the previous job was not finished",
        "code (tests.<wbr>app.<wbr>tasks)",
        "changed here: priority",
        "Every 30 seconds",
        "2100-01-01 03:00:00</time>",
    ):
        assert text in page, text
    assert "2 schedules" in page


def test_the_next_runs_without_time_zones(root: Client, settings: Any) -> None:
    """All times are naive then, in the zone of the settings."""
    schedules.create("nightly")
    with_zones = [text for text in page_of(root, "nightly").split("</time>") if "2100-" in text]
    settings.USE_TZ = False
    page = page_of(root, "nightly")
    assert "2100-01-01 03:00:00</time>" in page
    assert len([text for text in page.split("</time>") if "2100-" in text]) >= len(with_zones) > 0
    assert "cannot" not in listing(root)


def test_a_name_that_is_the_path_of_the_task_is_not_repeated(root: Client) -> None:
    for path, args in (("tests.app.tasks.mail", [7]), ("tests.app.tasks.noop", [])):
        schedules.create(path, task_path=path, args=args)
    page = listing(root)
    assert 'mail<span class="pgqueue-more">(7)</span>' in page
    assert "tasks.<wbr>noop</a>" in page


def test_the_states_in_the_list(root: Client) -> None:
    now = timezone.now()
    schedules.create("on")
    schedules.create("off", paused_at=now, pause_author="anna", pause_reason="the bank is closed")
    schedules.create("gone", source="settings", declared={}, retired_at=now)
    page = listing(root)
    for state in ("active", "paused", "retired"):
        assert page.count(f'class="pgqueue-status pgqueue-{state}"') == 1
    assert "by anna: the bank is closed" in page
    assert "The settings no longer declare it." in page


def test_filters_and_search(root: Client) -> None:
    now = timezone.now()
    schedules.create("on")
    schedules.create("off", paused_at=now)
    schedules.create("gone", source="settings", retired_at=now, paused_at=now)
    schedules.declare("changed", priority=5)
    assert listed(root) == ["changed", "gone", "off", "on"]
    assert listed(root, state="active") == ["changed", "on"]
    assert listed(root, state="paused") == ["off"]
    assert listed(root, state="retired") == ["gone"]
    assert listed(root, state="nonsense") == ["changed", "gone", "off", "on"]
    assert listed(root, overridden="yes") == ["changed"]
    assert listed(root, overridden="no") == ["gone", "off", "on"]
    assert listed(root, source="code") == ["changed"]
    assert listed(root, q="tasks.mail") == ["changed", "gone", "off", "on"]
    assert listed(root, q="OFF") == ["off"]


def test_the_number_of_statements_does_not_depend_on_the_number_of_schedules(root: Client) -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            listed(root)
        return sum("pgqueue_" in entry["sql"] for entry in captured)

    schedules.run(schedules.create("first"))
    few = statements()
    for number in range(10):
        schedules.run(schedules.create(f"more-{number}"))
    assert statements() == few


def test_a_schedule_that_no_worker_runs_is_marked(root: Client) -> None:
    schedules.create("nightly", next_run_at=timezone.now() - timedelta(minutes=5))
    for page in (listing(root), page_of(root, "nightly")):
        assert "Schedules stand still, because no worker is running." in page
        assert "due for 5 min" in page
        assert "pgqueue-alarm" in page
    WorkerFactory.create()
    assert "stand still" not in listing(root)
    Schedule.objects.update(paused_at=timezone.now())
    assert "due for" not in listing(root)


def test_nothing_stands_still_without_an_active_schedule(root: Client) -> None:
    schedules.create("nightly", paused_at=timezone.now())
    assert "stand still" not in listing(root)
    assert "stand still" not in page_of(root, "nightly")


def test_the_page_shows_the_next_five_runs_in_both_zones(root: Client, settings: Any) -> None:
    schedules.create("nightly", timezone="America/New_York", next_run_at=datetime(2100, 1, 1, 8, tzinfo=UTC))
    settings.TIME_ZONE = "Europe/Paris"
    runs = page_of(root, "nightly").split('id="pgqueue-runs"')[1].split("</table>")[0]
    assert '<th scope="col"><span data-pgqueue-zone-name>Europe/Paris</span></th>' in runs
    assert '<th scope="col">America/New_York</th>' in runs
    for day in range(1, 6):
        assert f"2100-01-0{day} 09:00:00</time>" in runs
        assert f">2100-01-0{day} 03:00:00</time></td>" in runs
    assert "hidden" not in runs
    settings.TIME_ZONE = "America/New_York"
    runs = page_of(root, "nightly").split('id="pgqueue-runs"')[1].split("</table>")[0]
    assert runs.count("hidden data-pgqueue-elsewhere>") == 1 + 5, "one column is enough in this zone"


def test_the_page_of_a_paused_schedule(root: Client) -> None:
    schedules.create("nightly", paused_at=timezone.now(), pause_author="anna", pause_reason="<b>closed</b>")
    page = page_of(root, "nightly")
    assert "Next runs, if it were active" in page
    assert "by anna: &lt;b&gt;closed&lt;/b&gt;" in page
    assert "It has not been due yet." in page


def test_the_runs_link_to_their_jobs_for_those_who_may_see_them(root: Client) -> None:
    nightly = schedules.create("nightly")
    job = JobFactory.create(failed=True)
    schedules.run(nightly, job_id=job.pk)
    schedules.run(nightly, "manual", at=schedules.PAST + timedelta(hours=1), job_id=job.pk + 1)
    schedules.run(nightly, "missed", at=schedules.PAST + timedelta(hours=2))
    runs = page_of(root, "nightly").split('id="pgqueue-last-runs"')[1].split("</table>")[0]
    assert runs.index("missed") < runs.index("run by hand") < runs.index("enqueued")
    assert f'href="{url("change", job.pk)}"' in runs
    assert "pgqueue-failed" in runs
    assert runs.count("no longer kept") == 1
    assert f"<td>{job.pk + 1}</td>" in runs
    viewer = page_of(staff("view_schedule"), "nightly")
    assert f"<td>{job.pk}</td>" in viewer
    assert "/job/" not in viewer
    assert "pgqueue-failed" not in viewer


def test_a_row_with_a_wrong_timing_has_a_page(root: Client) -> None:
    schedules.create("broken")
    Schedule.objects.update(cron="61 * * * *")
    Schedule.objects.update(next_run_at=None)
    for page in (listing(root), page_of(root, "broken")):
        assert "The cron expression &#x27;61 * * * *&#x27; is wrong" in page


def given(**changes: Any) -> dict[str, Any]:
    """Return what the form sends."""
    return {
        "name": "nightly",
        "task_path": "tests.app.tasks.mail",
        "args": "[7]",
        "kwargs": "{}",
        "queue_name": "",
        "priority": "",
        "cron": "0 3 * * *",
        "every": "",
        "timezone": "Europe/Paris",
        "jitter": "00:00:00",
        "catch_up": "latest",
        "catch_up_limit": "100",
        "overlap": "allow",
        **changes,
    }


def test_a_schedule_is_made_edited_and_deleted(root: Client) -> None:
    assert 'list="pgqueue-zones"' in body(root, url("add", model="schedule"))
    assert root.post(url("add", model="schedule"), given(kwargs="", jitter="00:10:00")).status_code == 302
    schedule = Schedule.objects.get()
    assert (schedule.source, schedule.args, schedule.kwargs, schedule.declared) == ("admin", [7], {}, None)
    assert schedule.jitter == timedelta(minutes=10)
    changed = given(name="renamed", cron="", every="00:00:30", timezone="UTC")
    assert root.post(url("change", "nightly", model="schedule"), changed).status_code == 302
    schedule.refresh_from_db()
    assert (schedule.pk, schedule.cron, schedule.every) == ("nightly", None, timedelta(seconds=30))
    schedules.run(schedule)
    page = body(root, url("delete", "nightly", model="schedule"))
    assert "Are you sure" in page
    assert root.post(url("delete", "nightly", model="schedule"), {"post": "yes"}).status_code == 302
    assert not Schedule.objects.exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "a b"}, "Use only letters"),
        ({"name": "taken"}, "A schedule with this name already exists."),
        ({"task_path": "tests.app.tasks.gone"}, "tests.app.tasks.gone"),
        ({"args": "[1, 2]"}, "mail"),
        ({"args": "{}"}, "Enter a JSON list."),
        ({"args": "[1"}, "Enter a valid JSON."),
        ({"cron": "0 0 30 2 *"}, "0 0 30 2 *"),
        ({"cron": "61 * * * *"}, "61 * * * *"),
        ({"cron": ""}, "Neither is set."),
        ({"every": "00:00:30"}, "Both are set"),
        ({"cron": "", "every": "00:00:00"}, "from 1 second"),
        ({"timezone": "Europe/Pariss"}, "There is no time zone &#x27;Europe/Pariss&#x27;"),
        ({"jitter": "-1"}, "jitter must not be negative"),
        ({"priority": "101"}, "less than or equal to 100"),
        ({"queue_name": "a b"}, "a b"),
    ],
)
def test_a_schedule_that_cannot_be(root: Client, changes: dict[str, str], said: str) -> None:
    schedules.create("taken")
    response = root.post(url("add", model="schedule"), given(**changes))
    assert response.status_code == 200
    errors = response.content.decode()
    assert said in errors
    assert errors.count('class="errorlist') == 1, "one problem has one message"
    assert Schedule.objects.count() == 1


def test_editing_what_code_declares_overrides_it_and_says_so(root: Client) -> None:
    schedules.declare("nightly")
    sent = given(cron="30 4 * * *", timezone="UTC")
    assert root.post(url("change", "nightly", model="schedule"), sent).status_code == 302
    schedule = Schedule.objects.get()
    assert schedule.overridden == ["cron", "every"]
    page = page_of(root, "nightly")
    changes = page.split('id="pgqueue-overridden"')[1].split("</table>")[0]
    assert "Cron expression" in changes
    assert changes.index("30 4 * * *") < changes.index("0 3 * * *")
    assert "Interval" not in changes
    assert "Declared: 0 3 * * *. " in page
    assert page.count("Declared: ") == 1


def test_only_schedules_of_the_admin_and_retired_ones_can_be_deleted(root: Client) -> None:
    schedules.create("own")
    schedules.declare("declared")
    schedules.create("gone", source="code", retired_at=timezone.now())
    for name, may in (("own", True), ("declared", False), ("gone", True)):
        assert ("deletelink" in page_of(root, name)) is may
        assert (root.get(url("delete", name, model="schedule")).status_code == 200) is may
    names = ["own", "declared", "gone"]
    data = {"action": "delete_selected", "_selected_action": names, "index": 0, "post": "yes"}
    refused = root.post(url("changelist", model="schedule"), data)
    assert refused.status_code == 403
    data.pop("post")
    assert (
        "“declared”, which is declared in code"
        in root.post(url("changelist", model="schedule"), data).content.decode()
    )
    data |= {"_selected_action": ["own", "gone"], "post": "yes"}
    assert root.post(url("changelist", model="schedule"), data).status_code == 302
    assert Schedule.objects.get().pk == "declared"


def test_the_page_before_a_deletion_does_not_list_the_runs(root: Client) -> None:
    own = schedules.create("own")
    for number in range(3):
        schedules.run(own, at=schedules.PAST + timedelta(hours=number))
    with CaptureQueriesContext(connection) as captured:
        page = body(root, url("delete", "own", model="schedule"))
    assert "2026-11-21" not in page
    assert not any(
        "pgqueue_schedule_run" in entry["sql"] and "last_key" not in entry["sql"] for entry in captured
    )


def test_who_may_only_look_sees_no_form_and_no_buttons() -> None:
    schedules.declare("nightly", priority=5)
    viewer = staff("view_schedule")
    page = page_of(viewer, "nightly")
    assert "_save" not in page
    assert "pgqueue-tool" not in page
    assert "At 03:00 every day" in page
    assert viewer.get(url("add", model="schedule")).status_code == 403
    assert staff("view_job").get(url("changelist", model="schedule")).status_code == 403


def test_the_buttons_come_before_the_summary_and_errors_hide_it(root: Client) -> None:
    schedules.create("nightly")
    page = page_of(root, "nightly")
    assert page.index("pgqueue-tool") < page.index("pgqueue-summary") < page.index("What runs")
    response = root.post(url("change", "nightly", model="schedule"), given(cron="61 * * * *"))
    assert "pgqueue-summary" not in response.content.decode(), "it would push the error out of sight"
