"""Tasks that change their process, end it, never end, or fork: the worker and all other jobs continue."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.models import Job
from tests.app import deadly_tasks as tasks, forking_tasks, worker_tasks
from tests.app.models import Entry
from tests.chaos.harness.havoc import end
from tests.chaos.scenarios.poison import peak_mebibytes
from tests.support.commands import ROOT, SLOW, Start, begun, is_alive, over, with_database
from tests.support.jobs import fetch, sql
from tests.support.workers import fresh, until


def test_a_task_that_changes_the_process_does_not_harm_the_worker(start: Start, tmp_path: Path) -> None:
    (tmp_path / "modules" / "found_late").mkdir(parents=True)
    (tmp_path / "modules" / "found_late" / "__init__.py").touch()
    (tmp_path / "modules" / "found_late" / "late.py").write_text(
        "from django_pgqueue import task\n@task\ndef work():\n    return 'found'\n"
    )
    environment = {
        **with_database(OPTIONS={"sslrootcert": "certificates/root.crt"}),  # no server requires it here
        "DJANGO_SETTINGS_MODULE": "tests.processes.settings",
        "TEST_RELATIVE_PATH": os.path.relpath(tmp_path / "modules", ROOT),
    }
    command = start("--threads", "2", env=environment)
    (worker,) = command.workers()
    at_exit = enqueue(tasks.do_at_exit, str(tmp_path / "said"))
    over(at_exit)
    change = enqueue(tasks.change_everything, str(tmp_path / "gone"))
    over(change)
    assert fresh(change).status == "done", fresh(change).errors
    sql(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    late = sql("SELECT pgqueue_enqueue('found_late.late.work')")
    jobs = [enqueue(task) for task in (tasks.where, worker_tasks.backend, worker_tasks.aid_everywhere)]
    jobs += [enqueue(worker_tasks.snooze, 600), enqueue(worker_tasks.abackend)]
    over(late, *jobs[:3], jobs[4])
    assert [fresh(job).status for job in jobs] == ["done", "done", "done", "pending", "done"], command.log
    assert fresh(late).result == "found"
    # The changes were visible in the same process. What they do to other jobs is the task's fault.
    assert fresh(jobs[0]).result == [worker.pid, "gone", "JST", str(ROOT / "certificates/root.crt")]
    # The times come from the database.
    snoozed: Any = fresh(jobs[3])
    assert 590 < (snoozed.run_after - snoozed.enqueued_at).total_seconds() < 600 + SLOW
    end(command)
    assert (tmp_path / "said").exists(), "exit handlers run"


def test_a_task_that_stops_its_own_process_is_done_and_the_process_replaced(start: Start) -> None:
    command = start("--threads", "1")
    job = enqueue(tasks.stop_own_process)
    others = enqueue_many(worker_tasks.count_runs.bind("x") for _ in range(20)).ids
    over(job, *others)
    assert (fresh(job).status, fresh(job).attempts) == ("done", 1)
    assert Job.objects.filter(pk__in=others, status="done", attempts=1).count() == 20
    assert Entry.objects.count() == 20
    command.logged("process", times=2)
    assert command.log.count("started") == 2


def test_a_task_that_prints_a_gibibyte(start: Start) -> None:
    """While nobody reads the output, only the writing job waits. Then all of the output arrives."""
    command = start("--threads", "2", "--verbosity", "0", stdout=subprocess.PIPE)
    (worker,) = command.workers()
    before = peak_mebibytes(worker.pid)
    printing = enqueue(tasks.print_much, 1024)
    until(lambda: fresh(printing).status == "running", seconds=SLOW)
    others = enqueue_many(worker_tasks.add.bind(number) for number in range(20)).ids
    over(*others, enqueue(worker_tasks.aid_everywhere))
    assert fresh(printing).status == "running"
    pipe: Any = command.process.stdout
    read = 0
    while read < 2**30:
        read += len(os.read(pipe.fileno(), 2**20))
    assert read == 2**30
    over(printing)
    assert fresh(printing).status == "done"
    assert [each.pk for each in command.workers()] == [worker.pk]
    assert peak_mebibytes(worker.pid) - before < 512, "it has never held what it printed"
    end(command)
    pipe.close()


def test_a_task_that_closes_the_standard_streams_silences_the_worker_only(start: Start) -> None:
    command = start("--threads", "1", "--verbosity", "2")
    (worker,) = command.workers()
    closing = enqueue(tasks.close_streams)
    others = enqueue_many(worker_tasks.count_runs.bind("x") for _ in range(5)).ids
    failing = enqueue(worker_tasks.raise_odd, "SystemExit")
    over(closing, failing, *others)
    assert fresh(closing).status == "done"
    assert fresh(failing).status == "failed"
    assert Job.objects.filter(pk__in=others, status="done", attempts=1).count() == 5
    assert set(Entry.objects.values_list("note", flat=True)) == {str(worker.pid)}
    end(command)


WAYS = [(tasks.die, "exit"), (tasks.die, "segfault"), (tasks.adie, "SIGKILL"), (tasks.die_in_thread, "abort")]


@pytest.mark.parametrize(("task", "how"), WAYS, ids=lambda value: getattr(value, "name", value))
@pytest.mark.promise("alone-counts-a-crash", "crash-limit")
def test_a_killer_takes_no_job_with_it(start: Start, task: Any, how: str) -> None:
    command = start("--threads", "2", BACKOFF_BASE=0.1, CRASH_LIMIT=2)
    before = enqueue_many(worker_tasks.count_runs.bind("before") for _ in range(10)).ids
    over(*before)
    beside = enqueue(worker_tasks.wait_for_entry, "go")
    begun("go")
    killer = enqueue(task, how)
    after = enqueue_many(worker_tasks.count_runs.bind("after") for _ in range(30)).ids
    over(killer, *after)
    Entry.objects.create(key="go")
    over(beside)
    failed, neighbor = fresh(killer), fresh(beside)
    assert (failed.status, failed.crash_count, failed.attempts) == ("failed", 2, 1), command.log
    assert failed.duration is None, "nobody knows"
    assert [error["class"].rpartition(".")[2] for error in failed.errors] == ["TooManyCrashes"]
    assert "died 2 times while it ran, which is the limit" in failed.errors[0]["message"]
    # Its process cannot say so any more: the supervisor does.
    command.logged(f"job {failed.pk} {failed.task_path} failed (queue ")
    # The first time it crashed a process with other jobs. After that it ran alone.
    assert (neighbor.crash_count, neighbor.duration is None) == (1, False)
    assert Entry.objects.filter(key="go runs").count() == 2
    ended = Job.objects.filter(pk__in=[beside.pk, *after], status="done", attempts=1)
    assert ended.count() == 31
    if task is tasks.die:  # others leave the other thread free, where jobs begin before the death
        assert ended.filter(crash_count=0).count() >= 25, "all that had not begun"
    # A job that was done when the process died, but not reported yet, runs once more.
    assert Entry.objects.filter(key="after").count() >= 30
    (worker,) = command.workers()
    other = enqueue(worker_tasks.whole_process)
    over(other)
    assert fresh(other).result[0] == worker.pid  # type: ignore[index]


@pytest.mark.parametrize("loops", [
    [(tasks.loop, "stubborn"), (tasks.loop, "sleep"), (tasks.aloop, "stubborn")],
    # Each of these blocks the event loop or the whole process for the other jobs.
    [(tasks.aloop, "Python")],
    [(tasks.aloop, "sleep")],
    [(tasks.aloop, "GIL")],
], ids=lambda loops: ", ".join(f"{task.name} {how}" for task, how in loops))  # fmt: skip
def test_endless_loops_end_by_their_timeout(start: Start, loops: list[tuple[Any, str]]) -> None:
    sooner = {"supervisor.KILL_AFTER": 1.0} if any(how == "GIL" for _, how in loops) else {}
    command = start("--threads", str(1 + len(loops)), "--grace", "2", constants=sooner, TIMEOUT_GRACE=1)
    others = enqueue_many(worker_tasks.count_runs.bind("before") for _ in range(10)).ids
    endless = [enqueue(task, how) for task, how in loops]
    others += enqueue_many(worker_tasks.count_runs.bind("after") for _ in range(10)).ids
    others += enqueue_many(worker_tasks.abackend.bind() for _ in range(5)).ids
    over(*endless, *others)
    for job in endless:
        failed = fresh(job)
        assert (failed.status, failed.attempts) == ("failed", 1), command.log
        assert failed.errors[-1]["class"] == "django_pgqueue.exceptions.TaskTimeout"
    assert Job.objects.filter(pk__in=others, status="done", attempts=1).count() == 25
    over(enqueue(worker_tasks.noop))


# --- Tasks that fork: the child does not become a second worker, and does not disturb the worker


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


FORKS = [
    forking_tasks.fork,
    forking_tasks.fork_in_atomic,
    forking_tasks.afork,
    forking_tasks.fork_under_to_thread,
]


@pytest.mark.parametrize("task", FORKS, ids=lambda task: task.name)
def test_a_child_that_comes_out_of_its_task_ends_there(start: Start, path: Path, task: Any) -> None:
    before = enqueue_many(forking_tasks.run_here.bind(str(path)) for _ in range(5)).ids
    forks = {way: enqueue(task, str(path), way) for way in WAYS_OUT}
    after = enqueue_many(forking_tasks.run_here.bind(str(path)) for _ in range(5)).ids
    command = start("--threads", "1")
    over(*before, *forks.values(), *after)
    assert {way: fresh(job).result for way, job in forks.items()} == WAYS_OUT, command.log
    assert [fresh(pk).status for pk in (*before, *after)] == ["done"] * 10
    end(command)
    # Each ran once, all in the same process.
    lines = said(path)
    assert len({pid for pid, _ in lines}) == 1
    assert sorted(words for _, words in lines) == ["ran"] * 10 + sorted(f"runs {way}" for way in WAYS_OUT)
    assert "was refused" not in command.log
    if task is forking_tasks.fork_in_atomic:
        assert sorted(Entry.objects.values_list("key", flat=True)) == sorted(WAYS_OUT)


def test_a_child_of_the_event_loop_runs_no_other_job(start: Start, path: Path, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    command = start("--threads", "6")
    ticking = [enqueue(forking_tasks.tick, str(path), str(stop)) for _ in range(5)]
    until(lambda: fresh(ticking[-1]).status == "running", seconds=SLOW)
    forks = [
        enqueue(forking_tasks.afork, str(path), way) for way in ("await", "return", "yield", "raise", "yield")
    ]
    over(*forks)
    stop.touch()
    over(*ticking)
    assert [fresh(job).result for job in forks] == [1, 0, 1, 1, 1], command.log
    assert "a process forked by an async task cannot await" in command.log
    assert len({pid for pid, _ in said(path)}) == 1


def test_pools_of_processes_work_and_can_be_ended(start: Start, path: Path) -> None:
    command = start("--threads", "2")
    pools = [enqueue(forking_tasks.use_pools) for _ in range(4)]
    beside = enqueue_many(forking_tasks.run_here.bind(str(path)) for _ in range(20)).ids
    over(*pools, *beside)
    assert [fresh(job).result for job in pools] == [[[1, 4, 9], [16, 25]]] * 4, command.log
    assert len(said(path)) == 20


def test_a_signal_that_reaches_a_child_at_once_is_not_lost(start: Start) -> None:
    command = start(env={"DJANGO_SETTINGS_MODULE": "tests.processes.settings", "TEST_SLOW_FORK": "1"})
    job = enqueue(forking_tasks.end_pools)
    over(job)
    assert fresh(job).status == "done", command.log
    assert "race condition" not in command.log


@pytest.mark.parametrize("options", [{}, {"OPTIONS": {"pool": {"min_size": 1, "max_size": 2}}}])
def test_a_child_has_connections_of_its_own_and_not_the_transaction_of_its_parent(
    start: Start, options: dict[str, Any]
) -> None:
    command = start("--threads", "2", env=with_database(**options))
    jobs = [enqueue(forking_tasks.share_connection) for _ in range(3)]
    transaction = enqueue(forking_tasks.share_transaction)
    over(*jobs, transaction)
    assert [fresh(job).result for job in (*jobs, transaction)] == [*[[[0, 0], True]] * 3, 1], command.log
    assert "Cannot open a new connection in an atomic block" in command.log
    keys = [*["child"] * 6, *["parent"] * 3, "parent after the child", "parent in a transaction"]
    assert sorted(Entry.objects.values_list("key", flat=True)) == keys


def test_a_child_that_outlives_its_worker_holds_nothing(start: Start, path: Path, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    command = start()
    (worker,) = command.workers()
    enqueue(forking_tasks.leave_child, str(path), str(stop))
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
