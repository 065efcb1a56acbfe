"""The times of cron expressions and intervals, above all on the days when clocks change.

The expected times were worked out by hand, from the rules of Debian's cron.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from django_pgqueue.schedules import cron as cron_module
from django_pgqueue.schedules.cron import (
    EPOCH,
    Timing,
    check_jitter,
    expand,
    latest_runs,
    next_run,
    next_runs,
    timing_of,
    zone,
)

PARIS, SYDNEY = "Europe/Paris", "Australia/Sydney"


def utc(day: str, clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-{day}T{clock}+00:00")


def times(cron: str, zone_name: str, after: datetime, count: int) -> str:
    """Return the next runs as clock times in UTC."""
    runs = next_runs(Timing(cron, None, zone_name), count, after)
    return " ".join(f"{run:%d.%H:%M}" for run in runs)


# Paris: on 29 March 2026 02:00 becomes 03:00 at 01:00 UTC; on 25 October 03:00 becomes 02:00 at 01:00 UTC.
# Sydney: on 4 October 2026 02:00 becomes 03:00 at 16:00 UTC of the 3rd; on 5 April 03:00 becomes 02:00 at
# 16:00 UTC of the 4th.
@pytest.mark.parametrize(
    ("cron", "zone_name", "after", "expected"),
    [
        pytest.param(
            "30 2 * * *", PARIS, utc("03-27", "12:00"), "28.01:30 29.01:00 30.00:30", id="in the gap"
        ),
        pytest.param(
            "*/20 * * * *", PARIS, utc("03-29", "00:30"), "29.00:40 29.01:00 29.01:20", id="gap */20"
        ),
        pytest.param(
            "0 * * * *", PARIS, utc("03-28", "23:30"), "29.00:00 29.01:00 29.02:00", id="gap hourly"
        ),
        pytest.param("0 5 * * *", PARIS, utc("03-27", "12:00"), "28.04:00 29.03:00 30.03:00", id="after it"),
        pytest.param(
            "0,30 2,3 * * *",
            PARIS,
            utc("03-29", "00:30"),
            "29.01:00 29.01:30 30.00:00",
            id="gap, no time twice",
        ),
        pytest.param(
            "30 2 * * *", PARIS, utc("10-24", "12:00"), "25.00:30 26.01:30 27.01:30", id="doubled hour"
        ),
        pytest.param(
            "*/20 * * * *",
            PARIS,
            utc("10-24", "23:50"),
            "25.00:00 25.00:20 25.00:40 25.01:00 25.01:20 25.01:40 25.02:00",
            id="doubled */20",
        ),
        pytest.param(
            "0 * * * *",
            PARIS,
            utc("10-24", "22:30"),
            "24.23:00 25.00:00 25.01:00 25.02:00",
            id="doubled hourly",
        ),
        pytest.param(
            "30 2 * * *",
            PARIS,
            utc("10-25", "00:45"),
            "26.01:30 27.01:30",
            id="start in the first of the hours",
        ),
        pytest.param(
            "30 2 * * *",
            PARIS,
            utc("10-25", "01:15"),
            "26.01:30 27.01:30",
            id="start in the second of the hours",
        ),
        pytest.param(
            "15 1,2,3 * * *",
            PARIS,
            utc("10-25", "01:01"),
            "25.02:15 26.00:15 26.01:15",
            id="cronsim goes back",
        ),
        pytest.param(
            "30 2 * * *", SYDNEY, utc("10-02", "12:00"), "02.16:30 03.16:00 04.15:30", id="southern gap"
        ),
        pytest.param(
            "30 2 * * *",
            SYDNEY,
            utc("04-03", "12:00"),
            "03.15:30 04.15:30 05.16:30",
            id="southern doubled hour",
        ),
        pytest.param(
            "*/20 * * * *",
            SYDNEY,
            utc("10-03", "15:30"),
            "03.15:40 03.16:00 03.16:20",
            id="southern gap */20",
        ),
        pytest.param(
            "0 * * * *", SYDNEY, utc("04-04", "14:30"), "04.15:00 04.16:00 04.17:00", id="southern hourly"
        ),
        pytest.param(
            "30 2 * * *", SYDNEY, utc("04-04", "16:15"), "05.16:30", id="southern start in the second"
        ),
    ],
)
@pytest.mark.promise("schedule-clocks-change")
def test_clocks_change(cron: str, zone_name: str, after: datetime, expected: str) -> None:
    assert times(cron, zone_name, after, len(expected.split())) == expected


@pytest.mark.parametrize("zone_name", [PARIS, SYDNEY, "Australia/Lord_Howe", "America/St_Johns"])
@pytest.mark.parametrize("cron", ["30 2 * * *", "*/20 * * * *", "15 1,2,3 * * *", "0 2 * * 0", "7 * * * *"])
def test_a_start_at_any_moment_finds_the_same_runs(cron: str, zone_name: str) -> None:
    """A round that computes the next run anew loses none and repeats none, wherever it begins."""
    timing = Timing(cron, None, zone_name)
    for day in (utc("03-28", "10:00"), utc("04-04", "05:00"), utc("10-03", "05:00"), utc("10-24", "10:00")):
        whole = [run for run in next_runs(timing, 120, day) if run < day + timedelta(days=1)]
        assert sorted(set(whole)) == whole
        for minutes in range(0, 24 * 60, 11):
            start = day + timedelta(minutes=minutes, seconds=30)
            following = [run for run in whole if run > start]
            if following:
                assert next_run(timing, start) == following[0]


def test_an_expression_that_follows_the_time_names_every_hour_once() -> None:
    runs = next_runs(Timing("15 * * * *", None, PARIS), 24, utc("10-24", "16:00"))
    assert {later - earlier for earlier, later in pairwise(runs)} == {timedelta(hours=1)}


@pytest.mark.parametrize("every", [timedelta(seconds=7), timedelta(minutes=45), timedelta(days=1)])
def test_intervals_are_anchored(every: timedelta) -> None:
    """However late each run is noticed, the next one is where it always was."""
    timing = Timing(None, every)
    run = next_run(timing, utc("10-24", "23:59"))
    for late in (timedelta(0), every / 3, every - timedelta(microseconds=1)):
        following = next_run(timing, run + late)
        assert following - run == every
        assert (following - EPOCH) % every == timedelta(0)
        run = following


def test_intervals_do_not_know_summer_time() -> None:
    runs = next_runs(Timing(None, timedelta(hours=1), PARIS), 6, utc("10-24", "22:30"))
    assert [f"{run:%H}" for run in runs] == ["23", "00", "01", "02", "03", "04"]


@pytest.mark.parametrize(
    ("cron", "every", "zone_name", "words"),
    [
        (None, None, "UTC", "either cron or every. Neither is set"),
        ("* * * * *", 5, "UTC", "either cron or every. Both are set"),
        ("0 0 30 2 *", None, "UTC", "'0 0 30 2 *' is wrong, or names a day that does not exist"),
        ("0 25 * * *", None, "UTC", "Bad hour"),
        ("* * * *", None, "UTC", "does not have five fields"),
        ("* * * * * *", None, "UTC", "For seconds, use every"),
        ("@reboot", None, "UTC", "does not have five fields"),
        ("*" * 101, None, "UTC", "at most 100 characters"),
        (5, None, "UTC", "at most 100 characters"),
        ("* * * * *", None, "Europe/Pari", "There is no time zone 'Europe/Pari'"),
        ("* * * * *", None, "Europe", "There is no time zone 'Europe'"),
        ("* * * * *", None, "", "There is no time zone ''"),
        ("* * * * *", None, "../UTC", "There is no time zone '../UTC'"),
        (None, 0, "UTC", "from 1 second to 3660 days. It is datetime.timedelta(0)"),
        (None, timedelta(seconds=-5), "UTC", "from 1 second"),
        (None, timedelta(milliseconds=999), "UTC", "from 1 second"),
        (None, timedelta(seconds=1.5), "UTC", "whole seconds"),
        (None, timedelta(days=4000), "UTC", "from 1 second"),
        (None, float("nan"), "UTC", "It is nan"),
        (None, 1e300, "UTC", "from 1 second"),
        (None, True, "UTC", "It is True"),
        (None, "5", "UTC", "It is '5'"),
    ],
)
def test_what_could_never_be_due_is_refused(cron: Any, every: Any, zone_name: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        timing_of(cron, every, zone_name)


def test_a_day_that_never_comes_is_refused_although_each_field_is_possible() -> None:
    with pytest.raises(ValueError, match="is never due within the next 50 years"):
        next_run(Timing("0 0 */15 * 1#2", None), utc("01-01", "00:00"))


@pytest.mark.parametrize("name", cron_module._NICKNAMES)
def test_nicknames(name: str) -> None:
    assert next_run(timing_of(name.upper(), None), utc("01-02", "00:00")) == next_run(
        timing_of(expand(name), None), utc("01-02", "00:00")
    )


def test_the_zone_utc_is_the_one_that_cronsim_knows() -> None:
    assert zone("UTC") is UTC
    assert zone("Europe/Paris") == ZoneInfo("Europe/Paris")


@pytest.mark.parametrize(
    "timing",
    [
        Timing("*/7 * * * *", None, PARIS),
        Timing("0 9 * * 1", None, PARIS),
        Timing(None, timedelta(minutes=13)),
    ],
)
@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize(
    "back", [timedelta(0), timedelta(minutes=5), timedelta(hours=30), timedelta(days=60)]
)
def test_latest_runs_are_the_last_of_all(timing: Timing, limit: int, back: timedelta) -> None:
    until = utc("10-25", "12:00")
    after = until - back
    assert latest_runs(timing, after, until, limit) == all_between(timing, after, until)[-limit:]


def all_between(timing: Timing, after: datetime, until: datetime) -> Sequence[datetime]:
    return list(takewhile(lambda run: run <= until, cron_module._runs(timing, after)))


def test_latest_runs_after_a_year_read_only_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    runs = cron_module._runs

    def counted(timing: Timing, after: datetime) -> Any:
        nonlocal read
        for run in runs(timing, after):
            read += 1
            yield run

    monkeypatch.setattr(cron_module, "_runs", counted)
    until = utc("10-25", "12:00")
    assert len(latest_runs(Timing("* * * * *", None), until - timedelta(days=365), until, 100)) == 100
    assert read < 500


def test_jitter() -> None:
    hourly = Timing("0 * * * *", None)
    check_jitter(hourly, timedelta(hours=1))
    with pytest.raises(ValueError, match=r"must not be longer than the time between two runs \(1:00:00\)"):
        check_jitter(hourly, timedelta(hours=1, seconds=1))
    with pytest.raises(ValueError, match="must not be negative"):
        check_jitter(hourly, timedelta(seconds=-1))


def test_the_start_may_be_in_any_zone() -> None:
    timing = Timing("0 3 * * *", None, PARIS)
    start = utc("06-01", "00:30")
    assert next_runs(timing, 2, start.astimezone(ZoneInfo(SYDNEY))) == next_runs(timing, 2, start)
