"""How soon a started job runs again when its process, its supervisor or both have died.

The time is measured from the signal to the first statement of the task's second run, by the machine's
monotonic clock. A busy machine may be slow, so the tests assert in which way the job came back: the slower
ways are postponed beyond the end of the test. The figures are printed. They are asserted on demand, against a
multiple of the promised time, or of the time that the first start took if that is longer: RECOVERY_PATIENCE=3
pytest -s -p no:xdist tests/chaos/test_recovery_times.py
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django import DjangoDbBlocker

from django_pgqueue import enqueue
from django_pgqueue.models import Job, Worker
from tests.app.ledger_tasks import wait_for_file
from tests.support.commands import SLOW, Command
from tests.support.jobs import add, value
from tests.support.ledger import FILE, Run, read
from tests.support.own_server import OwnServer, own_server
from tests.support.sessions import Connection
from tests.support.workers import fresh, until

PATIENCE = float(os.environ.get("RECOVERY_PATIENCE") or "inf")  # multiple of the promised time
NEVER = 3600.0  # seconds; during a test no lease of that length ends, and no heartbeat is missed
LEASE = 8.0  # live workers send a heartbeat within it even on a busy machine
HEARTBEAT = 1.0
RECONNECT = 10.0  # maximum seconds between two attempts to reach the server


class Scene:
    """Worker commands, one job that runs until it is told to end, and the ledger of its runs."""

    def __init__(self, start: Callable[..., Command], folder: Path) -> None:
        self.ledger = folder / "ledger"
        self.go = folder / "go"
        self.ledger.touch()
        self._start = start
        self._started: list[float] = []

    def start(self, env: dict[str, str] | None = None, **pgqueue: object) -> Command:
        """Start a command."""
        self._started.append(time.monotonic())
        return self._start(env={FILE: str(self.ledger), **(env or {})}, **pgqueue)

    def run(self, count: int = 1) -> Run:
        """Wait until a run of the job has started, and return it."""
        runs = until(
            lambda: found if len(found := read(self.ledger)) >= count else [],
            seconds=SLOW,
            what=f"run {count} begins",
        )
        return runs[count - 1]

    def noted(self, job: Job) -> Run:
        """Return the first run, after its supervisor has recorded it with a heartbeat."""
        run = self.run()
        noted = Worker.objects.values_list("started_jobs", flat=True)
        until(lambda: any(job.pk in (jobs or []) for jobs in noted.all()), seconds=SLOW, what="noted")
        return run

    def tell(self, what: str, seconds: float, promise: float) -> None:
        """Print the figure, and check whether it is good enough."""
        start = self.run().began - self._started[0]
        print(f"\n{what}: {seconds:.2f} s (promised: {promise:.2f} s; the first start took {start:.2f} s)")
        assert seconds < PATIENCE * max(promise, start)

    def end(self, job: Job, crashes: int) -> None:
        """Let the job end. It is done in its first attempt, with this number of crashes."""
        self.go.touch()
        until(lambda: fresh(job).status == "done", seconds=SLOW)
        assert (fresh(job).attempts, fresh(job).crash_count) == (1, crashes)
        assert len(read(self.ledger)) == 2


@pytest.fixture
def scene(start: Callable[..., Command], tmp_path: Path) -> Scene:
    return Scene(start, tmp_path)


def kill(*pids: int) -> float:
    """Send SIGKILL to all of them, and return the time of the first signal."""
    now = time.monotonic()
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            assert pid != pids[0]  # the others may have died with it
    return now


def test_a_killed_process(scene: Scene) -> None:
    """The supervisor sees its process die, so no heartbeat has to be missed."""
    scene.start(LEASE=3 * NEVER, HEARTBEAT=NEVER)
    job = enqueue(wait_for_file, 0, str(scene.go))
    killed = kill(scene.run().pid)
    scene.tell("process killed", scene.run(2).began - killed, 2.0)
    scene.end(job, crashes=1)


def test_a_killed_supervisor_beside_another_one(scene: Scene) -> None:
    """The locks are free and two heartbeats are missed, so no lease has to end."""
    command = scene.start(LEASE=NEVER)
    job = enqueue(wait_for_file, 0, str(scene.go))
    scene.noted(job)
    scene.start(LEASE=NEVER).workers(2)
    killed = kill(command.process.pid)
    scene.tell("supervisor killed, another one runs", scene.run(2).began - killed, 5.0)
    scene.end(job, crashes=0)


def test_all_killed_and_a_new_command_started_at_once(scene: Scene) -> None:
    """As before, but a new supervisor finds them."""
    command = scene.start(LEASE=NEVER)
    job = enqueue(wait_for_file, 0, str(scene.go))
    pids = command.process.pid, scene.noted(job).pid
    dead = Worker.objects.get().pk
    killed = kill(*pids)
    scene.start(LEASE=NEVER)
    # When it is up, the dead worker may already have been removed from the list.
    until(lambda: Worker.objects.exclude(pk=dead).exists(), seconds=SLOW, what="the new worker is up")
    up = time.monotonic() - killed
    scene.tell(f"all killed, the next is up after {up:.2f} s", scene.run(2).began - killed, max(5.0, up))
    scene.end(job, crashes=0)


def test_a_process_that_is_stopped_longer_than_its_lease(scene: Scene) -> None:
    # It keeps its lock, so it is the lease that counts: that of whoever looks. The first supervisor's is so
    # long that it never takes the other's process for dead.
    command = scene.start(LEASE=NEVER, HEARTBEAT=HEARTBEAT)
    job = enqueue(wait_for_file, 0, str(scene.go))
    first = scene.noted(job)
    scene.start(LEASE=LEASE, HEARTBEAT=HEARTBEAT).workers(2)
    stopped = time.monotonic()
    os.kill(first.pid, signal.SIGSTOP)
    try:
        second = scene.run(2)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    scene.tell("process stopped", second.began - stopped, LEASE + 2 * HEARTBEAT)
    # The stopped process continues, ends the job, and is refused, because another worker has the job.
    scene.go.with_name(f"go-{first.lease}").touch()
    command.logged("the lease was lost, so its outcome (done) was refused")
    assert fresh(job).status == "running"
    scene.end(job, crashes=0)


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[OwnServer]:
    """A server that the tests stop and start. Each of them leaves no worker and no live job there."""
    with django_db_blocker.unblock(), own_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.mark.parametrize(
    ("mode", "outage"),
    [("immediate", 0.0), ("fast", LEASE + 2 * HEARTBEAT)],
    ids=["crash", "outage longer than the lease"],
)
def test_a_restart_of_the_server_takes_nothing_from_the_living(
    scene: Scene, server: OwnServer, mode: str, outage: float
) -> None:
    databases = json.dumps({"default": server.database, "other": server.database})
    commands = [
        scene.start(env={"TEST_DATABASES": databases}, LEASE=LEASE, HEARTBEAT=HEARTBEAT) for _ in range(2)
    ]
    with server.connect() as connection:
        until(lambda: value(connection, "SELECT count(*) = 2 FROM pgqueue_worker"), seconds=SLOW)
        (job,) = add(connection, task_path=wait_for_file.module_path, args=json.dumps([0, str(scene.go)]))
        scene.run()
        # A claim does not wait for the disk. A claim that a crash loses would correctly be made again.
        connection.execute("SELECT pg_logical_emit_message(true, '', '')")
    server.stop(mode)
    time.sleep(outage)  # the length of the outage is part of the test
    back = time.monotonic()
    server.start()
    with server.connect() as connection:
        (other,) = add(connection)
        until(lambda: over(connection, other), seconds=SLOW, what="a job that came after the restart")
        seconds = time.monotonic() - back
        scene.tell(f"server back ({mode}, away for {outage:g} s), a new job is done", seconds, RECONNECT)
        # All have sent heartbeats since then, and otherwise would have been found dead by now.
        until(
            lambda: value(
                connection,
                "SELECT count(*) = 2 AND min(heartbeat_at) > pg_postmaster_start_time() + %s"
                " FROM pgqueue_worker",
                timedelta(seconds=LEASE + 3 * HEARTBEAT),
            ),
            seconds=SLOW,
            what="heartbeats of both workers",
        )
        assert value(connection, "SELECT status FROM pgqueue_job WHERE id = %s", job) == "running"
        scene.go.touch()
        until(lambda: over(connection, job), seconds=SLOW)
        row = connection.execute("SELECT status, attempts, crash_count FROM pgqueue_job WHERE id = %s", [job])
        assert row.fetchone() == ("done", 1, 0)
    for command in commands:
        command.send(signal.SIGTERM)
    assert [command.wait() for command in commands] == [0, 0]
    assert len(read(scene.ledger)) == 1
    assert not any("dead" in command.log for command in commands)


def over(connection: Connection, job: int) -> bool:
    """Return whether a job is no longer in the live leaf."""
    return bool(value(connection, "SELECT NOT EXISTS (SELECT FROM pgqueue_job_live WHERE id = %s)", job))
