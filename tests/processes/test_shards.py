"""One command works several shards: each has a supervisor with processes, and one that is down costs its own
jobs only.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_pgqueue import drain_worker, enqueue
from django_pgqueue.models import Job, Worker
from django_pgqueue.worker.supervisor import fleet, heartbeat
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.commands import SLOW, Start, begun, databases
from tests.support.databases import alias, fresh_database, migrate
from tests.support.poolers import Proxy
from tests.support.workers import until

both = pytest.mark.django_db(transaction=True, databases=["default", "other"])
SHARDS = ["default", "other"]
SOON = {"supervisor.WRITE_EVERY": 0.2}  # what the worker writes about itself


def workers(count: int, database: str = "default") -> list[Worker]:
    """Wait until a shard has this many processes, and return them."""
    rows = Worker.objects.using(database).order_by("started_at")
    until(lambda: rows.count() == count, seconds=SLOW, what=f"{count} workers on {database}")
    return list(rows)


def on_other(*call: Any) -> Job:
    return enqueue(call[0].using(database="other"), *call[1:])


def over(*jobs: Job) -> None:
    """Wait until these jobs are done, on whichever shard."""
    for job in jobs:
        rows = Job.objects.using(job.database).filter(pk=job.pk)
        until(lambda rows=rows: rows.get().status == "done", seconds=SLOW, what=f"{job} is done")  # type: ignore[misc]


def beats(worker: Worker, count: int) -> None:
    """See that heartbeats go on while a connection to another shard, which takes ten seconds, hangs."""
    rows = Worker.objects.filter(pk=worker.pk)
    for _ in range(count):
        last = rows.get().heartbeat_at
        until(rows.filter(heartbeat_at__gt=last).exists)
        assert (rows.get().heartbeat_at - last).total_seconds() < 7.5


@both
def test_a_killed_process_is_replaced_one_moves_to_the_backlog_and_a_second_signal_ends_the_grace_of_all(
    start: Start,
) -> None:
    looks = SOON | {"fleet.LOOK_EVERY": 0.3}
    command = start("--processes=4", "--threads=1", "--grace=600", constants=looks, SHARDS=SHARDS)
    here, there = workers(2), workers(2, "other")
    assert {each.host for each in there} == {here[0].host}
    assert there[0].supervisor == there[1].supervisor != here[0].supervisor
    command.logged("Shard other:")
    assert "port " in command.log.partition("Shard other:")[2].partition("2 processes")[0]
    jobs = [on_other(tasks.wait_for_entry, "go") for _ in range(4)]
    begun("go", 3)
    assert command.log.count("a process moves from default to other") == 1
    os.kill(there[0].pid, signal.SIGKILL)
    begun("go", 4)
    command.logged("other: requeued 1 job of the process that ended")
    assert {each.supervisor for each in workers(3, "other")} == {there[0].supervisor}
    assert workers(1)[0] in here
    Entry.objects.create(key="go")
    over(*jobs)
    assert all(job.attempts == 1 for job in Job.objects.using("other").all())
    jobs = [enqueue(tasks.wait_for_entry, "never"), on_other(tasks.wait_for_entry, "never")]
    begun("never", 2)
    command.send(signal.SIGINT)
    command.logged("default: Stopping: waiting up to 600 s for 1 running job")
    command.logged("other: Stopping: waiting up to 600 s for 1 running job")
    command.send(signal.SIGINT)
    assert command.wait() == 0, command.log
    assert command.log.count("Stopped: interrupted 2 running jobs.") == 1
    for job in jobs:
        row = Job.objects.using(job.database).get(pk=job.pk)
        assert (row.status, row.attempts) == ("pending", 0)
    assert not workers(0) + workers(0, "other")
    assert "Traceback" not in command.log


@both
def test_shards_that_cannot_be_served_cost_their_own_jobs_only_until_one_process_is_asked_to_stop(
    start: Start, door: Proxy, tmp_path: Path
) -> None:
    """One accepts no connections at first, one has no tables at first, and one connects and says nothing."""
    alive, address = tmp_path / "alive", str(tmp_path / "notify")
    with (
        fresh_database() as name, alias("bare", NAME=name),
        socket.create_server(("127.0.0.1", 0)) as silent,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):  # fmt: skip
        manager.bind(address)
        manager.settimeout(SLOW)
        known, local = databases(), {"HOST": "127.0.0.1"}
        known["other"] |= local | {"PORT": door.port}
        known["bare"] = known["default"] | {"NAME": name}
        known["silent"] = known["default"] | local | {"PORT": silent.getsockname()[1]}
        first, late = enqueue(tasks.wait_for_entry, "go"), on_other(tasks.noop)
        command = start(
            "--databases=default,other,bare,silent", "--alive-file", str(alive),
            env={"TEST_DATABASES": json.dumps(known), "NOTIFY_SOCKET": address},
            constants=SOON | {"fleet.ANNOUNCE_AFTER": 0.5, "fleet.LONGEST_PAUSE": 0.5},
            HEARTBEAT=0.2, LEASE=8,
        )  # fmt: skip
        while manager.recv(4096) != b"READY=1":
            pass
        begun("go")
        beats(workers(1)[0], 5)
        command.logged("Shard other:   not reached yet; 1 process")
        assert "other: no connection yet" in command.log
        command.logged(
            "bare: its jobs wait, because it cannot be served: The database 'bare' is not migrated"
        )
        assert "default: 1 of 1 process at work | other: waiting for the server" in alive.read_text()
        door.open_door()
        migrate("bare")
        over(late, enqueue(tasks.noop.using(database="bare")))
        command.logged("other: its jobs run from now on")
        until(lambda: alive.read_text().count("1 of 1 process at work |") == 3, seconds=SLOW)
        assert drain_worker(workers(1, "bare")[0], replace=False)
        command.logged("default: Stopping: waiting up to 30 s for 1 running job")
        Entry.objects.create(key="go")
        assert command.process.wait(8) == 0, command.log
        over(first)
        assert command.log.count("Stopped: all started jobs have finished.") == 1
        assert not workers(0) + workers(0, "bare")


@both
@pytest.mark.usefixtures("forks_here")
def test_a_burst_ends_when_no_shard_has_due_jobs_and_fails_if_one_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job may enqueue another one where the burst has ended."""
    monkeypatch.setattr(heartbeat, "PATIENCE", 0.2)
    monkeypatch.setattr(fleet, "WRITE_EVERY", 1e6)  # the end of a shard ends the sleep of the main thread

    def burst(names: str) -> None:
        call_command("runqueueworker", burst=True, databases=names, skip_checks=True)

    enqueue(tasks.hop, "other", "default")
    burst("default,other")
    assert [Job.objects.using(each).filter(status="done").count() for each in SHARDS] == [2, 1]
    job = enqueue(tasks.noop)
    with (
        alias("down", opened=False, HOST="127.0.0.1", PORT=1),
        pytest.raises(CommandError, match="The database 'down' cannot be reached"),
    ):
        burst("default,down")
    over(job)


@both
def test_a_worker_with_no_shard_that_can_be_reached_says_so(start: Start) -> None:
    known = {name: each | {"HOST": "127.0.0.1", "PORT": 1} for name, each in databases().items()}
    environment = {"TEST_DATABASES": json.dumps(known)}
    command = start(env=environment, constants={"heartbeat.PATIENCE": 0.2}, SHARDS=SHARDS)
    assert command.wait() == 1, command.log
    assert "\nCommandError: The database 'default' cannot be reached: " in command.log
    assert "Traceback" not in command.log
