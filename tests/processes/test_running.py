"""Workers at work: several processes, replacement, alerts, and what surrounds them: a service manager, a
container, a pooler.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest
from django.utils import timezone

from django_pgqueue import cancel, drain_worker, enqueue, pause, resume
from django_pgqueue.models import Job, Worker
from tests.app import process_tasks, worker_tasks as tasks
from tests.app.models import Entry
from tests.support.commands import SLOW, Start, begun, children_of, gone, left_behind, over, with_database
from tests.support.factories import JobFactory
from tests.support.poolers import Pooler, pgbouncer
from tests.support.schedules import jobs_of, minute, overdue
from tests.support.sessions import open_raw
from tests.support.workers import fresh, until


def test_a_worker_runs_jobs_and_tells_of_problems_until_ctrl_c(start: Start) -> None:
    unserved = JobFactory.create(queue_name="slow", run_after=timezone.now() - timedelta(hours=1))
    command = start(
        "--queues", "default", ALERTS="tests.app.hooks.write", ALERTS_INTERVAL=1, ALERTS_CLEAR_AFTER=0
    )
    (worker,) = command.workers()
    assert worker.queues == ["default"]
    job, frozen = enqueue(tasks.whole_process), enqueue(tasks.frozen)
    over(job, frozen)
    result: Any = fresh(job).result
    assert result[:2] == [worker.pid, command.process.pid]
    counts: Any = fresh(frozen).result
    loaded, others = counts
    assert loaded > others > 0, "what it has loaded is excluded from garbage collection"
    told(*("age raised", "unserved raised"))
    assert cancel(unserved)
    told(*("age over", "unserved over"))
    assert "slow: 0 workers serve it, at least 1 should" in Entry.objects.values_list("note", flat=True)
    command.send(signal.SIGINT)
    assert command.wait() == 0, command.log
    assert not Worker.objects.exists()
    assert "Stopping: no jobs are running." in command.log
    assert "alerts" not in command.log
    assert "Traceback" not in command.log


def told(*alerts: str) -> None:
    found = Entry.objects.filter(key__in=alerts).values("key").distinct()
    until(lambda: found.count() == len(alerts), seconds=SLOW, what=f"alerts: {alerts}")


def no_socket_is_shared(*pids: int) -> None:
    """Look at the TCP and Unix sockets that each process has open, beside its standard streams."""
    found: list[str] = []
    for pid in pids:
        links = [link for link in Path(f"/proc/{pid}/fd").iterdir() if int(link.name) > 2]
        found += {name for link in links if (name := str(link.readlink())).startswith("socket:[")}
    assert len(found) == len(set(found)) > 0, found


def test_a_process_is_replaced_after_its_number_of_jobs(start: Start, tmp_path: Path) -> None:
    """It says for which job it waits, and the programs that its tasks have left are asked to end."""
    alive = tmp_path / "alive"
    command = start(
        "--max-jobs", "2", "--alive-file", str(alive),
        constants={"child.DRAINING": {"warn_after": 0.1}, "supervisor.WRITE_EVERY": 0.2},
    )  # fmt: skip
    (old,) = command.workers()
    jobs = [enqueue(tasks.wait_for_entry, "go"), enqueue(process_tasks.leave_subprocess, "x", "return")]
    command.logged("claims no more jobs, and has waited 0.1 s for 1 running job (")
    assert f"({tasks.wait_for_entry.module_path} " in command.log
    assert Worker.objects.get().state == "draining"
    until(lambda: alive.read_text() == "0 of 1 process at work; 1 draining\n", seconds=SLOW)
    later = enqueue(tasks.noop)
    Entry.objects.create(key="go")
    over(*jobs, later)
    assert {fresh(job).status for job in [*jobs, later]} == {"done"}
    command.logged("is replaced")
    gone(left_behind("x"))
    assert command.workers() != [old]


def test_a_burst_with_schedules_runs_what_is_due_when_it_starts(start: Start) -> None:
    """It ends, although the schedule is due again and again."""
    every_second = overdue(cron=None, every=timedelta(seconds=1))
    missed = overdue(minute() - timedelta(minutes=3), catch_up="all")
    command = start("--burst", "--schedules")
    assert command.wait() == 0, command.log
    assert [job.status for job in jobs_of(every_second)] == ["done"]
    assert len(jobs_of(missed)) >= 4
    assert {job.status for job in jobs_of(missed)} == {"done"}


class Manager:
    """The service manager, which reads its socket all the time."""

    def __init__(self, here: socket.socket) -> None:
        self._messages: Queue[str] = Queue()
        self._socket = here
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while message := self._socket.recv(4096).decode():
            self._messages.put(message)

    def hears(self, beginning: str) -> str:
        """Wait for a message with this prefix."""
        while not (message := self._messages.get(timeout=SLOW)).startswith(beginning):
            pass
        return message


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as here:
        here.bind(address := str(tmp_path / "notify"))
        yield Manager(here)
        here.sendto(b"", address)


@pytest.mark.promise("dead-process")
def test_the_jobs_of_a_killed_process_run_again_at_once_and_systemd_hears_how_it_is(
    start: Start, manager: Manager, tmp_path: Path
) -> None:
    """The programs that its tasks have started end with it."""
    alive = tmp_path / "alive"
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
    command = start("--processes", "2", "--alive-file", str(alive), env=environment)
    manager.hears("STATUS=0 of 2 processes at work")
    manager.hears("READY=1")
    no_socket_is_shared(command.process.pid, *(worker.pid for worker in command.workers(2)))
    manager.hears("STATUS=2 of 2 processes at work")
    manager.hears("WATCHDOG=1")
    assert alive.read_text().endswith(" of 2 processes at work\n")
    over(inherited := enqueue(process_tasks.environment))
    found: Any = fresh(inherited).result
    assert set(environment).isdisjoint(found), found
    job = enqueue(process_tasks.leave_subprocess, "x", "wait")
    program = left_behind("x")
    killed = Worker.objects.get(pk=fresh(job).worker or 0)
    os.kill(killed.pid, signal.SIGKILL)
    manager.hears("STATUS=1 of 2 processes at work")
    over(job)
    assert (fresh(job).status, fresh(job).attempts, fresh(job).errors) == ("done", 1, [])
    assert fresh(job).worker != killed.pk
    gone(program)
    manager.hears("STATUS=2 of 2 processes at work")
    assert "ended with signal SIGKILL" in command.log
    assert "requeued 1 job of the process that ended" in command.log
    command.send(signal.SIGTERM)
    # The grace of 30 s plus a margin.
    assert manager.hears("STOPPING=1") == "STOPPING=1\nEXTEND_TIMEOUT_USEC=40000000"
    assert command.wait() == 0, command.log
    assert not alive.exists()


STATE = """
    SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
        (SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_prepared_statements),
        (SELECT jsonb_object_agg(name, setting) FROM pg_settings
            WHERE name IN ('statement_timeout', 'lock_timeout', 'plan_cache_mode', 'synchronous_commit',
                'default_transaction_isolation', 'tcp_keepalives_count', 'role', 'search_path'))
