"""Jobs that crash their process, supervisors that die, and standbys: what counts, continues, and is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from django_pgqueue import cancel, enqueue
from django_pgqueue.exceptions import TaskTimeout
from django_pgqueue.models import Job, JobProgress, Worker
from tests.app import process_tasks, step_tasks, timing_tasks, worker_tasks
from tests.app.models import Entry
from tests.chaos.harness.havoc import end
from tests.support.commands import SLOW, Start, begun, gone, is_alive, parent_of, with_database
from tests.support.databases import alias, migrate
from tests.support.servers import Pair, primary_and_standby
from tests.support.workers import fresh, until

needs_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="it has /proc, and kills a process with its parent"
)


def over(job: Job) -> Job:
    """Wait until the job has finished, and return it."""
    until(lambda: fresh(job).is_finished, seconds=SLOW, what=f"{job} over")
    return fresh(job)


def error_classes(job: Job) -> list[str]:
    return [error["class"].rpartition(".")[2] for error in job.errors]


def runs(key: str) -> list[int]:
    """Return the processes that ran the job, in order."""
    notes = Entry.objects.filter(key=f"{key} runs").order_by("pk").values_list("note", flat=True)
    return [int(note) for note in notes]


def has_ended(pid: int) -> bool:
    """Whether its parent can see that: a process is a zombie before the last of its threads is gone."""
    return not is_alive(pid) and len(list(Path(f"/proc/{pid}/task").iterdir())) == 1


@needs_linux
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


def test_an_isolated_job_hears_that_it_is_cancelled_is_killed_after_its_timeout_and_ends_with_its_worker(
    start: Start,
) -> None:
    command = start("--threads", "1", TIMEOUT_GRACE=0.5)
    job = enqueue(timing_tasks.dies_once_then_waits, "a")
    begun("a", 2)
    cancel(job)
    assert over(job).result == "asked"
    failed = over(enqueue(timing_tasks.dies_once_then_never_ends, "b"))
    assert (failed.status, failed.crash_count) == ("failed", 1)
    assert error_classes(failed) == [TaskTimeout.__name__]
    assert len(re.findall(r"process \d+ ended with", command.log)) == 2, "each first run, and no other"
    enqueue(timing_tasks.dies_once_then_waits, "c")
    begun("c", 2)
    command.send(signal.SIGKILL)
    gone(runs("c")[1])


def test_progress_and_step_of_an_isolated_job(start: Start) -> None:
    job = enqueue(step_tasks.waits_for_entry, "go")
    Job.objects.filter(pk=job.pk).update(crash_count=1)
    start("--threads", "1", BACKOFF_BASE=0)
    first = until(lambda: fresh(job).progress, seconds=SLOW)
    assert first is not None
    assert (first.note, first.total, fresh(job).current_step) == ("isolated", None, "prepare")
    until(lambda: (fresh(job).progress or first) > first, seconds=SLOW)
    Entry.objects.create(key="go")
    failed = over(job)
    assert (failed.status, failed.current_step) == ("failed", "fail")
    assert {error["step"] for error in failed.errors} == {"fail"}
    assert failed.errors[0]["progress"]["done"] > 1
    assert not JobProgress.objects.exists()


@needs_linux
@pytest.mark.promise("dead-supervisor")
def test_its_processes_die_with_it_and_their_jobs_run_elsewhere(start: Start) -> None:
    """Even if the task holds the GIL in C, where no signal handler would ever run. Others: `kills`."""
    # With such a long lease, dead workers are found only by the lock that they no longer hold.
    commands = [start("--processes", count, "--grace", "600", LEASE=3600) for count in ("2", "1")]
    until(lambda: Worker.objects.count() == 3, seconds=SLOW)
    job = enqueue(process_tasks.hold_gil_once, "go")
    begun("go")
    # Its supervisor has noted that it had begun, so that it could count a crash.
    noted = Worker.objects.values_list("started_jobs", flat=True)
    until(lambda: any(job.pk in (jobs or []) for jobs in noted.all()), seconds=SLOW, what="noted")
    holder = Worker.objects.get(pk=str(fresh(job).worker))
    (command,) = (command for command in commands if command.process.pid == parent_of(holder.pid))
    pids = Worker.objects.filter(supervisor=holder.supervisor).values_list("pid", flat=True)
    command.send(signal.SIGKILL)
    command.process.wait(SLOW)
    until(lambda: not any(is_alive(pid) for pid in pids), seconds=SLOW, what="their processes are gone")
    Entry.objects.create(key="go")
    until(lambda: fresh(job).status == "done", seconds=SLOW, what="the job has run again")
    assert fresh(job).worker != holder.pk
    assert (fresh(job).crash_count, fresh(job).lost_in_a_row) == (0, 1)
    forgotten = Worker.objects.filter(supervisor=holder.supervisor)
    until(lambda: not forgotten.exists(), seconds=SLOW, what="all forgotten")


def test_elsewhere_they_see_the_end_of_the_line_and_drain(start: Start, tmp_path: Path) -> None:
    """Test the way for systems that send no signal at the parent's death."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'django_pgqueue.worker' in sys.orig_argv:\n"
        "    from django_pgqueue.worker import spawn\n"
        "    spawn.die_with = lambda parent: None\n"
    )
    command = start("--processes", "2", "--grace", "600", env={"PYTHONPATH": str(tmp_path)})
    workers = command.workers(2)
    job = enqueue(worker_tasks.wait_for_entry, "go")
    begun("go")
    command.send(signal.SIGKILL)
    command.process.wait(SLOW)
    command.logged("the supervisor is gone: stopping this worker", times=2)
    Entry.objects.create(key="go")
    until(lambda: not any(is_alive(worker.pid) for worker in workers), seconds=SLOW)
    assert fresh(job).status == "done"
    assert not Worker.objects.exists()


