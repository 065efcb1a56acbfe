"""Tasks that fork: the child does not become a second worker, and does not disturb the worker."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from django_pgqueue import enqueue, enqueue_many
from tests.app import forking_tasks as tasks
from tests.app.models import Entry
from tests.support.commands import SLOW, Start, is_alive, over, with_database
from tests.support.jobs import fetch
from tests.support.workers import fresh, until

WAYS_OUT = {"return": 0, "raise": 1, "exit": 3, "say and exit": 1}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file to which processes write lines."""
    path = tmp_path / "said"
    path.touch()
    return path


def said(path: Path) -> list[tuple[int, str]]:
    """Return the lines that processes have written."""
    lines = [line.partition(" ") for line in path.read_text().splitlines()]
    return [(int(pid), words) for pid, _, words in lines]


FORKS = [tasks.fork, tasks.fork_in_atomic, tasks.afork, tasks.fork_under_to_thread]


@pytest.mark.parametrize("task", FORKS, ids=lambda task: task.name)
def test_a_child_that_comes_out_of_its_task_ends_there(start: Start, path: Path, task: Any) -> None:
    before = enqueue_many(tasks.run_here.bind(str(path)) for _ in range(5)).ids
    forks = {way: enqueue(task, str(path), way) for way in WAYS_OUT}
    after = enqueue_many(tasks.run_here.bind(str(path)) for _ in range(5)).ids
    command = start("--threads", "1")
    over(*before, *forks.values(), *after)
    assert {way: fresh(job).result for way, job in forks.items()} == WAYS_OUT, command.log
    assert [fresh(pk).status for pk in (*before, *after)] == ["done"] * 10
    command.send(signal.SIGTERM)
    assert command.wait() == 0, command.log
    # Each ran once, all in the same process.
    lines = said(path)
    assert len({pid for pid, _ in lines}) == 1
    assert sorted(words for _, words in lines) == ["ran"] * 10 + sorted(f"runs {way}" for way in WAYS_OUT)
    assert "was refused" not in command.log
    if task is tasks.fork_in_atomic:
        assert sorted(Entry.objects.values_list("key", flat=True)) == sorted(WAYS_OUT)


def test_a_child_of_the_event_loop_runs_no_other_job(start: Start, path: Path, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    command = start("--threads", "6")
    ticking = [enqueue(tasks.tick, str(path), str(stop)) for _ in range(5)]
    until(lambda: fresh(ticking[-1]).status == "running", seconds=SLOW)
    forks = [enqueue(tasks.afork, str(path), way) for way in ("await", "return", "yield", "raise", "yield")]
    over(*forks)
    stop.touch()
    over(*ticking)
    assert [fresh(job).result for job in forks] == [1, 0, 1, 1, 1], command.log
    assert "a process forked by an async task cannot await" in command.log
    assert len({pid for pid, _ in said(path)}) == 1


def test_pools_of_processes_work_and_can_be_ended(start: Start, path: Path) -> None:
    command = start("--threads", "2")
    pools = [enqueue(tasks.use_pools) for _ in range(4)]
    beside = enqueue_many(tasks.run_here.bind(str(path)) for _ in range(20)).ids
    over(*pools, *beside)
    assert [fresh(job).result for job in pools] == [[[1, 4, 9], [16, 25]]] * 4, command.log
    assert len(said(path)) == 20


def test_a_signal_that_reaches_a_child_at_once_is_not_lost(start: Start) -> None:
    command = start(env={"DJANGO_SETTINGS_MODULE": "tests.chaos.settings", "TEST_SLOW_FORK": "1"})
    job = enqueue(tasks.end_pools)
    over(job)
    assert fresh(job).status == "done", command.log
    assert "race condition" not in command.log


@pytest.mark.parametrize("options", [{}, {"OPTIONS": {"pool": {"min_size": 1, "max_size": 2}}}])
def test_a_child_has_connections_of_its_own_and_not_the_transaction_of_its_parent(
    start: Start, options: dict[str, Any]
) -> None:
    command = start("--threads", "2", env=with_database(**options))
    jobs = [enqueue(tasks.share_connection) for _ in range(3)]
    transaction = enqueue(tasks.share_transaction)
    over(*jobs, transaction)
    assert [fresh(job).result for job in (*jobs, transaction)] == [*[[[0, 0], True]] * 3, 1], command.log
    assert "Cannot open a new connection in an atomic block" in command.log
    keys = [*["child"] * 6, *["parent"] * 3, "parent after the child", "parent in a transaction"]
    assert sorted(Entry.objects.values_list("key", flat=True)) == keys


def test_a_child_that_outlives_its_worker_holds_nothing(start: Start, path: Path, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    command = start()
    (worker,) = command.workers()
    enqueue(tasks.leave_child, str(path), str(stop))
    ((child, backend),) = until(lambda: said(path), seconds=SLOW)
    mine = {int(backend), *sessions("application_name LIKE 'pgqueue %'")}
    os.kill(command.process.pid, signal.SIGSTOP)  # so that it does not start another process
    try:
        os.kill(worker.pid, signal.SIGKILL)
        until(lambda: len(mine & sessions("true")) <= 1, seconds=SLOW, what="the end of its sessions")
        # The remaining session is the supervisor's.
        assert int(backend) not in sessions("true")
        assert is_alive(child)
    finally:
        os.kill(command.process.pid, signal.SIGCONT)
        stop.touch()
        until(lambda: not is_alive(child), seconds=SLOW)


def sessions(which: str) -> set[int]:
    """Return the server processes of the sessions of this database."""
    query = f"SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND {which}"
    return {pid for (pid,) in fetch(query)}