"""


def state(pooler: Pooler) -> Any:
    """Return what the pooler's server session holds."""
    with pooler.connect() as client:
        return client.execute(STATE).fetchone()


@pytest.mark.promise("pooler-worker")
def test_a_worker_behind_a_pooler_polls_and_leaves_nothing_in_the_session(start: Start) -> None:
    with pgbouncer() as pooler:
        command = start(env=with_database(**pooler.address()), POLL_INTERVAL=0.2)
        (worker,) = command.workers()
        assert not worker.holds_lock
        over(enqueue(tasks.backend), enqueue(tasks.add, 1), enqueue(tasks.raise_odd, "nul"))
        with open_raw(options="-c lock_timeout=0") as direct:
            nothing: Any = direct.execute(STATE).fetchone()
        assert nothing[:3] == (0, 0, 0)
        assert state(pooler) == nothing

        pooler.stop()
        command.logged("no connection yet", times=2)
        pooler.start()
        command.logged("connected again", times=2)
        pause(task=tasks.noop)
        # Until the worker has read the pause it may run such jobs.
        job = until(lambda: blocked(enqueue(tasks.noop)), seconds=SLOW)
        resume(task=tasks.noop)
        until(lambda: fresh(job).status == "done", seconds=SLOW)
        assert state(pooler) == nothing
        assert drain_worker(worker, replace=False)
        assert command.wait() == 0, command.log
    assert command.log.count("is behind a transaction pooler: the worker polls every 0.2 s") == 1
    assert command.log.count("Traceback") == 1  # the failed job's


def blocked(job: Job) -> Job | None:
    """Wait until the worker has run the job or put it aside. Return it in the second case."""
    until(lambda: fresh(job).status in {"blocked", "done"}, seconds=SLOW)
    return job if fresh(job).status == "blocked" else None


UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
if os.getuid():
    UNSHARE[1:1] = ["--user", "--map-root-user"]


def namespaces_are_allowed() -> bool:
    """Return whether processes may be started in a separate namespace here."""
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces of processes are Linux'")
@pytest.mark.skipif(not namespaces_are_allowed(), reason="unshare --pid is not there or not allowed")
def test_the_first_process_of_a_container_reaps_orphans_and_stops_in_order(start: Start) -> None:
    command = start(through=UNSHARE)
    command.workers()
    (init,) = children_of(command.process.pid)
    assert Path(f"/proc/{init}/ns/pid").readlink() != Path("/proc/self/ns/pid").readlink()
    over(enqueue(process_tasks.daemonize))
    # Only the worker process is left: no grandchild and no zombie.
    until(lambda: len(children_of(init)) == 1, seconds=SLOW, what="no zombies")
    # It still gets the exit codes of its own children.
    crash = enqueue(process_tasks.exit_once, "x", 7)
    command.logged("ended with exit code 7")
    assert cancel(crash)
    job = enqueue(tasks.wait_for_entry, "go")
    begun("go")
    os.kill(init, signal.SIGTERM)
    command.logged("Stopping: waiting")
    Entry.objects.create(key="go")
    assert command.wait() == 0, command.log
    assert fresh(job).status == "done"


def test_what_a_job_did_is_kept_when_it_crashes(start: Start) -> None:
    crash = enqueue(process_tasks.crashes)
    command = start("--threads", "1", "--grace", "0", CRASH_LIMIT=2)
    over(crash)
    assert fresh(crash).status == "failed"
    assert "TooManyCrashes" in (error := fresh(crash).errors[-1])["class"]
    # The last crash was isolated, in a process of its own.
    assert re.findall(r", in (\w+)", error["traceback"])[:2] == ["crashes", "deeper"]
    command.logged(f"job {crash.pk} did this when its process ended:")
