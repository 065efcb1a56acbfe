"""What ``@schedule`` and ``PGQUEUE["SCHEDULES"]`` accept, and what they say about the rest."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_pgqueue import schedule, task
from django_pgqueue.compat import InvalidTask
from django_pgqueue.schedules.declare import declared_schedules, schedules_in_settings
from tests.app import tasks

pytestmark = pytest.mark.usefixtures("registry")

PATH = "tests.app.tasks.mail"


def only() -> Any:
    (declaration,) = declared_schedules().values()
    return declaration


def test_the_decorator_returns_the_task_and_declares_it() -> None:
    assert schedule(cron="*/5 * * * *", timezone="Europe/Paris", args=[1])(tasks.mail) is tasks.mail
    declaration = only()
    assert (declaration.name, declaration.task_path) == (PATH, PATH)
    assert (declaration.source, declaration.declared_by) == ("code", "tests.app.tasks")
    assert (declaration.cron, declaration.every, declaration.timezone) == (
        "*/5 * * * *",
        None,
        "Europe/Paris",
    )
    assert (declaration.catch_up, declaration.catch_up_limit, declaration.overlap) == ("latest", 100, "allow")
    assert (declaration.args, declaration.kwargs, declaration.jitter) == ([1], {}, timedelta(0))


def test_the_expression_may_be_positional_and_must_not_be_forgotten() -> None:
    schedule("0 3 * * *", args=[1])(tasks.mail)
    assert only().cron == "0 3 * * *"
    bare: Any = schedule
    for below in (tasks.mail, tasks.mail.func):
        with pytest.raises(InvalidTask, match=r'^@schedule needs a time: write @schedule\("0 3'):
            bare(below)


def test_all_options() -> None:
    schedule(
        every=90, name="mail:hourly", kwargs={"number": 1}, catch_up="all", catch_up_limit=5, overlap="queue",
        jitter=1.5, queue_name="slow", priority=-3,
    )(tasks.mail)  # fmt: skip
    declaration = only()
    assert (declaration.every, declaration.jitter) == (timedelta(seconds=90), timedelta(seconds=1.5))
    assert (declaration.catch_up, declaration.catch_up_limit, declaration.overlap) == ("all", 5, "queue")
    assert (declaration.queue_name, declaration.priority, declaration.kwargs) == ("slow", -3, {"number": 1})


def test_several_schedules_of_a_task_have_names() -> None:
    schedule(cron="0 3 * * *", name="night", args=(1,))(
        schedule(every=60, name="minute", args=(2,))(tasks.mail)
    )
    assert {name: each.args for name, each in declared_schedules().items()} == {"minute": [2], "night": [1]}


def test_a_name_is_declared_once() -> None:
    declare = schedule(every=60, args=[1])
    declare(tasks.mail)
    with pytest.raises(
        InvalidTask, match=r"declared twice, for tests.app.tasks.mail and .* @schedule\(name="
    ):
        declare(tasks.mail)
    with pytest.raises(
        InvalidTask, match=r"declared twice, for tests.app.tasks.mail and for tests.app.tasks.noop"
    ):
        schedule(every=60, name=PATH)(tasks.noop)


def test_a_module_that_is_imported_again_declares_the_same_name() -> None:
    schedule(every=60, args=[1])(tasks.mail)
    schedule(every=90, args=[1])(tasks.mail.using())
    assert only().every == timedelta(seconds=90)


def function() -> None:
    """Not a task."""


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "takes either cron or every. Neither is set."),
    ({"cron": "* * * * *", "every": 5}, "Both are set"),
    ({"cron": "0 0 30 2 *"}, "names a day that does not exist"),
    ({"cron": "* * * * *", "timezone": "Mars"}, "There is no time zone 'Mars'"),
    ({"every": 0}, "every must be whole seconds"),
    ({"every": 60, "jitter": -1}, "jitter must not be negative"),
    ({"every": 60, "jitter": 61}, "jitter must not be longer than the time between two runs (0:01:00)"),
    ({"every": 60, "jitter": "1"}, "jitter must be seconds or a timedelta. It is '1'."),
    ({"every": 60, "name": ""}, "name must be 1 to 200 letters"),
    ({"every": 60, "name": "n" * 201}, "name must be 1 to 200 letters"),
    ({"every": 60, "name": "with space"}, "name must be 1 to 200 letters"),
    ({"every": 60, "name": 5}, "name must be 1 to 200 letters"),
    ({"every": 60, "args": "ab"}, "args must be a list or a tuple. It is 'ab'."),
    ({"every": 60, "args": [object]}, "Unsupported type: args[0]"),
    ({"every": 60, "kwargs": [1]}, "kwargs must be a dict. It is [1]."),
    ({"every": 60, "args": [1, 2]}, "too many positional arguments"),
    ({"every": 60, "args": []}, "missing a required argument: 'number'"),
    ({"every": 60, "kwargs": {"numbr": 1}}, "unexpected keyword argument 'numbr'"),
    ({"every": 60, "catch_up": "some"}, "catch_up must be 'skip', 'latest' or 'all'. It is 'some'."),
    ({"every": 60, "catch_up_limit": 0}, "catch_up_limit must be a whole number from 1 to 10000. It is 0."),
    ({"every": 60, "catch_up_limit": 10_001}, "catch_up_limit must be a whole number"),
    ({"every": 60, "overlap": "wait"}, "overlap must be 'allow', 'skip' or 'queue'. It is 'wait'."),
    ({"every": 60, "queue_name": "a b"}, "queue_name must be 1 to 100 letters"),
    ({"every": 60, "priority": 101}, "priority must be a whole number between -100 and 100"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=lambda value: str(value)[:50])
def test_what_could_never_work_is_refused_at_the_definition(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidTask, match=re.escape(words)) as caught:
        schedule(**{"args": [1], **options})(tasks.mail)
    assert PATH in str(caught.value)
    assert not declared_schedules()


def test_the_task_comes_first() -> None:
    with pytest.raises(InvalidTask, match="Write @schedule above @task"):
        schedule(every=60)(function)  # type: ignore[type-var]
    assert task(function).func is function


# -- settings


def test_schedules_in_settings() -> None:
    night = {"task": PATH, "cron": "0 3 * * *", "timezone": "Europe/Paris", "args": [1], "jitter": 60}
    with override_settings(PGQUEUE={"SCHEDULES": {"night": night}}):
        good, wrong = schedules_in_settings()
    declaration = good["night"]
    assert not wrong
    assert (declaration.task_path, declaration.source, declaration.declared_by) == (
        PATH,
        "settings",
        "tests.settings",
    )
    assert (declaration.cron, declaration.jitter) == ("0 3 * * *", timedelta(minutes=1))


@pytest.mark.parametrize(
    ("options", "words"),
    [(options, words) for options, words in WRONG if "argument" not in words and "name" not in options],
    ids=lambda value: str(value)[:50],
)
def test_wrong_values_in_settings_are_told_apart(options: dict[str, Any], words: str) -> None:
    schedules = {"bad": {"task": PATH, **options}, "good": {"task": PATH, "every": 60}}
    with override_settings(PGQUEUE={"SCHEDULES": schedules}):
        good, wrong = schedules_in_settings()
    assert good.keys() == {"good"}
    assert words in wrong["bad"]
