"""What ``manage.py pgqueue pause``, ``resume`` and ``pauses`` print. The rules are in tests/jobs."""

from __future__ import annotations

import getpass
import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_pgqueue import pause
from django_pgqueue.models import Pause
from tests.support.factories import JobFactory

pytestmark = pytest.mark.django_db(databases=["default", "other"])


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("pgqueue", *arguments, stdout=out)
    return out.getvalue().strip()


def test_what_is_printed() -> None:
    assert run("pause", "--queue", "mail") == "Paused the queue mail."
    assert Pause.objects.get().author == getpass.getuser()
    assert run("resume", "--queue", "mail") == "Resumed the queue mail."
    assert run("pause", "--task", "shop.tasks.sync") == "Paused the task shop.tasks.sync."
    assert run("resume", "--task", "shop.tasks.sync") == "Resumed the task shop.tasks.sync."
    assert run("pause", "--everything", "--author", "") == "Paused everything."
    assert Pause.objects.get().author == ""
    assert run("resume", "--everything") == "Resumed everything."


def test_the_end_is_in_the_time_zone_of_the_project_or_in_its_own() -> None:
    run("pause", "--queue", "mail", "--for", "90m")
    found = Pause.objects.get()
    assert found.until == found.paused_at + timedelta(minutes=90)
    assert " until " in run("pause", "--queue", "mail", "--until", "2080-01-01T12:00")
    end = Pause.objects.get().until
    assert end is not None
    assert f"{timezone.localtime(end):%Y-%m-%d %H:%M}" == "2080-01-01 12:00"
    run("pause", "--queue", "mail", "--until", "2080-01-01T12:00Z")
    end = Pause.objects.get().until
    assert end is not None
    assert end.isoformat() == "2080-01-01T12:00:00+00:00"


def test_the_list() -> None:
    assert run("pauses") == "Nothing is paused."
    assert run("pauses", "--json") == "[]"
    pause(queue="mail", reason="down", author="ann", duration=timedelta(hours=1))
    pause(everything=True)
    pause(queue="over", duration=timedelta(hours=1))
    Pause.objects.filter(name="over").update(until=timezone.now())
    first, second = run("pauses").splitlines()
    assert first.startswith("everything paused since ")
    assert second.startswith("queue mail paused by ann since ")
    assert second.endswith(": down")
    rows = json.loads(run("pauses", "--json"))
    assert [(row["kind"], row["name"], row["until"] is None) for row in rows] == [
        ("all", "", True), ("queue", "mail", False),
    ]  # fmt: skip


def test_another_database() -> None:
    run("pause", "--everything", "--database", "other")
    assert not Pause.objects.exists()
    assert run("pauses", "--database", "other").startswith("everything")
    run("resume", "--everything", "--database", "other")


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["pause"], "required", 2),
        (["pause", "--queue", "mail", "--everything"], "not allowed with argument", 2),
        (["pause", "--everything", "--until", "noon"], "'noon' is not a time", 2),
        (["pause", "--everything", "--until", "2020-13-01T00:00"], "is not a time", 2),
        (["pause", "--everything", "--for", "soon"], "'soon' is not a duration", 2),
        (["resume", "--queue", "mail"], "The queue mail is not paused", 1),
        (["resume", "--queue", "a b"], "queue_name must be", 2),
    ],
)
def test_what_cannot_be_done(arguments: list[str], words: str, code: int) -> None:
    with pytest.raises(CommandError, match=words) as refused:
        run(*arguments)
    assert refused.value.returncode == code
    assert not Pause.objects.exists()


def test_what_was_done_as_json() -> None:
    paused = json.loads(run("pause", "--queue", "mail", "--author", "ann", "--for", "2h", "--json"))
    assert (paused["database"], paused["action"], paused["kind"], paused["name"]) == (
        "default", "pause", "queue", "mail",
    )  # fmt: skip
    assert paused["paused_at"] < paused["until"]
    assert json.loads(run("resume", "--queue", "mail", "--json")) == {
        "database": "default", "action": "resume", "kind": "queue", "name": "mail",
    }  # fmt: skip
    assert run("pause", "--everything", "--quiet") == ""
    assert json.loads(run("resume", "--everything", "--json"))["kind"] == "all"


def test_a_queue_that_nobody_knows_is_paused_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    JobFactory.create(queue_name="mail")
    assert run("pause", "--queue", "mial") == "Paused the queue mial."
    assert "Did you mean 'mail'?" in caplog.text
