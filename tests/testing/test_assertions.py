"""``assert_enqueued``, ``assert_not_enqueued``, ``enqueued`` and the factories."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from factory.declarations import Trait

from django_pgqueue import Batch, enqueue, enqueue_many
from django_pgqueue.models import Edge, Job
from django_pgqueue.testing import assert_enqueued, assert_not_enqueued, enqueued, run_jobs
from django_pgqueue.testing.factories import BatchFactory, JobFactory
from tests.app import inline_tasks as tasks
from tests.app.tasks import mail
from tests.app.worker_tasks import add
from tests.support.jobs import sql

pytestmark = pytest.mark.django_db

WRONG: Any = add.func
SOON = datetime(2100, 1, 1, tzinfo=UTC)


def test_a_job_with_these_values_is_found() -> None:
    enqueue(add.using(queue_name="mail", priority=5, run_after=SOON, metadata={"by": "me"}), 1, b=2)
    job = assert_enqueued(
        add, args=(1,), kwargs={"b": 2}, queue_name="mail", priority=5, run_after=SOON, metadata={"by": "me"},
        status="pending", count=1,
    )  # fmt: skip
    assert job.args == [1]
    assert assert_enqueued("tests.app.worker_tasks.add").pk == job.pk
    assert_not_enqueued(tasks.see)
    enqueue(add.using(run_after=timedelta(hours=1)), 2)  # since the enqueue
    enqueue(add, 3)
    assert assert_enqueued(add, run_after=timedelta(hours=1)).args == [2]
    assert assert_enqueued(add, run_after=None).args == [3]


@pytest.mark.parametrize("given", [
    {"args": [2]}, {"kwargs": {}}, {"queue_name": "default"}, {"priority": 0}, {"run_after": None},
    {"run_after": timedelta(hours=2)}, {"run_after": SOON}, {"metadata": {}}, {"status": "done"},
    {"count": 2}, {"count": 0}, {"among": []},
])  # fmt: skip
def test_a_job_with_one_other_value_is_not(given: dict[str, Any]) -> None:
    options = add.using(
        queue_name="mail", priority=5, run_after=timedelta(hours=1), metadata={"by": "me"}, database="default"
    )
    enqueue(options, 1, b=2)
    with pytest.raises(AssertionError):
        assert_enqueued(add, **given)
    if "count" not in given:
        assert_not_enqueued(add, **given)


def message_of(check: Callable[[], object]) -> str:
    with pytest.raises((AssertionError, TypeError, ValueError)) as caught:
        check()
    return re.sub(r"(?<=\bjob )\d+|0x[0-9a-f]+", "<id>", str(caught.value))


def test_the_messages_show_the_nearest_jobs_and_what_differs(wording: Any) -> None:
    said = {"no job": message_of(lambda: assert_enqueued(add))}
    for number in (1, 2):
        enqueue(tasks.see, number)
    said["other tasks"] = message_of(lambda: assert_enqueued(add))
    enqueue(add.using(queue_name="mail"), 1, b=2)
    enqueue(add.using(run_after=timedelta(hours=1)), 7, b=3)
    said["values"] = message_of(
        lambda: assert_enqueued(add, args=[1], kwargs={"b": 3}, queue_name="mail", run_after=None)
    )
    said["count"] = message_of(lambda: assert_enqueued(add, count=3))
    said["not enqueued"] = message_of(lambda: assert_not_enqueued(add, args=[7]))
    said["a call"] = message_of(lambda: assert_enqueued(add.bind(1, 5)))
    sql("SELECT pgqueue_enqueue(%s, '[1, 2, 3]')", add.module_path)
    said["arguments"] = message_of(lambda: assert_enqueued(add.bind(9, 9)))
    assert said == wording


def test_what_no_job_could_have_is_refused(wording: Any) -> None:
    said = {}
    for wrong in (
        {"args": 1}, {"args": "ab"}, {"kwargs": [1]}, {"run_after": 60},
        {"run_after": datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)},
    ):  # fmt: skip
        values: dict[str, Any] = dict(wrong)
        said[str(wrong)] = message_of(partial(assert_enqueued, add, **values))
        assert message_of(partial(assert_not_enqueued, add, **values)) == said[str(wrong)].replace(
            "assert_enqueued", "assert_not_enqueued"
        )
    said["no task"] = message_of(lambda: assert_enqueued(WRONG))
    said["not no task"] = message_of(lambda: assert_not_enqueued(WRONG))
    said["a call and arguments"] = message_of(lambda: assert_enqueued(add.bind(1, 2), args=[1, 2]))
    said["a call with options"] = message_of(lambda: assert_enqueued(add.using(priority=5).bind(1, 2)))
    assert said == wording


def test_a_block_collects_jobs_whichever_way_they_come() -> None:
    enqueue(add, 0)
    with enqueued() as jobs, enqueued(tasks.see) as seen:
        enqueue(add, 1)
        enqueue_many([add.bind(2), tasks.see.bind(3)])
        add.enqueue(4)
        sql("SELECT pgqueue_enqueue('tests.app.worker_tasks.add', '[5]')")
        run_jobs()
        assert jobs == []
    enqueue(add, 6)
    assert [job.args for job in jobs] == [[1], [2], [3], [4], [5]]
    assert [job.args for job in seen] == [[3]]
    assert {job.status for job in jobs} == {"done"}
    assert_enqueued(add, args=[5], among=jobs)
    assert_not_enqueued(add, args=[6], among=jobs)


@pytest.mark.django_db(databases=["default", "other"])
def test_other_databases() -> None:
    with enqueued(using="other") as jobs:
        enqueue(add.using(database="other"), 1)
        enqueue(add, 2)
    assert [job.args for job in jobs] == [[1]]
    assert_enqueued(add, using="other", count=1)
    assert_not_enqueued(add, args=[1])


def test_a_call_is_compared_by_the_names_of_its_arguments() -> None:
    jobs = [enqueue(add, 1, 2), enqueue(add, 1, b=2), enqueue(add, b=2, a=1)]
    other = enqueue(add, 2, 1)
    assert assert_enqueued(add.bind(a=1, b=2), count=3).pk == jobs[-1].pk
    assert assert_enqueued(add.bind(2, 1), queue_name=other.queue_name).pk == other.pk
    assert_not_enqueued(add.bind(3, 3))


# --- Factories: each state is one that the queue accepts


@pytest.mark.parametrize(("trait", "status", "is_due"), [
    ("scheduled", "pending", False), ("retrying", "retry", False), ("blocked", "blocked", False),
    ("running", "running", False), ("done", "done", False), ("failed", "failed", False),
    ("cancelled", "cancelled", False), ("expired", "pending", True),
])  # fmt: skip
def test_each_state(trait: str, status: str, is_due: bool) -> None:
    job = JobFactory.create(task=tasks.see, args=[1], **{trait: True})
    assert Job.objects.get().status == status
    assert [ran.id for ran in run_jobs()] == [job.pk] * is_due


def test_a_factory_of_a_project_has_states_of_its_own() -> None:
    class Failed(JobFactory):
        failed = True

        class Params:
            refused = Trait(cancelled=True, failed=False)

    made = (Failed.build(), Failed.build(failed=False), Failed.build(refused=True), JobFactory.build())
    assert [job.status for job in made] == ["failed", "pending", "cancelled", "pending"]


def test_a_job_has_the_queue_of_its_task_and_runs() -> None:
    job = JobFactory.create(task=mail, args=[1])
    assert (job.task_path, job.queue_name) == ("tests.app.tasks.mail", "mail")
    assert JobFactory.create(task="a.b").queue_name == "default"
    assert [ran.outcome for ran in run_jobs(queues="mail")] == ["done"]


def test_jobs_that_wait_for_others_run_after_them() -> None:
    batch = BatchFactory.create(numbers={"added": 3, "done": 3})
    member = JobFactory.create(task=tasks.see, args=[1], batch=batch)
    over = JobFactory.create(done=True, batch=batch)
    child = JobFactory.create(task=tasks.see, args=[2], parents=[member, over, batch])
    alone = JobFactory.create(task=tasks.see, args=[3], parents=[over])
    assert (child.status, child.waiting_reason) == ("blocked", f"waits for jobs {member.pk}, {batch.pk}")
    assert (alone.status, alone.parent_ids) == ("pending", [over.pk])
    assert Edge.objects.filter(child_id=child.pk).count() == 2
    assert Batch.get(batch.pk).counts() == (5, 4, 0, 0)
    assert [ran.id for ran in run_jobs()] == [member.pk, alone.pk, child.pk]
    assert Batch.get(batch.pk).outcome == "done"
    assert BatchFactory.create(over=True).outcome == "done"
    assert BatchFactory.create(is_open=True).status == "open"
