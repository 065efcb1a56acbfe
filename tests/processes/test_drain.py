"""A worker that is asked in the database to end finishes its jobs first, as after SIGTERM."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from django_pgqueue import enqueue, pause, resume
from django_pgqueue.jobs.limits import drain_worker
from django_pgqueue.models import Job, Worker
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.commands import SLOW, Command, databases
from tests.support.poolers import pgbouncer
from tests.support.workers import fresh, until

Start = Callable[..., Command]


@pytest.mark.promise("drain")
def test_a_process_that_is_to_be_replaced_finishes_its_jobs_first(start: Start) -> None:
    command = start("--threads", "1")
    (old,) = command.workers()
    job = enqueue(tasks.wait_for_entry, "go")
    until(lambda: Entry.objects.filter(key="go runs").exists(), seconds=SLOW)
    assert drain_worker(old)
    until(lambda: Worker.objects.get(pk=old.pk).state == "draining", seconds=SLOW)
    assert fresh(job).status == "running"
    Entry.objects.create(key="go")
    until(lambda: fresh(job).status == "done", seconds=SLOW)
    until(lambda: not Worker.objects.filter(pk=old.pk).exists(), seconds=SLOW)
    (new,) = command.workers()
    assert (new.supervisor, new.drain) == (old.supervisor, "")
    after = enqueue(tasks.noop)
    until(lambda: fresh(after).status == "done", seconds=SLOW)
    assert command.process.poll() is None


@pytest.mark.promise("drain")
def test_a_worker_that_is_to_stop_ends_with_all_its_processes(start: Start) -> None:
    command = start("--processes", "3", "--threads", "1")
    job = enqueue(tasks.wait_for_entry, "go")
    until(lambda: Entry.objects.filter(key="go runs").exists(), seconds=SLOW)
    addressed = command.workers(3)[0]
    assert drain_worker(addressed, replace=False)
    # The others end, although only the row of one of them was changed. Who runs the job finishes it.
    until(lambda: Worker.objects.exclude(state="draining").count() == 0, seconds=SLOW)
    Entry.objects.create(key="go")
    assert command.wait() == 0, command.log
    assert fresh(job).status == "done"
    assert not Worker.objects.exists()


def test_pauses_and_drains_arrive_behind_a_pooler(start: Start) -> None:
    with pgbouncer() as pooler:
        given = databases()
        given["default"].update(pooler.address())
        command = start(env={"TEST_DATABASES": json.dumps(given)}, POLL_INTERVAL=0.2)
        (worker,) = command.workers()
        pause(task=tasks.noop)
        # Until the worker has read the pause it may run such jobs.
        job = until(lambda: _blocked(enqueue(tasks.noop)), seconds=SLOW)
        resume(task=tasks.noop)
        until(lambda: fresh(job).status == "done", seconds=SLOW)
        assert drain_worker(worker, replace=False)
        assert command.wait() == 0, command.log


def _blocked(job: Job) -> Job | None:
    """Wait until the worker has run the job or put it aside. Return it in the second case."""
    until(lambda: fresh(job).status in {"blocked", "done"}, seconds=SLOW)
    return job if fresh(job).status == "blocked" else None
