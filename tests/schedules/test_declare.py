"""What ``@schedule``, ``PGQUEUE["SCHEDULES"]``, the admin and SQL accept, and what they and the checks say
about the rest. The times of cron expressions and intervals, above all on the days when clocks change.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from django.core.checks import run_checks
from django.core.exceptions import ValidationError
from django.test import override_settings

from django_pgqueue import conf, schedule, task
from django_pgqueue.checks.tasks import check_schedules
from django_pgqueue.compat import InvalidTask
from django_pgqueue.explanation import schedules as words
from django_pgqueue.models import Schedule
from django_pgqueue.schedules import cron as cron_module
from django_pgqueue.schedules.cron import Timing, latest_runs, next_run, next_runs, timing_of
from django_pgqueue.schedules.declare import declared_schedules, schedules_in_settings
from tests.app import limit_tasks, tasks
from tests.support.factories import ScheduleFactory
from tests.support.sessions import Connection
from tests.support.wording import text_of

pytestmark = pytest.mark.usefixtures("registry")

PATH = "tests.app.tasks.mail"


def only() -> Any:
    (declaration,) = declared_schedules().values()
    return declaration


def values(declaration: Any) -> dict[str, Any]:
    names = """
        name task_path source declared_by cron every timezone args kwargs catch_up catch_up_limit overlap
        jitter queue_name priority
    """
    return {name: getattr(declaration, name) for name in names.split()}


ALL: dict[str, Any] = {
    "every": 90, "name": "mail:hourly", "kwargs": {"number": 1}, "catch_up": "all", "catch_up_limit": 5,
    "overlap": "queue", "jitter": 90, "queue_name": "slow", "priority": -3,
}  # fmt: skip


def test_the_decorator_returns_the_task_and_declares_it(wording: Any) -> None:
    assert schedule("*/5 * * * *", timezone="Europe/Paris", args=(1,))(tasks.mail) is tasks.mail
    assert values(only()) == wording
    schedule(every=90, args=[1])(tasks.mail.using())  # its module was imported again
    assert only().every == timedelta(seconds=90)


def test_all_options_in_code_and_in_settings(wording: Any) -> None:
    schedule(**ALL)(tasks.mail)
    in_code = values(only())
    assert in_code == wording
    given = {"task": PATH, **{key: value for key, value in ALL.items() if key != "name"}}
    with override_settings(PGQUEUE={"SCHEDULES": {"night": given}}):
        good, wrong = schedules_in_settings()
    assert not wrong
    settings = {"name": "night", "source": "settings", "declared_by": "tests.settings"}
    assert values(good["night"]) == {**in_code, **settings}


def test_several_schedules_of_a_task_have_names() -> None:
    schedule("0 3 * * *", name="night", args=(1,))(schedule(every=60, name="minute", args=(2,))(tasks.mail))
    assert {name: each.args for name, each in declared_schedules().items()} == {"minute": [2], "night": [1]}


def function() -> None:
    """Not a task."""


def test_what_is_no_declaration_is_refused(wording: Any) -> None:
    bare: Any = schedule
    declare: Any = schedule(every=60, args=[1])
    declare(tasks.mail)
    said = []
    for call in (
        lambda: bare(tasks.mail),
        lambda: bare(tasks.mail.func),
        lambda: declare(function),
        lambda: declare(tasks.mail),
        lambda: schedule(every=60, name=PATH)(tasks.noop),
    ):
        with pytest.raises(InvalidTask) as caught:
            call()
        said.append(str(caught.value).split(" at 0x")[0])
    assert "\n".join(said) == wording
    assert task(function).func is function


BAD: list[dict[str, Any]] = [
    {}, {"cron": "* * * * *", "every": 5}, {"cron": "0 0 30 2 *"}, {"cron": "0 25 * * *"},
    {"cron": "* * * *"},
    {"cron": "* * * * * *"}, {"cron": "@reboot"}, {"cron": "*" * 101}, {"cron": 5},
    *({"cron": "* * * * *", "timezone": zone} for zone in ("Mars", "Europe", "", "../UTC")),
    *({"every": every} for every in (0, timedelta(seconds=-5), timedelta(milliseconds=999))),
    *({"every": every} for every in (1.5, timedelta(days=4000), float("nan"), 1e300, True, "5")),
    *({"every": 60, "jitter": jitter} for jitter in (-1, 61, "1")),
    *({"every": 60, "name": name} for name in ("", "n" * 201, "with space", 5)),
    *({"every": 60, "args": args} for args in ("ab", [object], [1, 2], [])),
    *({"every": 60, "kwargs": kwargs} for kwargs in ([1], {"numbr": 1})),
    *({"every": 60, "catch_up_limit": limit} for limit in (0, 10_001)), {"every": 60, "catch_up": "some"},
    {"every": 60, "overlap": "wait"}, {"every": 60, "queue_name": "a b"}, {"every": 60, "priority": 101},
]  # fmt: skip


def test_what_could_never_work_is_refused_where_it_is_declared(wording: Any) -> None:
    said = []
    for options in BAD:
        with pytest.raises(InvalidTask) as caught:
            schedule(**{"args": [1], **options})(tasks.mail)
        before, is_wrong, text = str(caught.value).partition(f" of {PATH} is wrong: ")
        assert before.startswith("The schedule ")
        assert is_wrong
        said.append(text)
        assert not declared_schedules()
        if "argument" in text or "name" in options:
            continue  # settings do not import the task, and names are keys there
        schedules = {"bad": {"task": PATH, **options}, "good": {"task": PATH, "every": 60}}
        with override_settings(PGQUEUE={"SCHEDULES": schedules}):
            good, wrong = schedules_in_settings()
        assert good.keys() == {"good"}
        assert wrong["bad"] == text
    assert "\n".join(said) == wording


# -- rows


def test_the_admin_refuses_the_same_and_names_the_field(db: None, wording: Any) -> None:
    said = []
    for columns in (
        {"cron": None}, {"every": timedelta(seconds=5)}, {"cron": "0 0 30 2 *"}, {"cron": "x"},
        {"timezone": "Mars"}, {"cron": None, "every": timedelta(milliseconds=5)},
        {"jitter": timedelta(minutes=2)}, {"jitter": timedelta(seconds=-2)}, {"name": "with space"},
        {"name": "n" * 201}, {"task_path": "tests.app.tasks.gone"}, {"task_path": PATH}, {"args": {"a": 1}},
        {"task_path": "tests.app.limit_tasks.sync", "args": [5]}, {"kwargs": [1]}, {"queue_name": "a b"},
        {"priority": 101}, {"catch_up": "some"}, {"overlap": "some"}, {"catch_up_limit": 0},
    ):  # fmt: skip
        row = Schedule(**{"name": "n", "task_path": "tests.app.tasks.noop", "cron": "* * * * *", **columns})
        with pytest.raises(ValidationError) as caught:
            row.full_clean()
        said.append(f"{str(columns)[:80]}: {caught.value.message_dict}")
    assert "\n".join(said) == wording
    row = Schedule(
        name="n", task_path="tests.app.tasks.noop", cron="", every=timedelta(hours=1), queue_name=""
    )
    row.args = []
    row.full_clean()
    assert (row.cron, row.queue_name) == (None, None), "a form has no other word for None"


@pytest.mark.parametrize(
    "columns",
    [
        "every = '5 s'", "cron = NULL", "cron = NULL, every = '0 s'", "jitter = '-1 s'",
        "cron = NULL, every = '5 s', jitter = '6 s'", "catch_up = 'some'", "overlap = 'some'",
        "source = 'some'", "catch_up_limit = 0",
        # Times that nobody could compute with.
        *(f"{column} = 'infinity'" for column in ("next_run_at", "last_run_at", "since")),
    ],
)  # fmt: skip
def test_sql_is_refused_the_same(one: Connection, columns: str) -> None:
    ScheduleFactory.create()
    name = "pgqueue_schedule_times" if "infinity" in columns else "pgqueue_schedule_"
    with pytest.raises(psycopg.IntegrityError, match=name):
        one.execute(f"UPDATE pgqueue_schedule SET {columns}")


# -- the checks


def messages(**schedules: Any) -> str:
    with override_settings(PGQUEUE={"SCHEDULES": schedules}):
        assert not conf.problems()
        return text_of(check_schedules(None))


MAIL = {"task": PATH, "every": 60, "args": [1]}


def test_what_the_checks_say(wording: Any) -> None:
    assert messages() == messages(mail=MAIL) == ""
    wrong: list[dict[str, Any]] = [
        {"every": 0}, {"task": "tests.app.tasks.gone"}, {"task": "os.path.join"}, {"args": []},
        {"task": "tests.app.limit_tasks.sync", "args": [5]},
    ]  # fmt: skip
    said = [messages(mail={**MAIL, **changes}) for changes in wrong]
    schedule(every=60, name="mail", args=[1])(tasks.mail)
    # The decorator cannot know: a callable may need what is not there yet when its module is imported.
    schedule(every=60, name="sync", args=[5])(limit_tasks.sync)
    said.append(messages(mail=MAIL))
    assert "\n".join(said) == wording


def test_e003_the_shape_of_the_setting(wording: Any) -> None:
    said = []
    wrong: list[Any] = [5, {"a": 5}, {5: {}}, {"a": {"cron": "* * * * *"}}]
    for given in wrong:
        with override_settings(PGQUEUE={"SCHEDULES": given}):
            problems = (each for each in run_checks(tags=["pgqueue"]) if each.id == "pgqueue.E003")
            said.append(text_of(problems))
            assert check_schedules(None) == []
    assert "\n".join(said) == wording


def test_e008_code_that_declares_an_invalid_schedule(app: Any) -> None:
    app.deploy("@schedule(cron='0 0 30 2 *')", "@task", "def report(): pass")
    (message,) = (each for each in run_checks(tags=["pgqueue"]) if each.id == "pgqueue.E008")
    assert f"The schedule '{app.module}.report' of {app.module}.report is wrong: " in message.msg


# --- Times of cron expressions, also when clocks change, and their words
# They were worked out by hand, from the rules of Debian's cron.


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


@pytest.mark.parametrize("every", [timedelta(seconds=7), timedelta(minutes=45), timedelta(days=1)])
def test_intervals_are_anchored(every: timedelta) -> None:
    """However late each run is noticed, the next one is where it always was."""
    timing = Timing(None, every, PARIS)
    run = next_run(timing, utc("10-24", "23:59"))
    for late in (timedelta(0), every / 3, every - timedelta(microseconds=1)):
        following = next_run(timing, run + late)
        assert following - run == every
        assert (following - cron_module.EPOCH) % every == timedelta(0)
        run = following


def test_a_day_that_never_comes_is_refused_although_each_field_is_possible() -> None:
    with pytest.raises(ValueError, match="is never due within the next 50 years"):
        next_run(Timing("0 0 */15 * 1#2", None), utc("01-01", "00:00"))


def test_nicknames() -> None:
    new_year = utc("01-02", "00:00")
    for name in cron_module._NICKNAMES:
        assert next_run(timing_of(name.upper(), None), new_year) == next_run(
            timing_of(cron_module.expand(name), None), new_year
        )


@pytest.mark.parametrize(
    "timing",
    [
        *(Timing(cron, None, PARIS) for cron in ("*/7 * * * *", "0 9 * * 1", "15,45 2 * * *")),
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
