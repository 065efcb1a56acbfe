"""Steps, sleeps and events in a test, in the transaction of a TestCase and without a database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import SimpleTestCase

from django_pgqueue import EventTimeout, StepError, enqueue, send_event
from django_pgqueue.models.job import Step
from django_pgqueue.testing import call_task, fake_job, run_jobs, travel
from tests.app import step_tasks as tasks
from tests.support.workers import fresh


@pytest.fixture(autouse=True)
def ran() -> Iterator[list[str]]:
    yield tasks.RAN
    tasks.RAN.clear()
    tasks.FAILURES.clear()


@pytest.mark.django_db
@pytest.mark.parametrize("pipeline", [tasks.pipeline, tasks.async_pipeline])
def test_run_jobs_goes_on_after_the_recorded_steps(ran: list[str], pipeline: Any) -> None:
    tasks.FAILURES["step-1"] = [ValueError("once")]
    job = enqueue(pipeline)
    run_jobs(raise_failures=False)
    assert (fresh(job).status, fresh(job).result) == ("done", [0, 1, 2])
    assert ran.count("step-0") == 1
    assert not Step.objects.exists()


@pytest.mark.django_db
def test_travel_ends_a_sleep(ran: list[str]) -> None:
    job = enqueue(tasks.sleepy)
    run_jobs()
    travel(hours=1)
    assert run_jobs() == []
    travel(hours=1, seconds=1)
    run_jobs()
    assert (fresh(job).status, ran) == ("done", ["before", "after"])


@pytest.mark.django_db
def test_signals_and_timeouts(ran: list[str]) -> None:
    waits, times_out = enqueue(tasks.approval), enqueue(tasks.approval, 3600)
    run_jobs()
    assert send_event(waits, "approved", "yes")
    travel(hours=2)
    run_jobs(raise_failures=False)
    assert (fresh(waits).result, fresh(times_out).status) == ("yes", "failed")


@pytest.mark.django_db
def test_an_atomic_step_in_a_test(ran: list[str]) -> None:
    tasks.FAILURES["after"] = [ValueError("once")]
    job = enqueue(tasks.pay, "five")
    run_jobs(raise_failures=False)
    assert (fresh(job).status, ran.count("charge")) == ("done", 1)


@pytest.mark.django_db
def test_a_step_in_a_transaction_of_the_task_is_refused_in_tests_too() -> None:
    enqueue(tasks.in_transaction, "step")
    with pytest.raises(StepError, match="was called in transaction"):
        run_jobs()


class WithoutDatabase(SimpleTestCase):
    def test_steps_are_called(self) -> None:
        assert call_task(tasks.pipeline) == [0, 1, 2]
        assert call_task(tasks.async_pipeline) == [0, 1, 2]
        assert call_task(tasks.tuples) == [1, "two"]
        assert call_task(tasks.sleepy) == "awake"

    def test_signals_have_values(self) -> None:
        with fake_job(events={"approved": {"by": "ann"}}):
            assert call_task(tasks.approval) == {"by": "ann"}
            assert call_task(tasks.async_approval) == {"by": "ann"}
        with pytest.raises(EventTimeout):
            call_task(tasks.approval, 60.0)
        with pytest.raises(StepError, match="fake_job"):
            call_task(tasks.approval)

    def test_the_rules_are_those_of_a_job(self) -> None:
        with pytest.raises(StepError, match="used the name 'a' before"):
            call_task(tasks.run_names, "a", "a")
        with pytest.raises(StepError, match="cannot be recorded"):
            call_task(tasks.run_value, "object()")
