"""Schedules in plain language."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_pgqueue.explanation import schedules as words
from django_pgqueue.models import Schedule


@pytest.mark.parametrize(
    ("cron", "text"),
    [
        ("* * * * *", "Every minute"),
        ("*/1 * * * *", "Every minute"),
        ("*/5 * * * *", "Every 5 minutes"),
        ("*/7 * * * *", "Every seventh minute of every hour"),  # at 56 and again at 0
        ("0 * * * *", "Every hour, at minute 0"),
        ("@hourly", "Every hour, at minute 0"),
        ("0 */2 * * *", "Every 2 hours"),
        ("0  */5 * * *", "At minute 0 past every fifth hour"),
        ("0 3 * * *", "At 03:00 every day"),
        ("@daily", "At 00:00 every day"),
        ("30 8 * * MON-FRI", "At 08:30 on Monday through Friday"),
        ("0 0 21 * *", "At 00:00 on the 21st day of every month"),
        ("0 0 1,22,13 * *", "At 00:00 on the first, the 22nd, and the 13th day of month"),
        ("0 0 L * *", "At 00:00 on the last day of every month"),
        ("every day", "every day"),
        ("*/0 * * * *", "*/0 * * * *"),
    ],
)
def test_cron_expressions_in_words(cron: str, text: str) -> None:
    assert words.timing(Schedule(cron=cron)) == text


@pytest.mark.parametrize(
    ("every", "text"),
    [
        (timedelta(seconds=1), "Every second"),
        (timedelta(seconds=30), "Every 30 seconds"),
        (timedelta(minutes=1), "Every minute"),
        (timedelta(seconds=90), "Every 1 minute 30 seconds"),
        (timedelta(hours=1), "Every hour"),
        (timedelta(hours=36), "Every 1 day 12 hours"),
        (timedelta(days=1), "Every day"),
        (timedelta(days=7), "Every 7 days"),
    ],
)
def test_intervals_in_words(every: timedelta, text: str) -> None:
    assert words.timing(Schedule(every=every)) == text


def test_a_call_is_python() -> None:
    schedule = Schedule(task_path="shop.tasks.report", args=[1, "a"], kwargs={"full": True, "to": None})
    assert words.call(schedule) == "shop.tasks.report(1, 'a', full=True, to=None)"
    assert words.call(Schedule(task_path="shop.tasks.report", args={}, kwargs=[])) == "shop.tasks.report()"


def test_the_states_and_the_reasons() -> None:
    now = timezone.now()
    paused = Schedule(paused_at=now, pause_author="anna", pause_reason="the bank is closed")
    gone = Schedule(paused_at=now, retired_at=now, source="settings", declared_by="shop.settings")
    assert (words.state(Schedule())[0], words.state_note(Schedule())) == ("active", "")
    assert (words.state(paused)[0], words.state_note(paused)) == ("paused", "by anna: the bank is closed")
    assert words.state_note(Schedule(paused_at=now)) == ""
    assert words.state_note(Schedule(paused_at=now, pause_reason="why not")) == "why not"
    assert (words.state(gone)[0], words.state_note(gone)) == (
        "retired",
        "The settings no longer declare it.",
    )
    assert words.origin(gone) == "settings (shop.settings)"
    assert words.origin(Schedule()) == "admin"


def test_of_cron_and_interval_only_the_one_that_is_there_counts_as_overridden() -> None:
    both = {"cron": "0 3 * * *", "every": None, "priority": None}
    assert words.changes(Schedule()) == []
    assert words.changes(Schedule(cron="0 4 * * *", overridden=["cron", "every"], declared=both)) == ["cron"]
    every = Schedule(every=timedelta(hours=1), overridden=["cron", "every"], declared=both)
    assert words.changes(every) == ["cron", "every"]
