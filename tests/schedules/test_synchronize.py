"""What a worker writes when it starts: schedules come, change, are overridden, go and come back."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_pgqueue import schedule
from django_pgqueue.maintenance.schedules import database_of, synchronize
from django_pgqueue.models import Schedule
from django_pgqueue.worker.supervisor.supervisor import Supervisor
from tests.app import tasks
from tests.support.factories import ScheduleFactory
from tests.support.schedules import ago, fire, jobs_of, minute, runs_of
from tests.support.sessions import Connection

from .conftest import App

pytestmark = pytest.mark.django_db


def start_worker() -> dict[str, Any]:
    """Do what a worker does when it starts. Return the schedules."""
    synchronize("default")
    return {row.name: row for row in Schedule.objects.all()}


def the(app: App) -> Any:
    return Schedule.objects.get(pk=f"{app.module}.report")


def start(app: App, options: str) -> Any:
    """Let a worker start whose code declares this schedule. Return its row."""
    app.schedule(options)
    start_worker()
    return the(app)


# -- come and change


def changed(before: Schedule, after: Schedule) -> dict[str, Any]:
    """Return the columns that differ, except for what changes with each."""
    names = (field.attname for field in Schedule._meta.concrete_fields)
    values = {name: getattr(after, name) for name in names if getattr(before, name) != getattr(after, name)}
    return {name: value for name, value in values.items() if name not in ("updated_at", "declared")}


def test_a_declared_schedule_is_added_and_a_second_start_writes_nothing(app: App) -> None:
    app.schedule("cron='0 3 * * *', timezone='Europe/Paris', kwargs={'day': 1}, jitter=5")
    before = start_worker()
    row = the(app)
    assert (row.task_path, row.cron, row.timezone) == (row.name, "0 3 * * *", "Europe/Paris")
    assert (row.source, row.declared_by, row.overridden, row.kwargs) == ("code", app.module, [], {"day": 1})
    assert (row.declared["cron"], row.declared["jitter"]) == ("0 3 * * *", 5.0)
    assert row.policy["queue_name"] == "reports"
    assert row.since is not None
    assert row.next_run_at is None  # the round computes it
    with CaptureQueriesContext(connection) as queries:
        after = start_worker()
    assert [query["sql"].split()[0] for query in queries] == ["SELECT"] * 3
    assert not any("FOR " in query["sql"] for query in queries), "it locks nothing"
    assert {row.updated_at for row in before.values()} == {row.updated_at for row in after.values()}


def test_a_changed_timing_begins_at_the_moment_of_the_change(app: App, one: Connection) -> None:
    """The runs of the new timing that lie in the past are not caught up."""
    start(app, "every=3600, catch_up='all'")
    fire(one)
    Schedule.objects.update(since=ago(days=2), last_run_at=ago(days=1))
    row = start(app, "every=60, catch_up='all'")
    assert row.next_run_at is None
    assert row.since > ago(seconds=30)
    fire(one)
    assert not jobs_of(row)
    after = the(app)
    assert timedelta(0) <= after.next_run_at - row.since <= timedelta(seconds=61)


def test_a_changed_definition_leaves_the_next_run_alone(app: App, one: Connection) -> None:
    start(app, "every=3600")
    fire(one)
    before = the(app)
    assert before.next_run_at is not None
    app.deploy(
        "@schedule(every=3600, kwargs={'day': 3}, jitter=10, overlap='skip')",
        "@task(queue_name='other', max_attempts=9)",
        "def report(day=0): pass",
    )
    start_worker()
    found = changed(before, the(app))
    policy = found.pop("policy")
    assert found == {"kwargs": {"day": 3}, "jitter": timedelta(seconds=10), "overlap": "skip"}
    assert (policy["queue_name"], policy["max_attempts"]) == ("other", 9)


def test_all_runs_that_are_owed_at_the_change_are_fired_once(app: App, one: Connection) -> None:
    """No worker ran for three minutes; the one that starts now has new code."""
    start(app, "every=60, catch_up='all'")
    owed = [minute() - timedelta(minutes=number) for number in (3, 2, 1, 0)]
    Schedule.objects.update(next_run_at=owed[0], since=ago(days=1))
    start(app, "cron='0 5 * * *', catch_up='all'")
    fire(one)
    row = the(app)
    assert runs_of(row)[:4] == owed
    assert row.next_run_at.hour == 5
    fire(one)
    assert len(jobs_of(row)) == len(runs_of(row))


@pytest.mark.parametrize("broken", [{"queue_name": "a b"}, {"timezone": "Mars"}])
def test_a_broken_row_does_not_stop_a_worker_whose_code_changes_it(app: App, broken: dict[str, str]) -> None:
    start(app, "every=60")
    Schedule.objects.update(**broken)
    Schedule.objects.update(next_run_at=ago(minutes=3))
    row = start(app, "cron='0 5 * * *'")
    assert (row.cron, row.timezone, row.queue_name) == ("0 5 * * *", "UTC", None)


def test_the_policy_of_a_schedule_from_the_admin_is_kept_up_to_date(registry: None) -> None:
    row: Any = ScheduleFactory.create(task_path="tests.app.tasks.mail", args=[1])
    Schedule.objects.update(policy=None)
    start_worker()
    row.refresh_from_db()
    assert row.policy["queue_name"] == "mail"
    assert row.source == "admin"


# -- overrides


def test_what_the_admin_overrides_stays(app: App) -> None:
    row = start(app, "cron='0 3 * * *', kwargs={'day': 1}")
    row.cron = "0 4 * * *"
    row.save()
    assert row.overridden == ["cron", "every"]
    row = start(app, "every=60, kwargs={'day': 2}")
    assert (row.cron, row.every, row.kwargs) == ("0 4 * * *", None, {"day": 2})
    assert (row.declared["cron"], row.declared["every"]) == (None, 60.0)
    # Back to what the code declares.
    row.cron, row.every = None, timedelta(seconds=60)
    row.save()
    assert row.overridden == []


def test_old_and_new_code_at_the_same_time_keep_the_override(app: App) -> None:
    """A rolling deployment: workers start with old and with new code, in any order."""
    old, new = "cron='0 3 * * *'", "cron='0 5 * * *', kwargs={'day': 2}"
    row = start(app, old)
    row.queue_name = "slow"
    row.save()
    for code in (new, old, new):
        row = start(app, code)
    assert (row.cron, row.kwargs, row.queue_name) == ("0 5 * * *", {"day": 2}, "slow")
    assert row.overridden == ["queue_name"]


def test_a_schedule_of_the_admin_that_code_declares_keeps_its_values_as_overrides(app: App) -> None:
    row = ScheduleFactory.create(
        name=f"{app.module}.report", task_path=f"{app.module}.report", cron="0 4 * * *"
    )
    start(app, "cron='0 3 * * *'")
    row.refresh_from_db()
    assert (row.source, row.cron, row.overridden) == ("code", "0 4 * * *", ["cron", "every"])


# -- go and come back


def test_a_removed_schedule_is_retired_and_comes_back(app: App, one: Connection) -> None:
    start(app, "every=60")
    app.deploy("@task", "def report(day=0): pass")
    start_worker()
    row = the(app)
    assert row.retired_at is not None
    Schedule.objects.update(next_run_at=ago(minutes=5))
    assert fire(one) == 0
    row = start(app, "every=60")
    assert row.retired_at is None
    fire(one)
    assert not jobs_of(row)  # nothing is caught up


def test_only_code_that_is_known_to_declare_a_schedule_no_more_retires_it(app: App) -> None:
    start(app, "every=60")
    for broken in ("import no_such_module_at_all", "1 / 0"):
        app.deploy(broken)
        start_worker()
        assert the(app).retired_at is None
    app.remove()
    start_worker()
    assert the(app).retired_at is not None


def test_a_project_without_the_app_retires_nothing(registry: None) -> None:
    """Another project uses the same database."""
    for source, module in (("code", "their.app.tasks"), ("settings", "their.settings")):
        ScheduleFactory.create(name=source, source=source, declared_by=module, declared={})
    ScheduleFactory.create(name="by hand")
    assert [row.retired_at for row in start_worker().values()] == [None] * 3


def test_a_module_of_an_app_that_nothing_else_imports_is_asked(app: App) -> None:
    """The row names a module that is not called ``tasks``; only its own import shows what it declares."""
    app.in_module("reports").schedule("every=60, name='kept'")
    for name in ("kept", "gone"):
        ScheduleFactory.create(name=name, source="code", declared_by=f"{app.name}.reports", declared={})
    rows = start_worker()
    assert rows["kept"].retired_at is None
    assert (rows["kept"].declared or {})["every"] == 60.0
    assert rows["gone"].retired_at is not None


def test_a_schedule_that_another_module_declares_moves_with_a_warning(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"{app.module}.report"
    ScheduleFactory.create(name=name, source="code", declared_by="their.app.tasks", declared={})
    app.schedule("every=60")
    with caplog.at_level(logging.WARNING):
        start_worker()
    assert f"is now declared by {app.module}, no longer by their.app.tasks" in caplog.text
    assert the(app).declared_by == app.module


# -- settings


NIGHT = {"task": "tests.app.tasks.mail", "cron": "0 3 * * *", "args": [1]}


def test_settings_come_change_and_go(registry: None, settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    def started(**schedules: Any) -> Any:
        settings.PGQUEUE = {"SCHEDULES": schedules}
        return start_worker()["night"]

    row = started(night=NIGHT)
    assert (row.source, row.declared_by, row.args) == ("settings", "tests.settings", [1])
    assert started(night={**NIGHT, "args": [2]}).args == [2]
    row = started(night={**NIGHT, "cron": "x"})
    assert (row.cron, row.retired_at) == ("0 3 * * *", None)
    assert "the schedule 'night' in PGQUEUE is left as it is: " in caplog.text
    assert started().retired_at is not None
    assert started(night=NIGHT).retired_at is None


def test_a_schedule_that_moves_from_settings_to_code_keeps_its_runs(
    app: App, settings: Any, one: Connection
) -> None:
    settings.PGQUEUE = {"SCHEDULES": {"night": {"task": f"{app.module}.report", "every": 3600}}}
    app.deploy("@task(queue_name='reports')", "def report(day=0): pass")
    start_worker()
    fire(one)
    before = Schedule.objects.get()
    assert before.next_run_at is not None
    settings.PGQUEUE = {}
    app.schedule("every=3600, name='night'")
    start_worker()
    assert changed(before, Schedule.objects.get()) == {"source": "code", "declared_by": app.module}


# -- databases and the command


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.promise("schedule-database")
def test_a_schedule_lives_in_the_database_of_its_task(registry: None) -> None:
    schedule(every=60, args=[1])(tasks.elsewhere)
    schedule(every=60, args=[1])(tasks.mail)
    assert (database_of(tasks.elsewhere), database_of(tasks.mail)) == ("other", "default")
    synchronize("default")
    synchronize("other")
    assert [row.name for row in Schedule.objects.using("default")] == ["tests.app.tasks.mail"]
    assert [row.name for row in Schedule.objects.using("other")] == ["tests.app.tasks.elsewhere"]


@pytest.mark.django_db(transaction=True)
def test_the_command_writes_the_schedules_before_it_starts(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.schedule("every=60")
    monkeypatch.setattr(Supervisor, "run", lambda self, check: check() or 0)
    call_command("runqueueworker", verbosity=0, skip_checks=True)
    assert the(app).source == "code"
