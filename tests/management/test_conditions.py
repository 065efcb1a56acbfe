"""Names of queues that are probably misspelled, and where the known names come from."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from django_pgqueue import task
from django_pgqueue.management._conditions import warn_of_unknown_queues
from django_pgqueue.tasks.registry import declared_queues, queues_in_use
from tests.support.factories import JobFactory, JobStatFactory, QueueFactory

OURS = "django_pgqueue.backend.PgQueueBackend"


@task(queue_name="invoices")
def declared() -> None:
    """So that its queue is known."""


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What is logged at WARNING and above."""
    caplog.set_level(logging.WARNING, "django_pgqueue")
    return caplog


@pytest.mark.django_db
def test_a_misspelled_queue_is_a_warning_with_the_nearest_name(warnings: pytest.LogCaptureFixture) -> None:
    warn_of_unknown_queues("default", "--queues", ["invoices", "invocies", "zzz"])
    first, second = warnings.messages
    assert first == (
        "--queues names 'invocies', a queue that no task, setting or job uses. Did you mean 'invoices'?"
    )
    assert second.startswith("--queues names 'zzz', ")
    assert ". Known queues: " in second
    assert "invoices" in second


@pytest.mark.django_db
def test_queues_that_the_database_knows() -> None:
    JobFactory.create(queue_name="waits")
    JobFactory.create(queue_name="later", scheduled=True)
    JobFactory.create(queue_name="runs", running=True)
    JobFactory.create(queue_name="long-over", done=True)
    QueueFactory.create(name="configured")
    JobStatFactory.create(queue_name="ran")
    assert queues_in_use("default") == {"waits", "later", "runs", "configured", "ran"}


def test_queues_that_the_code_knows(settings: Any) -> None:
    settings.TASKS = {
        "default": {"BACKEND": OURS, "QUEUES": ["from-settings"]},
        "wrong": {"BACKEND": OURS, "QUEUES": "no list"},
    }
    known = declared_queues()
    assert {"invoices", "from-settings"} <= known
    assert known.isdisjoint("no list")
