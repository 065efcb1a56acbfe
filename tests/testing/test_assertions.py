"""``assert_enqueued``, ``assert_not_enqueued`` and ``enqueued``: what they find, and what they say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.testing import assert_enqueued, assert_not_enqueued, enqueued, run_jobs
from tests.app import inline_tasks as tasks
from tests.app.worker_tasks import add

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


def test_times_may_be_given_as_the_time_since_the_enqueue() -> None:
    enqueue(add.using(run_after=timedelta(hours=1)), 1)
    enqueue(add, 2)
    assert assert_enqueued(add, run_after=timedelta(hours=1)).args == [1]
    assert assert_enqueued(add, run_after=None).args == [2]


def test_the_message_shows_the_nearest_jobs_and_what_differs() -> None:
    near = enqueue(add.using(queue_name="mail"), 1, b=2)
    far = enqueue(add.using(run_after=timedelta(hours=1)), 7, b=3)
    with pytest.raises(AssertionError) as caught:
        assert_enqueued(add, args=[1], kwargs={"b": 3}, queue_name="mail", run_after=None)
    first, *lines = str(caught.value).splitlines()
    assert first == (
        "Expected a job of tests.app.worker_tasks.add with args=[1], kwargs={'b': 3}, queue_name='mail', "
        "run_after=None, but there is none."
    )
    assert lines == [
        "The nearest of 2 other jobs of this task:",
        f"  job {near.pk}: tests.app.worker_tasks.add(1, b=2), pending, queue mail",
        "    kwargs['b'] is 2, not 3",
        f"  job {far.pk}: tests.app.worker_tasks.add(7, b=3), pending, queue default",
        "    args is [7], not [1]",
        "    queue_name is 'default', not 'mail'",
        "    run_after is 1:00:00 after the enqueue, not at once",
    ]


def test_the_message_names_other_tasks_if_there_is_no_such_job() -> None:
    with pytest.raises(AssertionError, match=r"No job at all was enqueued"):
        assert_enqueued(add)
    enqueue(tasks.see, 1)
    enqueue(tasks.see, 2)
    with pytest.raises(AssertionError, match=r"Jobs of other tasks: tests\.app\.inline_tasks\.see \(2\)\."):
        assert_enqueued(add)


def test_the_messages_of_counts_show_what_was_found() -> None:
    job = enqueue(add, 1)
    with pytest.raises(AssertionError, match=r"Expected 2 jobs of .*, but there is 1\.\n  job"):
        assert_enqueued(add, count=2)
    with pytest.raises(AssertionError, match=rf"Expected no job of .* but there is 1\.\n  job {job.pk}:"):
        assert_not_enqueued(add, args=[1])


@pytest.mark.parametrize(("wrong", "message"), [
    ({"args": 1}, r"args=\[1\], not 1"),
    ({"args": "ab"}, r"args=\['ab'\], not 'ab'"),
    ({"kwargs": [1]}, "kwargs takes a dict"),
    ({"run_after": 60}, "run_after takes an aware datetime, a timedelta or None, not 60"),
    ({"run_after": datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)}, "has no time zone"),
])  # fmt: skip
def test_values_that_no_job_could_have_are_refused(wrong: dict[str, Any], message: str) -> None:
    for check in (assert_enqueued, assert_not_enqueued):
        with pytest.raises((TypeError, ValueError), match=message):
            check(add, **wrong)


@pytest.mark.parametrize("call", [lambda: assert_enqueued(WRONG), lambda: assert_not_enqueued(WRONG)])
def test_what_is_no_task_is_refused(call: Any) -> None:
    with pytest.raises(TypeError, match="takes a task, or the path of a task"):
        call()


def test_a_block_collects_jobs_whichever_way_they_come() -> None:
    enqueue(add, 0)
    with enqueued() as jobs:
        enqueue(add, 1)
        enqueue_many([add.bind(2), tasks.see.bind(3)])
        add.enqueue(4)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pgqueue_enqueue('tests.app.worker_tasks.add', '[5]')")
        run_jobs()
        assert jobs == []
    enqueue(add, 6)
    assert [job.args for job in jobs] == [[1], [2], [3], [4], [5]]
    assert {job.status for job in jobs} == {"done"}
    assert_enqueued(add, args=[5], among=jobs)
    assert_not_enqueued(add, args=[6], among=jobs)


def test_a_block_may_collect_the_jobs_of_one_task() -> None:
    with enqueued(tasks.see) as jobs:
        enqueue(add, 1)
        enqueue(tasks.see, 2)
    assert [job.args for job in jobs] == [[2]]


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
    with pytest.raises(AssertionError, match=r"with arguments=\{'a': 2, 'b': 5\}.*\n.*\n.*\n +b is 1, not 5"):
        assert_enqueued(add.bind(2, 5))


def test_a_call_has_its_arguments_and_nothing_else() -> None:
    with pytest.raises(TypeError, match="Give either the call"):
        assert_enqueued(add.bind(1, 2), args=[1, 2])
    with pytest.raises(TypeError, match=r"such as priority=\.\.\."):
        assert_enqueued(add.using(priority=5).bind(1, 2))


def test_a_job_whose_arguments_do_not_fit_is_another() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_enqueue(%s, '[1, 2, 3]')", [add.module_path])
    with pytest.raises(AssertionError, match="its arguments do not fit"):
        assert_enqueued(add.bind(1, 2))
