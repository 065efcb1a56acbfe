"""Jobs that crash their process: what they count, which jobs continue, and how they end."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from django_pgqueue import cancel, enqueue, enqueue_many
from django_pgqueue.exceptions import TaskTimeout, TooManyCrashes, WorkerLost
from django_pgqueue.models import Job
from tests.app import timing_tasks, worker_tasks
from tests.app.models import Entry
from tests.support.commands import SLOW, Command, is_alive
from tests.support.workers import fresh, until

Start = Callable[..., Command]


def over(job: Job) -> Job:
    """Wait until the job has finished, and return it."""
    until(lambda: fresh(job).is_finished, seconds=SLOW, what=f"{job} over")
    return fresh(job)


def error_classes(job: Job) -> list[str]:
    return [error["class"].rpartition(".")[2] for error in job.errors]


def runs(key: str) -> list[int]:
    """Return the processes that ran the job, in order."""
    return [
        int(note)
        for note in Entry.objects.filter(key=f"{key} runs").order_by("pk").values_list("note", flat=True)
    ]


@pytest.mark.promise("crash-limit")
def test_a_job_that_always_kills_its_process_fails_at_the_limit_and_takes_no_neighbour_along_twice(
    start: Start,
) -> None:
    """Other ways to die are in ``test_hostile.py``."""
    command = start("--threads", "2", BACKOFF_BASE=0, CRASH_LIMIT=3)
    neighbour = enqueue(worker_tasks.wait_for_entry, "go")
    until(lambda: Entry.objects.filter(key="go runs").exists(), seconds=SLOW)
    killer = enqueue(timing_tasks.dies, "k", "SIGKILL")
    failed = over(killer)
    assert (failed.status, failed.crash_count, failed.attempts) == ("failed", 3, 1)
    assert failed.duration is None, "nobody knows"
    assert error_classes(failed) == [TooManyCrashes.__name__]
    assert "died 3 times while it ran, which is the limit" in failed.errors[0]["message"]
    assert len(set(runs("k"))) == 3
    # The first crash hit both jobs. After that the other job was isolated as well and was not affected.
    until(lambda: Entry.objects.filter(key="go runs").count() == 2, seconds=SLOW)
    Entry.objects.create(key="go")
    done = over(neighbour)
    assert (done.status, done.crash_count, done.attempts) == ("done", 1, 1)
    assert done.duration is not None, "its process has said so"
    assert Entry.objects.filter(key="go runs").count() == 2
    assert command.log.count("requeued") == 1, command.log


def has_ended(pid: int) -> bool:
    """Whether its parent can see that: a process is a zombie before the last of its threads is gone."""
    return not is_alive(pid) and len(list(Path(f"/proc/{pid}/task").iterdir())) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says when the last thread is gone")
@pytest.mark.promise("together-counts-none")
def test_processes_that_are_killed_at_the_same_moment_count_no_crash(start: Start) -> None:
    """As if memory was short: their supervisor lives and sees that it was not one of them alone."""
    command = start("--processes", "2", "--threads", "1")
    workers = command.workers(2)
    jobs = [enqueue(worker_tasks.wait_for_entry, key) for key in ("a", "b")]
    begun = Entry.objects.filter(key__in=["a runs", "b runs"])
    until(lambda: begun.count() == 2, seconds=SLOW)
    # It is stopped, so that it finds both dead at once.
    command.send(signal.SIGSTOP)
    for worker in workers:
        os.kill(worker.pid, signal.SIGKILL)
    until(lambda: all(has_ended(worker.pid) for worker in workers), seconds=SLOW)
    command.send(signal.SIGCONT)
    until(lambda: begun.count() == 4, seconds=SLOW)
    for key in ("a", "b"):
        Entry.objects.create(key=key)
    done = [over(job) for job in jobs]
    assert [(job.status, job.crash_count, job.lost_in_a_row) for job in done] == [("done", 0, 1)] * 2


@pytest.mark.promise("alone-counts-a-crash")
def test_what_was_only_prefetched_counts_nothing(start: Start) -> None:
    killer = enqueue(timing_tasks.dies_once.using(priority=1), "k")
    rest = enqueue_many(worker_tasks.noop.bind() for _ in range(50)).ids
    command = start("--threads", "1")
    assert over(killer).status == "done"
    until(lambda: Job.objects.filter(pk__in=rest, status="done").count() == 50, seconds=SLOW)
    assert set(Job.objects.filter(pk__in=rest).values_list("crash_count", "attempts")) == {(0, 1)}
    assert fresh(killer).crash_count == 1
    assert command.process.poll() is None


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.promise("crashed-runs-isolated")
def test_a_job_that_has_crashed_before_runs_isolated(start: Start, is_async: bool) -> None:
    command = start("--threads", "2")
    job = enqueue(timing_tasks.adies_once, "k") if is_async else enqueue(timing_tasks.dies_once, "k")
    done = over(job)
    first, second = runs("k")
    (worker,) = command.workers()
    assert (done.status, done.result, done.attempts) == ("done", second, 1)
    assert len({first, second, worker.pid, command.process.pid}) == 4
    assert done.worker == worker.pk


def test_an_isolated_job_hears_that_it_is_cancelled(start: Start) -> None:
    start("--threads", "1")
    job = enqueue(timing_tasks.dies_once_then_waits, "k")
    until(lambda: len(runs("k")) == 2, seconds=SLOW)
    cancel(job)
    assert over(job).result == "asked"


def test_an_isolated_job_that_never_ends_is_killed_after_its_timeout(start: Start) -> None:
    command = start("--threads", "1", TIMEOUT_GRACE=0.5)
    job = enqueue(timing_tasks.dies_once_then_never_ends, "k")
    failed = over(job)
    assert (failed.status, failed.crash_count) == ("failed", 1)
    assert error_classes(failed) == [TaskTimeout.__name__]
    assert len(re.findall(r"process \d+ ended with", command.log)) == 1


@pytest.mark.promise("on-lost-never-again")
def test_what_must_not_run_twice_fails_after_its_first_crash(start: Start) -> None:
    command = start("--threads", "1")
    failed = over(enqueue(timing_tasks.dies_and_must_not_run_twice, "k"))
    assert failed.status == "failed"
    assert error_classes(failed) == [WorkerLost.__name__]
    assert len(runs("k")) == 1
    # Its process cannot say so any more: the supervisor does.
    command.logged(f"job {failed.pk} {failed.task_path} failed (queue ")
    command.logged(f": {failed.errors[0]['message']}")


def test_the_process_of_an_isolated_job_ends_with_its_worker(start: Start) -> None:
    command = start("--threads", "1")
    enqueue(timing_tasks.dies_once_then_waits, "k")
    until(lambda: len(runs("k")) == 2, seconds=SLOW)
    command.send(signal.SIGKILL)
    until(lambda: not is_alive(runs("k")[1]), seconds=SLOW)
