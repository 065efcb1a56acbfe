"""The statements of the pages: SQL that enqueues and changes jobs, figures for monitoring, upgrades."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError
from django.utils import timezone

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.maintenance.payloads import synchronize_tasks
from django_pgqueue.models import Job, JobStat, Pause, Schedule, ScheduleRun, Worker
from tests.support.factories import JobFactory, JobStatFactory, WorkerFactory, ago
from tests.support.figures import classes
from tests.support.jobs import value
from tests.support.sessions import open_raw

from .shop import ask, ask_by_name, committed, example, fresh, in_shop, order, run, statements

pytestmark = in_shop


def test_enqueue_from_sql() -> None:
    order(pk=1)
    synchronize_tasks("default")  # as migrate does
    ask(statements("enqueue"))
    first, second = Job.objects.order_by("pk")
    assert (first.args, first.queue_name, first.max_attempts) == ([1], "mail", 5)
    assert (second.kwargs, second.queue_name, second.priority) == ({"order_id": 1}, "receipts", 10)
    assert run(first).status == "done"
    Job.objects.all().cancel()
    ask(statements("trigger"))
    example("models").Order.objects.update(paid=True)
    assert Job.objects.latest("pk").args == [1]


def test_change_jobs_from_sql() -> None:
    receipt = example("tasks").send_receipt
    ids = enqueue_many(receipt.bind(number) for number in range(3)).ids
    assert [row[:3] for row in ask(statements("depth"))] == [("mail", "pending", 3)]
    status = re.sub(r"\b1\b", str(ids[0]), statements("statuses"))
    assert ask(status) == [("pending", True, False)]
    ask(re.sub(r"\b[123]\b", lambda found: str(ids[int(found[0]) - 1]), statements("control")))
    assert {job.status for job in Job.objects.all()} == {"cancelled"}
    assert ask(status) == [("cancelled", False, True)]
    ids = enqueue_many(receipt.bind(number) for number in range(3)).ids
    ask(re.sub(r"\[1, 2\]", lambda _: f"[{ids[0]}, {ids[1]}]", statements("edit")))
    found = [(job.priority, job.queue_name) for job in Job.objects.filter(pk__in=ids).order_by("pk")]
    assert found == [(10, "slow"), (10, "slow"), (0, "slow")]


def test_pause_and_drain_from_sql() -> None:
    ask(statements("pause"))
    assert list(Pause.objects.order_by("kind").values_list("kind", "name")) == [
        ("queue", "mail"), ("task", "shop.tasks.send_receipt"),
    ]  # fmt: skip
    WorkerFactory.create(pk=4711)
    assert ask(statements("drain_worker")) == [(True,)]
    assert Worker.objects.get().drain == "stop"
    ask(statements("wake_off"))
    assert ask("SELECT _pgqueue_wake_once('default')") == [(False,)]


def test_a_worker_in_another_language_reports_a_job() -> None:
    """Another program claims a job (here: the worker's statement) and reports it by the procedure."""
    job = enqueue(example("tasks").send_receipt, 1)
    Job.objects.filter(pk=job.pk).update(status="running", lease=77, worker=5, attempts=1)
    call = statements("finish").replace(":job", str(job.pk)).replace(":lease", "77")
    ask(call)
    assert fresh(job).result == {"sent": True}
    with pytest.raises(IntegrityError) as refusal:
        ask(call)
    assert getattr(refusal.value.__cause__, "sqlstate", "") == "23Q01"


def test_the_calls_of_a_worker_in_another_language() -> None:
    ask("SELECT pgqueue_enqueue('media.ratio', '[8, 2]', queue_name => 'media')")
    known: dict[str, object] = {}
    answers = []
    for statement in filter(str.strip, statements("worker").split(";\n")):
        for row in ask(re.sub(r":(worker|job|lease)\b", lambda found: str(known[found[1]]), statement)):
            answers.append(row)
            if "register_worker(" in statement:
                known["worker"] = row[0]
            elif "claim(" in statement:
                known["job"], known["lease"] = row[:2]
    assert answers[1] == (True, [], False)
    assert answers[2][2] == "media.ratio"
    assert answers[3] == (True,)
    job = Job.objects.get()
    assert (job.status, job.result, job.duration) == ("done", 4, 0.3)


# --- Monitoring: each statement counts what it says, and nothing else


def plainly(value: object) -> object:
    """A value without what is another one in each run."""
    if isinstance(value, timedelta):
        return f"{value // timedelta(hours=1)} h" if value > timedelta(hours=1) else "<s>"
    if isinstance(value, Decimal):
        return f"{value // 3600} h" if value > 3600 else int(value)
    return "<time>" if isinstance(value, datetime) else value


def test_statements_for_monitoring_and_reasons_say_what_there_is(wording: Any) -> None:
    """Finished and future jobs, old failures and minutes, and silent workers are not counted."""
    late = {"run_after": ago(hours=2, minutes=1)}
    JobFactory.create_batch(2, queue_name="mail", **late)
    for trait in ("scheduled", "retrying", "done"):
        JobFactory.create(queue_name="mail", **{trait: True})
    for name in ("reports", "slow"):
        JobFactory.create(queue_name=name, **late)
    WorkerFactory.create(pk=1, host="app-1", pid=1, slots=2, queues=["mail"])
    silent = ago(hours=1, minutes=1)
    WorkerFactory.create(pk=2, host="app-2", pid=2, queues=["reports", "mail"], heartbeat_at=silent)
    WorkerFactory.create(pk=3, host="app-3", pid=3, exclude_queues=["mail", "slow", "reports"])
    for pk, worker, since in ((901, 1, ago(hours=1, minutes=1)), (902, 3, ago(seconds=1))):
        JobFactory.create(pk=pk, queue_name="later", running=True, worker=worker, last_attempted_at=since)
    JobFactory.create_batch(2, queue_name="mail", failed=True)
    JobFactory.create(queue_name="mail", failed=True, finished_at=ago(minutes=6))
    JobFactory.create(queue_name="audit", done=True, shelf=9)  # kept for longer, but not failed
    # Of 100 attempts, 94 took up to 4 ms, 5 up to 1.024 s and one longer than the last bound.
    minute = {"minute": ago(minutes=5).replace(second=0, microsecond=0)}
    counts = {"done": 10, "failed": 1, "retried": 2, "cancelled": 3}
    JobStatFactory.create(**minute, **counts, run_histogram=classes(c2=94))
    JobStatFactory.create(**minute, done=5, queue_name="other", run_histogram=classes(c10=5, c23=1))
    JobStatFactory.create(minute=ago(hours=2), done=100, run_histogram=classes(c5=1000))
    JobStatFactory.create(**minute, done=0, run_histogram=classes(c23=5), task_path="tests.app.tasks.slow")
    folders = {"monitor": "queues unserved workers failures throughput running percentiles",
               "why": "workers slots", "upgrade": "unfinished"}  # fmt: skip
    found = {
        f"{folder}/{name}": [
            ", ".join(f"{column}={plainly(value)}" for column, value in row.items())
            for row in ask_by_name(statements(f"{folder}/{name}"))
        ]
        for folder, names in folders.items()
        for name in names.split()
    }
    assert found == wording


def test_the_sizes_of_the_partitions() -> None:
    found = ask_by_name(statements("monitor/sizes"))
    assert len(found) == 10
    assert {row["table_name"] for row in found} >= {
        "pgqueue_job_live", "pgqueue_job_past_1", "pgqueue_job_kept",
    }  # fmt: skip
    assert all(row["bytes"] > 0 for row in found)


# --- Why a job does not run


def why(name: str, job: int = 1) -> list[dict[str, Any]]:
    """What a statement of the page says about a job."""
    return ask_by_name(re.sub(r"(?<=why\()1", str(job), statements(f"why/{name}")))


@committed
def test_a_job_whose_transaction_has_not_committed() -> None:
    def of_the_shell() -> list[dict[str, Any]]:
        return [found for found in why("transactions") if found["application_name"] == "the shell"]

    with open_raw() as other:
        other.autocommit = False
        other.execute("SET application_name = 'the shell'")
        job = value(other, "SELECT pgqueue_enqueue('shop.tasks.send_receipt', '[1]')")
        assert why("reason", job)[0]["code"] == "unknown"
        (open_one,) = of_the_shell()
        assert open_one["state"] == "idle in transaction"
        assert open_one["open_for"] > timedelta(0)
        assert "pgqueue_enqueue" in open_one["last_query"]
        other.commit()
        assert why("reason", job)[0]["code"] == "no_worker"
    assert of_the_shell() == []


# --- Upgrading and uninstalling


SEQUENCES = """
    SELECT oid::regclass::text FROM pg_class
    WHERE relkind = 'S' AND relname LIKE 'pgqueue%' AND relnamespace = 'public'::regnamespace
"""


@committed
def test_the_sequences_are_moved_beyond_all_ids() -> None:
    """As on a subscriber: the rows have been replicated, and the sequences have not."""
    before = enqueue(example("tasks").send_receipt, 1)
    schedule = Schedule.objects.create(name="nightly", task_path="shop.tasks.send_receipt", cron="0 3 * * *")
    ScheduleRun.objects.create(schedule=schedule, run_at=timezone.now(), outcome="missed")
    names = [name for (name,) in ask(SEQUENCES)]
    for name in names:
        ask(f"SELECT setval('{name}', 1, false)")
    ask(statements("upgrade/sequence"))
    assert [name for name in names if ask(f"SELECT nextval('{name}')")[0][0] <= 999_999] == []
    assert enqueue(example("tasks").send_receipt, 1).pk > before.pk


@committed
def test_a_copy_for_development_is_emptied() -> None:
    for traits in ({"done": True}, {"failed": True}, {}):
        JobFactory.create(**traits)
    WorkerFactory.create()
    JobStatFactory.create()
    ask(statements("upgrade/empty_copy"))
    assert [model.objects.count() for model in (Job, Worker, JobStat)] == [0, 0, 0]
    assert enqueue(example("tasks").send_receipt, 1).status == "pending"
