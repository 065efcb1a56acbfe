"""The times of cron expressions and intervals, above all on the days when clocks change, and their words.

The expected times were worked out by hand, from the rules of Debian's cron.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from django_pgqueue.explanation import schedules as words
from django_pgqueue.models import Schedule
from django_pgqueue.schedules import cron as cron_module
from django_pgqueue.schedules.cron import Timing, latest_runs, next_run, next_runs, timing_of, zone

PARIS, SYDNEY = "Europe/Paris", "Australia/Sydney"


def utc(day: str, clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-{day}T{clock}+00:00")


# Paris: on 29 March 2026 02:00 becomes 03:00 at 01:00 UTC; on 25 October 03:00 becomes 02:00 at 01:00 UTC.
# Sydney: on 4 October 2026 02:00 becomes 03:00 at 16:00 UTC of the 3rd; on 5 April 03:00 becomes 02:00 at
# 16:00 UTC of the 4th.
CHANGES = """
in the gap                  | 30 2 * * *     | Paris  | 03-27 12:00 | 28.01:30 29.01:00 30.00:30
gap */20                    | */20 * * * *   | Paris  | 03-29 00:30 | 29.00:40 29.01:00 29.01:20
gap hourly                  | 0 * * * *      | Paris  | 03-28 23:30 | 29.00:00 29.01:00 29.02:00
after it                    | 0 5 * * *      | Paris  | 03-27 12:00 | 28.04:00 29.03:00 30.03:00
gap, no time twice          | 0,30 2,3 * * * | Paris  | 03-29 00:30 | 29.01:00 29.01:30 30.00:00
doubled hour                | 30 2 * * *     | Paris  | 10-24 12:00 | 25.00:30 26.01:30 27.01:30
doubled */20                | */20 * * * *   | Paris  | 10-24 23:50 | 25.00:00 25.00:20 25.00:40 25.01:00
doubled hourly              | 0 * * * *      | Paris  | 10-24 22:30 | 24.23:00 25.00:00 25.01:00 25.02:00
start in the first of them  | 30 2 * * *     | Paris  | 10-25 00:45 | 26.01:30 27.01:30
start in the second of them | 30 2 * * *     | Paris  | 10-25 01:15 | 26.01:30 27.01:30
cronsim goes back           | 15 1,2,3 * * * | Paris  | 10-25 01:01 | 25.02:15 26.00:15 26.01:15
southern gap                | 30 2 * * *     | Sydney | 10-02 12:00 | 02.16:30 03.16:00 04.15:30
southern doubled hour       | 30 2 * * *     | Sydney | 04-03 12:00 | 03.15:30 04.15:30 05.16:30
southern gap */20           | */20 * * * *   | Sydney | 10-03 15:30 | 03.15:40 03.16:00 03.16:20
southern hourly             | 0 * * * *      | Sydney | 04-04 14:30 | 04.15:00 04.16:00 04.17:00
southern start in the second| 30 2 * * *     | Sydney | 04-04 16:15 | 05.16:30
"""


@pytest.mark.parametrize("row", CHANGES.strip().splitlines(), ids=lambda row: row.split("|")[0].strip())
@pytest.mark.promise("schedule-clocks-change")
def test_clocks_change(row: str) -> None:
    _, cron, city, after, expected = (cell.strip() for cell in row.split("|"))
    timing = Timing(cron, None, {"Paris": PARIS, "Sydney": SYDNEY}[city])
    runs = next_runs(timing, len(expected.split()), utc(*after.split()))
    assert " ".join(f"{run:%d.%H:%M}" for run in runs) == expected


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
        assert (following - cron_module.EPOCH) % every == timedelta(0)
        run = following


def test_intervals_do_not_know_summer_time() -> None:
    runs = next_runs(Timing(None, timedelta(hours=1), PARIS), 6, utc("10-24", "22:30"))
    assert [f"{run:%H}" for run in runs] == ["23", "00", "01", "02", "03", "04"]


def test_a_day_that_never_comes_is_refused_although_each_field_is_possible() -> None:
    with pytest.raises(ValueError, match="is never due within the next 50 years"):
        next_run(Timing("0 0 */15 * 1#2", None), utc("01-01", "00:00"))


def test_nicknames() -> None:
    new_year = utc("01-02", "00:00")
    for name in cron_module._NICKNAMES:
        assert next_run(timing_of(name.upper(), None), new_year) == next_run(
            timing_of(cron_module.expand(name), None), new_year
        )


def test_the_zone_utc_is_the_one_that_cronsim_knows() -> None:
    assert zone("UTC") is UTC
    assert zone("Europe/Paris") == ZoneInfo("Europe/Paris")


@pytest.mark.parametrize(
    "timing",
    [
        Timing("*/7 * * * *", None, PARIS),
        Timing("0 9 * * 1", None, PARIS),
        Timing("15,45 2 * * *", None, PARIS),
        Timing(None, timedelta(minutes=13)),
    ],
)
@pytest.mark.parametrize(
    "end",
    [("10-25", "12:00"), ("10-25", "00:50"), ("10-25", "01:20"), ("03-29", "00:59"), ("03-29", "01:00")],
    ids=["noon", "at the first 2:50", "at the second 2:20", "before the gap", "after the gap"],
)
def test_latest_runs_are_the_last_of_all(timing: Timing, end: tuple[str, str]) -> None:
    until = utc(*end)
    for back in (timedelta(0), timedelta(minutes=5), timedelta(hours=30), timedelta(days=60)):
        every = all_between(timing, until - back, until)
        for limit in (1, 3, 100):
            assert latest_runs(timing, until - back, until, limit) == every[-limit:]


def all_between(timing: Timing, after: datetime, until: datetime) -> Sequence[datetime]:
    return list(takewhile(lambda run: run <= until, cron_module._runs(timing, after)))


def test_latest_runs_after_a_year_read_only_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    runs = cron_module._runs

    def counted(*given: Any, **options: Any) -> Any:
        nonlocal read
        for run in runs(*given, **options):
            read += 1
            yield run

    monkeypatch.setattr(cron_module, "_runs", counted)
    until = utc("10-25", "12:00")
    assert len(latest_runs(Timing("* * * * *", None), until - timedelta(days=365), until, 100)) == 100
    assert read == 100


def test_the_start_may_be_in_any_zone() -> None:
    timing = Timing("0 3 * * *", None, PARIS)
    start = utc("06-01", "00:30")
    assert next_runs(timing, 2, start.astimezone(ZoneInfo(SYDNEY))) == next_runs(timing, 2, start)


WORDS = """
* * * * *       | Every minute
*/1 * * * *     | Every minute
*/5 * * * *     | Every 5 minutes
*/7 * * * *     | Every seventh minute of every hour
0 * * * *       | Every hour, at minute 0
@hourly         | Every hour, at minute 0
0 */2 * * *     | Every 2 hours
0  */5 * * *    | At minute 0 past every fifth hour
0 3 * * *       | At 03:00 every day
@daily          | At 00:00 every day
30 8 * * MON-FRI| At 08:30 on Monday through Friday
0 0 21 * *      | At 00:00 on the 21st day of every month
0 0 1,22,13 * * | At 00:00 on the first, the 22nd, and the 13th day of month
0 0 L * *       | At 00:00 on the last day of every month
every day       | every day
*/0 * * * *     | */0 * * * *
1               | Every second
30              | Every 30 seconds
60              | Every minute
90              | Every 1 minute 30 seconds
3600            | Every hour
129600          | Every 1 day 12 hours
86400           | Every day
604800          | Every 7 days
"""


@pytest.mark.parametrize("row", WORDS.strip().splitlines())
def test_a_timing_in_words(row: str) -> None:
    given, text = (cell.strip() for cell in row.split("|"))
    row_of = Schedule(every=timedelta(seconds=int(given))) if given.isdigit() else Schedule(cron=given)
    assert words.timing(row_of) == text