@needs_linux
@pytest.mark.parametrize(("parent", "said", "code"), [(os.getpid, "lives", 0), (os.getppid, "", 1)])
def test_a_process_whose_parent_died_before_it_could_ask_ends_itself(
    parent: Callable[[], int], said: str, code: int
) -> None:
    """The current parent is not the supervisor with which the process must die."""
    program = (
        "import sys; from django_pgqueue.worker.spawn import die_with\n"
        "die_with(int(sys.argv[1])); print('lives')"
    )
    command = [sys.executable, "-c", program, str(parent())]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.stdout.strip(), ended.returncode) == (said, code)


# --- A worker that starts does not work on a standby, but waits


@pytest.fixture
def pair(transactional_db: None) -> Iterator[Pair]:
    """A migrated primary and its standby, apart from the databases of the run."""
    with primary_and_standby() as pair:
        with alias("pair", **pair.primary.address()) as name:
            migrate(name)
        pair.catch_up()
        yield pair


STANDBY = "this server is a standby: a worker needs the primary"


@pytest.mark.parametrize("by_the_driver", [False, True], ids=["refused by the worker", "by the driver"])
@pytest.mark.promise("waits-for-promotion")
def test_a_worker_that_starts_at_a_standby_waits_for_its_promotion(
    start: Start, pair: Pair, by_the_driver: bool
) -> None:
    address = pair.standby.address()
    if by_the_driver:
        address["OPTIONS"] = {"target_session_attrs": "read-write"}
    stopped = start(env=with_database(**address))
    stopped.logged(STANDBY)
    pair.standby.stop()
    stopped.logged("no connection yet: connection")
    end(stopped)
    pair.standby.start()
    address["PORT"] = pair.standby.port

    job = pair.primary.ask("SELECT pgqueue_enqueue('tests.app.worker_tasks.noop')")
    pair.catch_up()
    command = start(env=with_database(**address))
    command.logged(STANDBY)
    pair.primary.crash()
    pair.promote()
    status = "SELECT status FROM pgqueue_job WHERE id = %s"
    until(lambda: pair.standby.ask(status, job) == ("done",), seconds=SLOW, what="the job to be done")
    end(command)
    assert command.log.count("this server is a standby") == 1
    assert "Traceback" not in command.log
    assert pair.standby.ask("SELECT 1 FROM pgqueue_worker") is None
