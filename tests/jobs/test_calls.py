"""Calls of tasks: ``enqueue(call)``, the ``JobList`` of many, and the signal of each new job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_pgqueue import (
    Batch,
    Job,
    Unique,
    aenqueue,
    cancel,
    chain,
    enqueue,
    enqueue_many,
    task,
)
from django_pgqueue.compat import InvalidTask, task_enqueued
from django_pgqueue.testing import dummy_jobs

pytestmark = pytest.mark.django_db


@task(queue_name="mail", max_attempts=3)
def mail(pk: int, note: str = "") -> str:
    return f"{pk}{note}"


@task(unique=Unique(key="pk"))
def index(pk: int) -> None:
    pass


def test_a_call_is_enqueued_with_its_options() -> None:
    call = mail.bind(7, note="x").using(
        priority=5, max_attempts=9, timeout=timedelta(minutes=2), expires_after=60, metadata={"a": 1}
    )
    job = Job.objects.get(pk=enqueue(call).pk)
    assert (job.task_path, job.args, job.kwargs) == (mail.module_path, [7], {"note": "x"})
    assert (job.queue_name, job.priority, job.max_attempts, job.timeout) == ("mail", 5, 9, 120)
    assert job.expires_at == job.enqueued_at + timedelta(minutes=1)
    assert async_to_sync(aenqueue)(mail.bind(8)).args == [8]
    assert call.call() == "7x"
    assert async_to_sync(call.acall)() == "7x"


@pytest.mark.parametrize("options", [{"max_attempts": 0}, {"timeout": 0.5}, {"expires_after": -1}])
def test_a_bad_option_is_refused_where_it_is_given(options: Any) -> None:
    with pytest.raises(InvalidTask, match=next(iter(options))):
        mail.bind(7).using(**options)


def test_a_call_goes_through_the_interface_of_django_too() -> None:
    result = mail.bind(7).enqueue()
    assert result.job == Job.objects.get()
    assert async_to_sync(mail.bind(8).aenqueue)().args == [8]


def test_a_call_has_its_arguments() -> None:
    with pytest.raises(TypeError, match=r"enqueue\(call\) takes nothing else"):
        enqueue(mail.bind(7), 8)  # type: ignore[call-arg]


@pytest.mark.parametrize("many", [enqueue_many, chain, Batch().add])
def test_many_calls_are_a_list(many: Any) -> None:
    with pytest.raises(TypeError, match=r"Put the call into a list, or write enqueue\(call\)"):
        many(mail.bind(1))
    for wrong in (mail, 5):
        with pytest.raises(TypeError, match="takes a list of calls"):
            many(wrong)


def test_a_list_of_jobs_is_a_sequence() -> None:
    known = enqueue(index, 2)
    jobs = enqueue_many(index.bind(pk) for pk in (1, 2, 3))
    assert (len(jobs), jobs.ids[1]) == (3, known.pk)
    assert jobs.enqueue_outcomes == ["created", "existing", "created"]
    assert [job.pk for job in jobs] == jobs.ids
    assert [job.enqueue_outcome for job in jobs] == jobs.enqueue_outcomes
    assert jobs[0] is jobs[0]
    assert jobs[-1].pk == jobs.ids[2]
    assert jobs[1:].ids == jobs.ids[1:]
    assert jobs[1:][0] is jobs[1]
    assert known in jobs
    assert repr(jobs) == f"<JobList of 3: {jobs.ids[0]}, {jobs.ids[1]}, {jobs.ids[2]}>"
    with pytest.raises(IndexError):
        jobs[3]


def test_an_item_reads_its_row_once_and_whole() -> None:
    jobs = enqueue_many(mail.bind(pk) for pk in range(3))
    with CaptureQueriesContext(connection) as queries:
        assert [job.id for job in jobs] == jobs.ids
        assert not queries
        assert (jobs[1].args, jobs[1].queue_name, jobs[1].status) == ([1], "mail", "pending")
    assert len(queries) == 1
    cancel(jobs[1])
    jobs[1].refresh_from_db()
    assert jobs[1].status == "cancelled"


def test_an_item_is_read_in_async_code() -> None:
    (job,) = enqueue_many([mail.bind(1)])
    async_to_sync(job.arefresh_from_db)()
    with CaptureQueriesContext(connection) as queries:
        assert job.args == [1]
    assert not queries


def test_jobs_in_memory_are_known() -> None:
    with dummy_jobs() as kept:
        jobs = enqueue_many(mail.bind(pk) for pk in range(2))
        with Batch() as batch:
            added = batch.add([mail.bind(5)])
        assert [*jobs, *added] == kept
        assert jobs[1].args == [1]


# ----------------------------------------------------------------------------
# The signal ``task_enqueued``.


@pytest.fixture
def heard() -> Iterator[list[Any]]:
    """What a receiver of the signal gets."""
    found: list[Any] = []

    def hear(task_result: Any, **kwargs: Any) -> None:
        found.append(task_result)

    task_enqueued.connect(hear)
    yield found
    task_enqueued.disconnect(hear)


def test_every_way_of_enqueuing_sends_the_signal(heard: list[Any]) -> None:
    enqueue(mail, 1)
    enqueue(mail.bind(2))
    async_to_sync(aenqueue)(mail, 3)
    enqueue_many([mail.bind(4), mail.using(priority=7).bind(5, note="x")])
    with Batch() as batch:
        batch.add([mail.bind(6)])
    chain([mail.bind(7), mail.bind(8)])
    mail.enqueue(9)
    assert [result.args for result in heard] == [[number] for number in range(1, 10)]
    assert heard[4].task.priority == 7
    assert heard[4].kwargs == {"note": "x"}
    assert [int(result.id) for result in heard] == list(
        Job.objects.order_by("pk").values_list("pk", flat=True)
    )


def test_the_signal_is_sent_for_new_jobs_only(heard: list[Any]) -> None:
    enqueue_many([index.bind(1), index.bind(1)])
    enqueue(index, 1)
    assert len(heard) == 1


def test_jobs_in_memory_send_the_signal(heard: list[Any]) -> None:
    with dummy_jobs():
        enqueue(mail, 1)
        enqueue_many([mail.bind(2)])
    assert [result.args for result in heard] == [[1], [2]]


def test_without_a_receiver_a_bulk_is_not_read() -> None:
    with CaptureQueriesContext(connection) as queries:
        enqueue_many(mail.bind(pk) for pk in range(3))
    assert len(queries) == 1
