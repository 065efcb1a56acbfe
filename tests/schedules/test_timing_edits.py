"""The timing of a schedule is edited while runs are overdue: in code, by ``save()``, in the admin, with SQL.

The runs that the old timing owed until the edit run, as ``catch_up`` says, and after them those of the new
one. The admin's forms and the rounds that fire at the same moment are in ``tests/races``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from django_pgqueue.models import Schedule
from django_pgqueue.schedules.fire import Due, Plan, plan
from tests.admin.helpers import url
from tests.support.jobs import value
from tests.support.schedules import ago, fire, jobs_of, minute, outcomes, overdue, runs_of
from tests.support.sessions import Connection

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
#: It has no run while the test runs.
DECADE = timedelta(days=3660)

Edit = Callable[[Schedule, Connection, Client], object]


def by_save(schedule: Schedule, _one: Connection, _client: Client) -> None:
    schedule.cron, schedule.every = None, DECADE
    schedule.save()


def by_sql(_schedule: Schedule, one: Connection, _client: Client) -> None:
    one.execute("UPDATE pgqueue_schedule SET cron = NULL, every = '3660 days'")


def by_admin(schedule: Schedule, _one: Connection, client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    sent = {
        "task_path": schedule.task_path, "args": "[]", "kwargs": "{}", "queue_name": "", "priority": "",
        "cron": "", "every": "3660 00:00:00", "timezone": "UTC", "jitter": "0", "catch_up": schedule.catch_up,
        "catch_up_limit": str(schedule.catch_up_limit), "overlap": schedule.overlap,
    }  # fmt: skip
    assert client.post(url("change", schedule.pk, model="schedule"), sent).status_code == 302


@pytest.mark.parametrize("edit", [by_save, by_sql, by_admin])
def test_runs_that_the_old_timing_owes_run(one: Connection, client: Client, edit: Edit) -> None:
    """No worker ran for three minutes. How many of them run is in the table of plans."""
    first = minute() - 3 * MINUTE
    schedule = overdue(first, catch_up="all")
    edit(schedule, one, client)
    edited = Schedule.objects.get()
    assert edited.since is not None
    owed = [first + number * MINUTE for number in range(10) if first + number * MINUTE <= edited.since]
    fire(one)
    assert runs_of(schedule) == owed
    assert outcomes(schedule) == ["enqueued"] * len(owed)
    assert len(jobs_of(schedule)) == len(owed)
    after = Schedule.objects.get()
    assert (after.owed, after.last_run_at) == (None, owed[-1])
    assert after.next_run_at is not None
    assert (after.next_run_at - datetime(1970, 1, 1, tzinfo=UTC)) % DECADE == timedelta(0)
    assert fire(one) == 0


def test_runs_of_the_new_timing_run_after_those_of_the_old(one: Connection) -> None:
    """It was every hour until half past two days ago, and every day since."""
    midnight = minute().replace(hour=0, minute=0)
    schedule = overdue(midnight - timedelta(days=2), cron="0 * * * *", catch_up="all", catch_up_limit=1000)
    Schedule.objects.update(cron="0 0 * * *")
    edited = midnight - timedelta(days=2) + timedelta(hours=2, minutes=30)
    move_edit(one, 0, edited)
    fire(one)
    hours = [midnight - timedelta(days=2) + timedelta(hours=number) for number in range(3)]
    assert runs_of(schedule)[:5] == [*hours, midnight - timedelta(days=1), midnight]
    assert len(jobs_of(schedule)) == len(runs_of(schedule)) in (5, 6)  # a day may have begun


def test_edits_in_a_row(one: Connection) -> None:
    """Each timing counts for the time in which it was true, also if one of them comes back."""
    day = minute().replace(hour=0, minute=0) - timedelta(days=3)
    schedule = overdue(day, cron="0 * * * *", catch_up="all", catch_up_limit=1000)
    for timing in ({"cron": "30 * * * *"}, {"cron": "0 * * * *"}, {"cron": None, "every": DECADE}):
        Schedule.objects.update(**timing)
    for place, edited in enumerate((90, 200, 330)):
        move_edit(one, place, day + edited * MINUTE)
    fire(one)
    assert [(run - day) / MINUTE for run in runs_of(schedule)] == [0, 60, 150, 240, 300]


def move_edit(one: Connection, place: int, when: datetime) -> None:
    """Let an edit that has just been made be one of the past."""
    moment = round(when.timestamp() * 1_000_000)
    last = value(one, "SELECT jsonb_array_length(owed) - 1 FROM pgqueue_schedule")
    one.execute(
        "UPDATE pgqueue_schedule SET owed = jsonb_set(owed, %s, to_jsonb(%s::bigint))",
        ([str(place), "until"], moment),
    )
    if place < last:
        one.execute(
            "UPDATE pgqueue_schedule SET owed = jsonb_set(owed, %s, to_jsonb(%s::bigint))",
            ([str(place + 1), "since"], moment),
        )
    else:
        one.execute("UPDATE pgqueue_schedule SET since = %s", (when,))


def test_a_timing_that_no_round_has_seen_owes_its_runs_too(one: Connection) -> None:
    """Its first run passed while no worker ran, so the row has no next run."""
    now = minute()
    schedule = overdue(catch_up="all")
    Schedule.objects.update(next_run_at=None, since=now - 2.5 * MINUTE)
    Schedule.objects.update(cron=None, every=DECADE)
    fire(one)
    assert runs_of(schedule)[:3] == [now - number * MINUTE for number in (2, 1, 0)]


def test_nothing_is_owed_if_no_run_is_due(one: Connection) -> None:
    schedule = overdue(ago(hours=-1))
    Schedule.objects.update(cron="*/2 * * * *")
    schedule.refresh_from_db()
    assert (schedule.owed, schedule.next_run_at) == (None, None)


def test_a_wrong_timing_owes_only_the_run_that_was_due(one: Connection) -> None:
    due = minute() - 3 * MINUTE
    schedule = overdue(due, catch_up="all")
    Schedule.objects.update(timezone="Mars")
    move_edit(one, 0, due + MINUTE / 2)
    Schedule.objects.update(timezone="UTC", cron=None, every=DECADE)
    broken: dict[str, str] = {}
    fire(one, broken)
    assert not broken
    assert runs_of(schedule) == [due]


@pytest.mark.parametrize("is_paused_first", [True, False])
def test_a_pause_owes_nothing(one: Connection, is_paused_first: bool) -> None:
    """Neither if the edit comes before the pause, nor if it comes while the schedule is paused."""
    schedule = overdue(ago(hours=1), catch_up="all")
    if is_paused_first:
        schedule.pause()
    Schedule.objects.update(cron=None, every=DECADE)
    if not is_paused_first:
        schedule.pause()
    schedule.resume()
    assert Schedule.objects.get().owed is None
    fire(one)
    assert not jobs_of(schedule)


def test_saving_a_row_that_was_read_before_the_edit_forgets_nothing(one: Connection) -> None:
    schedule = overdue(minute() - 3 * MINUTE, catch_up="all")
    stale = Schedule.objects.get()
    Schedule.objects.update(cron=None, every=DECADE)
    stale.cron, stale.every, stale.jitter = None, DECADE, timedelta(seconds=1)
    stale.save()
    fire(one)
    assert len(jobs_of(schedule)) >= 4


# -- the plan of a round, computed without a database


def at(clock: str) -> int:
    """Return a time of the day in microseconds."""
    hour, minute = map(int, clock.split(":"))
    return round(datetime(2026, 11, 23, hour, minute, tzinfo=UTC).timestamp() * 1_000_000)


def planned(**columns: Any) -> Plan:
    """Plan a schedule of the page "Run a task on a schedule": no worker has run since 11:55."""
    before = {"cron": "*/10 * * * *", "every": None, "timezone": "UTC", "since": at("08:00")}
    given: dict[str, Any] = {
        "name": "n", "version": "1", "cron": "0 * * * *", "every": None, "timezone": "UTC", "catch_up": "all",
        "catch_up_limit": 100, "next_run_at": at("12:00"), "last_run_at": at("11:50"), "since": at("12:35"),
        "now": at("14:05"), "owed": json.dumps([{**before, "until": at("12:35")}]), "call": None,
    }  # fmt: skip
    return plan(Due(**{**given, **columns}))


def clocks(found: Plan) -> list[str]:
    return [f"{run:%H:%M}" for run in found.runs]


@pytest.mark.parametrize(
    ("columns", "runs"),
    [
        ({}, ["12:00", "12:10", "12:20", "12:30", "13:00", "14:00"]),
        ({"catch_up_limit": 3}, ["12:30", "13:00", "14:00"]),
        ({"catch_up": "latest"}, ["14:00"]),
        # The clock of the server was set back after the edit: what was due by then still runs.
        ({"now": at("12:20")}, ["12:00", "12:10", "12:20", "12:30"]),
        # The next run was not computed yet when the times were edited.
        ({"next_run_at": None}, ["12:00", "12:10", "12:20", "12:30", "13:00", "14:00"]),
        # Somebody has moved the last run by hand.
        ({"last_run_at": at("12:15")}, ["12:20", "12:30", "13:00", "14:00"]),
        ({"owed": None}, ["12:00", "13:00", "14:00"]),
    ],
)
def test_the_runs_of_the_old_and_the_new_times(columns: dict[str, Any], runs: list[str]) -> None:
    found = planned(**columns)
    assert clocks(found) == runs
    assert not found.is_missed


def test_the_next_run_is_one_of_the_new_times() -> None:
    assert f"{planned().next_run_at:%H:%M}" == "15:00"
    assert f"{planned(now=at('12:40')).next_run_at:%H:%M}" == "13:00"


def test_skip_looks_at_the_last_of_all() -> None:
    found = planned(catch_up="skip")
    assert (clocks(found), found.is_missed) == (["14:00"], True)
    found = planned(catch_up="skip", now=at("14:00"))
    assert (clocks(found), found.is_missed) == (["14:00"], False)
