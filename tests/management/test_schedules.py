"""``manage.py pgqueue schedules``: the list, one schedule, and the actions."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgqueue.management.subcommands import schedules as schedules_module
from django_pgqueue.models import Job, Schedule, ScheduleRun
from tests.app import limit_tasks, unique_tasks
from tests.support import shown_schedules as schedules

from .test_subcommands import exit_code, run

DECLARED = (limit_tasks, unique_tasks)  # imported, so that their tasks are known

pytestmark = pytest.mark.django_db(databases=["default", "other"])


def test_the_list() -> None:
    nightly = schedules.declare("nightly", priority=5)
    schedules.run(nightly, job_id=123)
    schedules.create("busy", every=timedelta(seconds=30), paused_at=timezone.now(), pause_author="anna")
    lines = run("schedules").splitlines()
    assert lines[0] == '2 schedules in the database "default". Times are in UTC.'
    assert lines[2:9] == [
        "busy: paused (by anna)",
        "  When:        Every 30 seconds",
        "  Next:        -",
        "  Last:        -",
        "  Task:        tests.app.tasks.mail",
        "  Declared in: admin",
        "",
    ]
    assert lines[9:11] == [
        "nightly: active, changed in the admin: priority",
        "  When:        At 03:00 every day (0 3 * * *), UTC",
    ]
    assert lines[11].startswith("  Next:        2100-01-01 03:00:00, in ")
    assert lines[12:] == [
        "  Last:        2026-11-21 03:00:00, enqueued (job 123)",
        "  Task:        tests.app.tasks.mail",
        "  Declared in: code (tests.app.tasks)",
    ]


def test_a_job_by_hand_has_the_language_of_the_project(settings: Any) -> None:
    """The command runs in English, and the language travels with a job if CONTEXT says so."""
    settings.LANGUAGE_CODE, settings.PGQUEUE = "de", {"CONTEXT": ["language"]}
    schedules.create("nightly")
    run("schedules", "enqueue", "nightly")
    assert not (Job.objects.get().metadata or {}).get("context")


def test_the_list_when_there_are_none() -> None:
    assert run("schedules") == 'There are no schedules in the database "default".'
    assert run("schedules", "list", "--json") == "[]"


def test_times_are_in_the_current_time_zone(settings: Any) -> None:
    schedules.create("nightly")
    settings.TIME_ZONE = "Asia/Tokyo"
    printed = run("schedules")
    assert "Times are in Asia/Tokyo." in printed
    assert "2100-01-01 12:00:00" in printed


def test_the_list_reads_with_three_statements_however_many_there_are() -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            run("schedules", "--json")
        return sum('"pgqueue_' in entry["sql"] for entry in captured)

    schedules.run(schedules.create("first"))
    few = statements()
    for number in range(5):
        schedules.run(schedules.create(f"another-{number}"))
    assert statements() == few


def test_json() -> None:
    nightly = schedules.declare("nightly", cron="0 4 * * *")
    schedules.run(nightly, job_id=123)
    [found] = json.loads(run("schedules", "--json"))
    assert found == {
        "name": "nightly",
        "task": "tests.app.tasks.mail",
        "args": [7],
        "kwargs": {},
        "when": "At 04:00 every day",
        "cron": "0 4 * * *",
        "every": None,
        "timezone": "UTC",
        "state": "active",
        "paused_at": None,
        "pause_author": "",
        "pause_reason": "",
        "retired_at": None,
        "next_run_at": found["next_run_at"],
        "problem": "",
        "last_run": {"run_at": "2026-11-21T03:00:00+00:00", "outcome": "enqueued", "job": 123},
        "source": "code",
        "declared_by": "tests.app.tasks",
        "overridden": ["cron"],
    }
    assert datetime.fromisoformat(found["next_run_at"]) > timezone.now()
    for arguments in (["show", "nightly", "--json"], ["--json", "show", "nightly"]):
        assert json.loads(run("schedules", *arguments)) == found


def test_one_schedule_with_its_next_five_runs_in_both_zones() -> None:
    nightly = schedules.create(
        "nightly", timezone="Europe/Paris", next_run_at=datetime(2100, 1, 1, 2, tzinfo=UTC), priority=5
    )
    schedules.run(nightly, "skipped")
    lines = run("schedules", "show", "nightly").splitlines()
    assert "  Task:        tests.app.tasks.mail(7)" in lines
    assert "  Priority:    5" in lines
    assert "  Missed:      run the latest" in lines
    start = lines.index("Next runs:") + 1
    runs = [line.split() for line in lines[start : start + 5]]
    assert [words[0] for words in runs] == [f"2100-01-0{day}" for day in range(1, 6)]
    assert {words[1] for words in runs} == {"02:00:00"}
    assert {tuple(words[-2:]) for words in runs} == {("03:00:00", "Europe/Paris")}
    assert lines[-2:] == [
        "Last runs:",
        "  2026-11-21 03:00:00, skipped, because the previous job was not finished",
    ]


def test_one_schedule_that_is_paused_says_when_it_would_run() -> None:
    schedules.create("nightly", paused_at=timezone.now())
    lines = run("schedules", "show", "nightly").splitlines()
    start = lines.index("Next runs, if it were not paused:") + 1
    assert len(lines[start:]) == 5
    assert all("03:00:00" in line for line in lines[start:])


def test_a_run_that_nobody_notices_is_due() -> None:
    schedules.create("nightly", next_run_at=timezone.now() - timedelta(minutes=5))
    assert ", due for 5 min" in run("schedules")


def test_a_row_with_a_wrong_timing_does_not_hide_the_others() -> None:
    for name in ("broken", "nightly"):
        schedules.create(name, next_run_at=None)
    Schedule.objects.filter(name="broken").update(cron="61 * * * *", next_run_at=None)
    printed = run("schedules")
    assert "nightly: active" in printed
    assert "'61 * * * *' is wrong" in printed
    assert "It cannot run: " in run("schedules", "show", "broken")
    [broken, nightly] = json.loads(run("schedules", "--json"))
    assert (broken["next_run_at"], nightly["problem"]) == (None, "")
    assert "'61 * * * *' is wrong" in broken["problem"]


def test_pause_and_resume() -> None:
    schedules.create("nightly")
    assert (
        run("schedules", "pause", "nightly", "--reason", "inventory", "--author", "anna")
        == "nightly is paused."
    )
    row = Schedule.objects.get()
    assert (row.pause_author, row.pause_reason) == ("anna", "inventory")
    with pytest.raises(CommandError, match=r"nightly was already paused \(by anna: inventory\)\."):
        run("schedules", "pause", "nightly")
    assert "nightly: paused (by anna: inventory)" in run("schedules")
    assert run("schedules", "resume", "nightly").startswith("nightly is resumed. Next run: ")
    assert Schedule.objects.get().is_active
    with pytest.raises(CommandError, match="nightly was not paused"):
        run("schedules", "resume", "nightly")


@pytest.mark.parametrize(("user", "by"), [("anna", "anna"), (KeyError("uid not found"), "")])
def test_who_paused_it_is_the_user_of_the_process(
    user: Any, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def getuser() -> str:
        if isinstance(user, Exception):
            raise user
        return str(user)

    monkeypatch.setattr("getpass.getuser", getuser)
    schedules.create("nightly")
    run("schedules", "pause", "nightly")
    assert Schedule.objects.get().pause_author == by


def test_run_now() -> None:
    schedules.create("nightly")
    printed = run("schedules", "enqueue", "nightly")
    job = Job.objects.get()
    assert printed == f"Job {job.pk} of tests.app.tasks.mail is enqueued in the queue mail."
    assert ScheduleRun.objects.get().outcome == "manual"
    assert "run by hand" in run("schedules")


def test_run_now_says_that_another_job_has_the_unique_key() -> None:
    schedules.create("nightly", task_path="tests.app.unique_tasks.index")
    run("schedules", "enqueue", "nightly")
    printed = run("schedules", "enqueue", "nightly")
    job = Job.objects.get()
    assert printed == f"No job is enqueued: job {job.pk} has the unique key of the schedule."
    Schedule.objects.update(task_path="tests.app.unique_tasks.once", args=["a"])
    run("schedules", "enqueue", "nightly")
    with pytest.raises(CommandError, match="has the unique key of the schedule 'nightly'"):
        run("schedules", "enqueue", "nightly")


def test_a_key_that_cannot_be_computed() -> None:
    schedules.create("nightly", task_path="tests.app.limit_tasks.sync", args=[5])
    assert "It cannot run: The callable for the limit key" in run("schedules", "show", "nightly")
    with pytest.raises(CommandError, match="raised AttributeError"):
        run("schedules", "enqueue", "nightly")


def test_the_other_database() -> None:
    schedules.create("nightly", using="other")
    assert "There are no schedules" in run("schedules")
    assert "nightly: active" in run("schedules", "--database", "other")
    assert run("schedules", "pause", "nightly", "--database", "other") == "nightly is paused."
    assert run("schedules", "resume", "nightly", database="other").startswith("nightly is resumed.")
    run("schedules", "enqueue", "nightly", database="other")
    assert not Job.objects.exists()
    assert Job.objects.using("other").count() == 1
    assert "run by hand" in run("schedules", "show", "nightly", database="other")


@pytest.mark.parametrize("action", ["show", "pause", "resume", "enqueue"])
def test_an_unknown_name(action: str) -> None:
    schedules.create("nightly")
    with pytest.raises(
        CommandError, match=r"no schedule 'nihgtly' in the database 'default'.* 'nightly'"
    ) as raised:
        run("schedules", action, "nihgtly")
    assert raised.value.returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["shwo"],
        ["show"],
        ["list", "nightly"],
        ["enqueue", "nightly", "--reason", "x"],
        ["enqueue", "nightly", "--json"],
    ],
)
def test_wrong_arguments(arguments: list[str]) -> None:
    with pytest.raises(CommandError):
        run("schedules", *arguments)
    assert exit_code("schedules", *arguments) == 2


def test_the_number_of_runs_in_the_help_is_the_number_shown() -> None:
    schedules.create("nightly")
    lines = run("schedules", "show", "nightly").splitlines()
    assert len(lines[lines.index("Next runs:") + 1 :]) == schedules_module.NEXT_RUNS == 5
