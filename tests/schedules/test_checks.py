"""E014, E015 and E016, and E003 for the shape of the setting."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.test import override_settings

from django_pgqueue import conf, schedule
from django_pgqueue.checks.tasks import check_schedules
from tests.app import limit_tasks, tasks

pytestmark = pytest.mark.usefixtures("registry")

MAIL = {"task": "tests.app.tasks.mail", "every": 60, "args": [1]}


def messages(**schedules: Any) -> list[CheckMessage]:
    with override_settings(PGQUEUE={"SCHEDULES": schedules}):
        assert not conf.problems()
        found = check_schedules(None)
    assert all(each.hint for each in found)
    return found


def test_good_schedules() -> None:
    assert messages() == []
    assert messages(mail=MAIL) == []


@pytest.mark.parametrize(
    ("changes", "number", "words"),
    [
        ({"every": 0}, "E014", "PGQUEUE['SCHEDULES']['mail'] is invalid: every must be"),
        ({"every": None, "cron": "0 0 30 2 *"}, "E014", "names a day that does not exist"),
        ({"every": None, "cron": "0 3 * * *", "timezone": "Mars"}, "E014", "no time zone 'Mars'"),
        ({"task": "tests.app.tasks.gone"}, "E015", "names no task 'tests.app.tasks.gone'"),
        ({"task": "os.path.join"}, "E015", "is not a task"),
        ({"args": []}, "E015", "cannot be called: tests.app.tasks.mail() missing"),
    ],
)
def test_problems(changes: dict[str, Any], number: str, words: str) -> None:
    (message,) = messages(mail={**MAIL, **changes})
    assert message.id == f"pgqueue.{number}"
    assert words in message.msg


def test_e016_a_name_in_code_and_in_settings() -> None:
    schedule(every=60, name="mail", args=[1])(tasks.mail)
    (message,) = messages(mail=MAIL)
    assert message.id == "pgqueue.E016"
    assert "in PGQUEUE['SCHEDULES'], and with @schedule in tests.app.tasks" in message.msg


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (5, 'a dict of names and schedules, such as {"night"'),
        ({"a": 5}, "each value is a dict with the path of a task"),
        ({5: {}}, "a dict of names and schedules, such as"),
        ({"a": {"cron": "* * * * *"}}, "each value is a dict with the path of a task"),
    ],
)
def test_e003_the_shape(given: Any, words: str) -> None:
    with override_settings(PGQUEUE={"SCHEDULES": given}):
        (problem,) = conf.problems()
        assert words in problem.hint
        assert check_schedules(None) == []
        assert "pgqueue.E003" in {message.id for message in run_checks(tags=["pgqueue"])}


def test_e008_code_that_declares_an_invalid_schedule(app: Any) -> None:
    app.deploy("@schedule(cron='0 0 30 2 *')", "@task", "def report(): pass")
    (message,) = (each for each in run_checks(tags=["pgqueue"]) if each.id == "pgqueue.E008")
    assert f"The schedule '{app.module}.report' of {app.module}.report is wrong: " in message.msg


WHY = "would not fire: The callable for the limit key of tests.app.limit_tasks.sync raised AttributeError"


def test_e015_a_key_that_cannot_be_computed_in_settings() -> None:
    (message,) = messages(sync={"task": "tests.app.limit_tasks.sync", "every": 60, "args": [5]})
    assert message.id == "pgqueue.E015"
    assert f"PGQUEUE['SCHEDULES']['sync'] {WHY}" in message.msg


def test_e015_a_key_that_cannot_be_computed_in_code() -> None:
    """The decorator cannot know: a callable may need what is not there yet when its module is imported."""
    schedule(every=60, name="sync", args=[5])(limit_tasks.sync)
    (message,) = messages()
    assert message.id == "pgqueue.E015"
    assert f"The schedule 'sync' in tests.app.limit_tasks {WHY}" in message.msg
