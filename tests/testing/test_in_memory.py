"""``call_task``, ``fake_job`` and ``dummy_jobs``: jobs in memory. No test here may query."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import SimpleTestCase

from django_pgqueue import (
    Batch,
    CancelJob,
    EventTimeout,
    RetryLater,
    Snooze,
    StepError,
    chain,
    current_job,
    enqueue,
    task,
)
from django_pgqueue.exceptions import InvalidJSON
from django_pgqueue.models import Job, JobBatch
from django_pgqueue.testing import (
    acall_task,
    assert_enqueued,
    assert_not_enqueued,
    call_task,
    dummy_jobs,
    fake_job,
)
from tests.app import inline_tasks as tasks, step_tasks
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
    ).using(tenant="bolt")
    told = call_task(variant, "a", limit=None)
    assert told == {
        "arguments": [["a"], {"limit": None}], "path": "tests.app.inline_tasks.tell_about_job",
        "queue": "mail", "priority": 7, "metadata": {"by": "me"}, "group": "acme", "tenant": "bolt",
        "attempt": 1, "extended": True, "stop": False, "max_attempts": 4,
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


@pytest.mark.parametrize("contextual", [tasks.contextual, tasks.acontextual])
def test_a_context_is_passed(contextual: Any) -> None:
    with fake_job(attempts=2, id=77):
        assert call_task(contextual, 5) == ["77", 5, "RUNNING"]


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
    with pytest.raises(TypeError, match="takes a task"):
        call_task(len, [])  # type: ignore[arg-type]


def test_a_result_that_no_job_can_have_is_refused() -> None:
    with pytest.raises(InvalidJSON):
        call_task(tasks.just_end, "bad_result")


def test_a_task_that_calls_another_one_keeps_its_job() -> None:
    assert call_task(tasks.call_other) == [1, 1]


def test_steps_are_called() -> None:
    assert call_task(step_tasks.pipeline) == [0, 1, 2]
    assert call_task(step_tasks.async_pipeline) == [0, 1, 2]
    assert call_task(step_tasks.tuples) == [1, "two"]
    assert call_task(step_tasks.sleepy) == "awake"


def test_signals_have_values() -> None:
    with fake_job(events={"approved": {"by": "ann"}}):
        assert call_task(step_tasks.approval) == {"by": "ann"}
        assert call_task(step_tasks.async_approval) == {"by": "ann"}
    with pytest.raises(EventTimeout):
        call_task(step_tasks.approval, 60.0)
    with pytest.raises(StepError, match="fake_job"):
        call_task(step_tasks.approval)


def test_the_rules_are_those_of_a_job() -> None:
    with pytest.raises(StepError, match="used the name 'a' before"):
        call_task(step_tasks.run_names, "a", "a")
    with pytest.raises(StepError, match="cannot be recorded"):
        call_task(step_tasks.run_value, "object()")


# --- Jobs that wait for others, and batches


@task
def total() -> int:
    return sum(current_job().parents.results)


def test_links_in_memory() -> None:
    with dummy_jobs() as jobs:
        first, second = chain([add.bind(1, 2), add.bind(3, 4)])
        assert (second.status, second.parent_ids) == ("blocked", [first.pk])
        with Batch("import") as batch:
            numbers = batch.add(add.bind(n, n) for n in range(3)).ids
            last = enqueue(add.using(after=batch, if_failed="run"), 0, 0)
        assert [job.pk for job in jobs if job.batch_id == batch.id] == numbers
        assert batch.counts() == (3, 0, 0, 0)
        assert (batch.name, batch.is_open, batch.is_finished, batch.outcome) == ("import", False, False, "")
        assert_enqueued(add, after=batch, count=1)
        assert_enqueued(add, batch=batch, count=3)
        assert_enqueued(add, after=[first.pk], batch=None, count=1)
        assert_not_enqueued(add, after=last)
        with pytest.raises(AssertionError, match=rf"after is \[\], not \[{first.pk}\]"):
            assert_enqueued(add, args=[1, 2], after=first)
        assert (batch.cancel(), batch.cancel(), batch.retry_failed()) == (3, 0, 0)
        assert batch.counts().live == 0
        with pytest.raises(JobBatch.DoesNotExist):
            Batch.get(first.pk)


def test_parents_of_a_job_in_memory() -> None:
    with fake_job(parents={5: 1, 6: 2}) as job:
        assert call_task(total) == 3
        assert (list(job.parents), job.parents[5].result, 7 in job.parents) == ([5, 6], 1, False)
        assert job.batch is None
    failed = Job(id=5, status="failed", errors=[{"message": "no"}])
    with fake_job(parents={5: failed}, batch_id=9) as job:
        assert (job.parents[5].status, job.parents.results) == ("failed", [None])
        assert job.batch is not None
        assert job.batch.id == 9
    with fake_job() as job:
        assert (len(job.parents), job.parents.gone, job.parents.results) == (0, [], [])
        with pytest.raises(KeyError, match=r"The job was not enqueued after 5, but after: \[\]"):
            job.parents[5]


def test_parents_of_an_async_job() -> None:
    async def read() -> None:
        assert (await current_job().aparents()).results == [[1, 2]]
        assert await current_job().abatch() is None

    with fake_job(parents={5: (1, 2)}):
        async_to_sync(read)()
