"""Which runs of a schedule that is due run, computed without a database."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from django_pgqueue.schedules.fire import Due, Plan, plan


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
