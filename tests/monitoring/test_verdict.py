"""The verdict on a queue in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.test import override_settings
from django.utils import timezone

from django_pgqueue import pause
from django_pgqueue.monitoring import health as module
from django_pgqueue.monitoring.health import judge, read, verdict
from django_pgqueue.postgres.timeout import TimeLimitReached
from tests.support.factories import JobFactory, JobStatFactory, WorkerFactory

pytestmark = pytest.mark.django_db(databases=["default", "other"])


def ago(**time: float) -> Any:
    return timezone.now() - timedelta(**time)


def minute(back: int) -> Any:
    return (timezone.now() - timedelta(minutes=back)).replace(second=0, microsecond=0)


def test_all_is_well() -> None:
    WorkerFactory.create_batch(2)
    assert verdict("default").line == "Healthy: 2 workers, 0 jobs/min, no job is ready"
    JobFactory.create(run_after=ago(minutes=2))
    JobStatFactory.create(minute=minute(1), done=60_000)
    found = verdict("default")
    assert found.is_healthy
    assert found.line.startswith("Healthy: 2 workers, ")
    assert found.line.endswith(" jobs/s, the oldest ready job waits 2 min")
    seconds = (timezone.now() - minute(1)).total_seconds()
    assert read("default").per_second == pytest.approx(60_000 / seconds, rel=0.1)
    assert verdict("other").line == "1 problem: no worker claims jobs"


def silent() -> None:
    worker = WorkerFactory.create(heartbeat_at=ago(seconds=12))
    JobFactory.create(running=True, worker=worker.pk)


def lost() -> None:
    dead = WorkerFactory.create(heartbeat_at=ago(hours=1))
    JobFactory.create_batch(2, running=True, worker=dead.pk)
    JobFactory.create(running=True, worker=dead.pk + 1000)


def failing() -> None:
    JobStatFactory.create(minute=minute(5), failed=41)
    JobStatFactory.create(minute=minute(70), failed=20)


def failing_as_before() -> None:
    JobStatFactory.create(minute=minute(5), failed=40)
    JobStatFactory.create(minute=minute(70), failed=20)


def failing_seldom() -> None:
    JobStatFactory.create(minute=minute(5), done=4_080, failed=41)


def paused() -> None:
    JobFactory.create_batch(2, queue_name="mail", run_after=ago(hours=1))
    pause(queue="mail")
    pause(queue="idle")
    pause(task="tests.app.tasks.add")


def all_paused() -> None:
    JobFactory.create(queue_name="mail")
    pause(queue="mail")
    pause(everything=True)


def pause_is_over() -> None:
    JobFactory.create(queue_name="mail")
    pause(queue="mail").__class__.objects.update(until=ago(seconds=1))


@pytest.mark.parametrize(
    ("happen", "problems"),
    [
        (silent, [("silent", "", "1 worker has sent no heartbeat for 1")]),
        (lost, [("lost", "", "3 running jobs have lost their workers, and wait for recovery")]),
        (failing_seldom, []),
        (failing, [("failures", "", "41 jobs failed in the last hour, 20 in the hour before")]),
        (failing_as_before, []),
        (paused, [("paused", "mail", "mail: paused, and 2 jobs wait")]),
        (all_paused, [("paused", "", "everything is paused")]),
        (pause_is_over, []),
    ],
)
def test_what_a_person_wants_to_know(
    happen: Callable[[], None], problems: list[tuple[str, str, str]]
) -> None:
    WorkerFactory.create()
    happen()
    found = verdict("default")
    assert [(problem.kind, problem.queue_name) for problem in found.problems] == [
        each[:2] for each in problems
    ]
    for problem, (_kind, _queue, text) in zip(found.problems, problems, strict=True):
        assert problem.text.startswith(text)
    assert found.headline.startswith("1 problem" if problems else "Healthy: ")


def test_problems_of_the_health_come_first() -> None:
    pause(queue="idle")
    JobFactory.create(queue_name="idle")
    JobStatFactory.create(minute=minute(5), failed=10)
    assert verdict("default").line == (
        "3 problems: no worker claims jobs; 10 jobs failed in the last hour, 0 in the hour before; "
        "idle: paused, and 1 job waits"
    )
    with override_settings(PGQUEUE={"HEALTH": {"*": {"workers": 0}, "wanted": {"workers": 1}}}):
        assert verdict("default").problems[0].text == "wanted: served by 0 of at least 1 worker"


@pytest.mark.parametrize("part", ["depths", "Crew", "lost_jobs", "series"])
def test_a_part_that_is_too_slow_does_not_hide_the_others(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: Any) -> None:
        raise TimeLimitReached

    WorkerFactory.create()
    pause(everything=True)
    monkeypatch.setattr(module, part, slow)
    found = judge(read("default"))
    assert [problem.kind for problem in found.problems] == (
        ["unreachable", "paused"] if part in {"depths", "Crew"} else ["paused"]
    )


def test_a_database_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OperationalError("password of 10.0.0.1")

    monkeypatch.setattr(module, "depths", fail)
    assert verdict("default").line == "1 problem: the database cannot be read"
