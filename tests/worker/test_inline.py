"""The worker without threads: real claims, runs and reports on the connection of the test, in a transaction
and outside of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_pgqueue import enqueue, enqueue_many, pause, resume, set_limit
from django_pgqueue.models import Job, JobStat
from django_pgqueue.worker.inline import InlineWorker
from tests.app import inline_tasks as tasks
from tests.app.models import Entry
from tests.support.jobs import sql
from tests.support.workers import fresh

pytestmark = pytest.mark.django_db  # in a transaction
autocommit = pytest.mark.django_db(transaction=True)
both = pytest.mark.parametrize("way", ["in a transaction", pytest.param("autocommit", marks=autocommit)])


@pytest.fixture
def way() -> str:
    """The usual one of ``both``."""
    return "in a transaction"


@pytest.fixture
def worker(way: str, db: None) -> Iterator[InlineWorker]:
    tasks.SEEN.clear()
    found = InlineWorker("default")
    yield found
    found.close()


def run_all(worker: InlineWorker) -> list[str]:
    """Run all that is due. Return the kinds of the outcomes."""
    kinds: list[str] = []
    while (result := worker.run_next()) is not None:
        kinds.append(result.outcome.kind)
    return kinds


@pytest.mark.promise("priority", case="priority and time, across queues")
@pytest.mark.parametrize(("calls", "order"), [
    (
        [
            {"queue_name": queue, "priority": priority}
            for queue, priority in [("b", 0), ("a", 0), ("b", 5), ("a", 0), ("c", 5), ("b", -1)]
        ],
        [2, 4, 0, 1, 3, 5],
    ),
    ([{"group_key": group} for group in ["x", "x", "x", None, None, "y", "y"]], [0, 5, 3, 1, 6, 4, 2]),
], ids=["priority and time, across queues", "groups take turns"])  # fmt: skip
def test_the_order(worker: InlineWorker, calls: list[dict[str, Any]], order: list[int]) -> None:
    for number, options in enumerate(calls):
        enqueue(tasks.see.using(**options), number)
    run_all(worker)
    assert order == tasks.SEEN


ENDS = {
    "raise": "retry", "retry_later": "retry", "snooze": "pending", "cancel": "cancelled", "fail": "failed",
    "bad_result": "failed", "exit": "retry",
}  # fmt: skip


@pytest.mark.parametrize("task", [tasks.end, tasks.aend], ids=["sync", "async"])
def test_what_a_task_wrote_before_its_end_stays_as_in_a_worker(worker: InlineWorker, task: Any) -> None:
    jobs = {how: enqueue(task, how) for how in ENDS}
    run_all(worker)
    assert {how: fresh(job).status for how, job in jobs.items()} == ENDS
    assert Entry.objects.count() == len(ENDS)


def test_a_paused_queue_is_left_alone(worker: InlineWorker) -> None:
    enqueue(tasks.see.using(queue_name="held"), "queue")
    pause(queue="held")
    assert run_all(worker) == []
    resume(queue="held")
    assert run_all(worker) == ["done"]


@both
def test_an_atomic_task_commits_or_rolls_back_with_its_report(worker: InlineWorker) -> None:
    jobs = [enqueue(tasks.write_atomically, "fine"), enqueue(tasks.write_atomically, "broken")]
    assert run_all(worker) == ["done", "retry"]
    assert [fresh(job).status for job in jobs] == ["done", "retry"]
    assert list(Entry.objects.values_list("key", flat=True)) == ["fine"]
    assert tasks.SEEN == ["committed fine"]


def test_keys_limits_and_rates_act_as_in_a_worker(worker: InlineWorker) -> None:
    set_limit(queue="slow", concurrency=1)
    enqueue_many(tasks.one_at_a_time.bind(number) for number in range(3))
    enqueue_many(tasks.rated.bind(number) for number in range(3))
    enqueue(tasks.see.using(queue_name="slow"), "slow")
    run_all(worker)
    assert tasks.SEEN == [0, 1, 2, "rated 0", "slow"], "the rate allows one start in an hour"
    assert Job.objects.filter(status__in=["pending", "blocked"]).count() == 2


def test_one_job_runs_alone_if_it_may_start(worker: InlineWorker) -> None:
    first = enqueue(tasks.see, "first")
    chosen = enqueue(tasks.see.using(priority=-5, group_key="x"), "chosen")
    later = enqueue(tasks.see.using(run_after=timedelta(hours=1)), "later")
    limited = [enqueue(tasks.rated, number) for number in (1, 2)]
    result: Any = worker.run_if_due(chosen.pk)
    assert (result.row.id, result.outcome.kind, tasks.SEEN) == (chosen.pk, "done", ["chosen"])
    assert worker.run_if_due(chosen.pk) is None
    assert worker.run_if_due(later.pk) is None
    assert worker.run_if_due(limited[0].pk) is not None
    assert worker.run_if_due(limited[1].pk) is None
    pause(task=tasks.see)
    assert worker.run_if_due(first.pk) is None
    assert fresh(first).status == "pending"


def test_a_job_whose_outcome_is_refused_fails(worker: InlineWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_pgqueue.worker.executor.outcomes.encode_result", lambda *_: '"\\u0000"')
    job = enqueue(tasks.describe, 1)
    assert run_all(worker) == ["failed"]
    assert fresh(job).status == "failed"


def test_callbacks_of_a_job_run_as_at_its_commits_and_others_stay(worker: InlineWorker) -> None:
    """An error of one fails the attempt."""
    with transaction.atomic():
        transaction.on_commit(lambda: tasks.SEEN.append("the test's"))
        for text in ("a", "b"):
            enqueue(tasks.write_and_tell, text)
        job = enqueue(tasks.tell_badly)
        assert run_all(worker) == ["done", "done", "retry"]
        assert tasks.SEEN == ["told a", "told b"]
        assert "callback" in fresh(job).errors[-1]["message"]


@pytest.mark.parametrize("task", [tasks.break_transaction, tasks.abreak_transaction])
def test_a_task_that_breaks_the_transaction_is_undone_alone(worker: InlineWorker, task: Any) -> None:
    with transaction.atomic():
        Entry.objects.create(key="the test's")
        jobs = [enqueue(task, True), enqueue(task, False), enqueue(tasks.see, "after")]
        assert run_all(worker) == ["retry", "retry", "done"]
        messages = [fresh(job).errors[-1]["message"] for job in jobs[:2]]
        assert "duplicate key" in messages[0]
        assert "outside of transaction.atomic()" in messages[1]
        assert list(Entry.objects.values_list("key", flat=True)) == ["the test's"]


def test_the_caller_finds_its_statistics_and_log_lines(
    worker: InlineWorker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "django_pgqueue")
    enqueue(tasks.see, 1)
    sql("SELECT pgqueue_enqueue('tests.app.inline_tasks.nothing') FROM generate_series(1, 3)")
    assert run_all(worker) == ["done", "unknown", "unknown", "unknown"]
    worker.close()
    assert JobStat.objects.get().done == 1
    done, first, rest = [text for text in caplog.messages if "inline_tasks" in text]
    assert "tests.app.inline_tasks.see done" in done
    assert first.startswith("the task tests.app.inline_tasks.nothing is unknown here: requeued 1 job, ")
    assert "requeued 2 jobs" in rest
