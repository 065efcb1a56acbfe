"""What ``@schedule``, ``PGQUEUE["SCHEDULES"]``, the admin and SQL accept, and what they and the checks say
about the rest.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.core.checks import run_checks
from django.core.exceptions import ValidationError
from django.test import override_settings

from django_pgqueue import conf, schedule, task
from django_pgqueue.checks.tasks import check_schedules
from django_pgqueue.compat import InvalidTask
from django_pgqueue.models import Schedule
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


DEFAULTS: dict[str, Any] = {
    "name": PATH, "task_path": PATH, "source": "code", "declared_by": "tests.app.tasks", "cron": None,
    "every": None, "timezone": "UTC", "args": [], "kwargs": {}, "catch_up": "latest", "catch_up_limit": 100,
    "overlap": "allow", "jitter": timedelta(0), "queue_name": None, "priority": None,
}  # fmt: skip
ALL: dict[str, Any] = {
    "every": 90, "name": "mail:hourly", "kwargs": {"number": 1}, "catch_up": "all", "catch_up_limit": 5,
    "overlap": "queue", "jitter": 90, "queue_name": "slow", "priority": -3,
}  # fmt: skip


def test_the_decorator_returns_the_task_and_declares_it() -> None:
    assert schedule("*/5 * * * *", timezone="Europe/Paris", args=(1,))(tasks.mail) is tasks.mail
    assert values(only()) == {
        **DEFAULTS, "cron": "*/5 * * * *", "timezone": "Europe/Paris", "args": [1],
    }  # fmt: skip
    schedule(every=90, args=[1])(tasks.mail.using())  # its module was imported again
    assert only().every == timedelta(seconds=90)


def test_all_options_in_code_and_in_settings() -> None:
    schedule(**ALL)(tasks.mail)
    expected = {
        **DEFAULTS, **ALL, "every": timedelta(seconds=90), "jitter": timedelta(seconds=90),
    }  # fmt: skip
    assert values(only()) == expected
    given = {"task": PATH, **{key: value for key, value in ALL.items() if key != "name"}}
    with override_settings(PGQUEUE={"SCHEDULES": {"night": given}}):
        good, wrong = schedules_in_settings()
    assert not wrong
    settings = {"name": "night", "source": "settings", "declared_by": "tests.settings"}
    assert values(good["night"]) == {**expected, **settings}


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
