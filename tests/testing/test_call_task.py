"""``call_task`` and ``fake_job``: the body of a task with a job in memory. No test here may query."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from django.test import SimpleTestCase

from django_pgqueue import CancelJob, RetryLater, Snooze, current_job
from django_pgqueue.exceptions import InvalidJSON
from django_pgqueue.testing import acall_task, call_task, fake_job
from tests.app import inline_tasks as tasks
from tests.app.worker_tasks import add


class InSimpleTestCase(SimpleTestCase):
    def test_it_needs_no_database(self) -> None:
        assert call_task(tasks.tell_about_job, "a", limit=3)["arguments"] == [["a"], {"limit": 3}]

    async def test_async_code(self) -> None:
        assert await acall_task(tasks.atell_about_job) == {"attempt": 1, "thread": 1}
        assert await acall_task(add, 1, b=2) == 3


def test_the_job_has_the_values_of_the_call_and_of_the_task() -> None:
    variant = tasks.tell_about_job.using(
        queue_name="mail", priority=7, metadata={"by": "me"}, group_key="acme", unique_key="k"
    )
    told = call_task(variant, "a", limit=None)
    assert told == {
        "arguments": [["a"], {"limit": None}], "path": "tests.app.inline_tasks.tell_about_job",
        "queue": "mail", "priority": 7, "metadata": {"by": "me"}, "group": "acme", "attempt": 1,
        "extended": True, "stop": False, "max_attempts": 4,
    }  # fmt: skip


def test_other_fields_of_the_job_can_be_set() -> None:
    with fake_job(attempts=3, metadata={"a": 1}, queue_name="slow", cancel_requested=True) as job:
        told = call_task(tasks.tell_about_job, "a")
        assert (told["attempt"], told["metadata"], told["queue"], told["stop"]) == (3, {"a": 1}, "slow", True)
        assert current_job() is job
        assert job.attempts == 3
        assert job.unique_key is None
    with pytest.raises(LookupError, match=r"call_task\(\) of django_pgqueue\.testing"):
        current_job()
    with pytest.raises(TypeError, match="has no field 'attempt'"), fake_job(attempt=1):
        pass


def test_async_tasks_run_to_their_end() -> None:
    assert call_task(tasks.atell_about_job) == {"attempt": 1, "thread": 1}


@pytest.mark.parametrize("task", [tasks.contextual, tasks.acontextual])
def test_a_context_is_passed(task: Any) -> None:
    with fake_job(attempts=2, id=77):
        assert call_task(task, 5) == ["77", 5, "RUNNING"]


@pytest.mark.parametrize(("how", "error"), [
    ("retry_later", RetryLater), ("snooze", Snooze), ("cancel", CancelJob), ("raise", ValueError),
    ("exit", SystemExit),
])  # fmt: skip
@pytest.mark.parametrize("call", [call_task, lambda *args: asyncio.run(acall_task(*args))])
def test_exceptions_reach_the_test(how: str, error: type[BaseException], call: Any) -> None:
    with pytest.raises(error):
        call(tasks.just_end, how)


def test_arguments_are_those_that_a_job_would_have() -> None:
    assert call_task(tasks.name_types, (1, 2)) == "list"
    with pytest.raises(InvalidJSON):
        call_task(tasks.name_types, timedelta(1))
    with pytest.raises(TypeError, match="missing"):
        call_task(tasks.name_types)  # type: ignore[call-arg]


def test_a_result_that_no_job_can_have_is_refused() -> None:
    with pytest.raises(InvalidJSON):
        call_task(tasks.just_end, "bad_result")


def test_a_task_that_calls_another_one_keeps_its_job() -> None:
    assert call_task(tasks.call_other) == [1, 1]


def test_what_is_no_task_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a task"):
        call_task(len, [])  # type: ignore[arg-type]
