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

from django_pgqueue import drain_worker, enqueue
from django_pgqueue.models import Job, Worker
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.commands import SLOW, Start, at_port, begun, databases
from tests.support.databases import alias, fresh_database, migrate
from tests.support.poolers import Proxy
from tests.support.workers import until

both = pytest.mark.django_db(transaction=True, databases=["default", "other"])
SHARDS = ["default", "other"]


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


@both
def test_jobs_of_all_shards_run_and_killed_processes_are_replaced_until_sigterm(start: Start) -> None:
    command = start("--databases", "default,other:2", "--processes", "3", "--threads", "1", SHARDS=SHARDS)
    (here,), there = workers(1), workers(2, "other")
    assert {each.host for each in there} == {here.host}
    assert there[0].supervisor == there[1].supervisor != here.supervisor
    command.logged("Shard other:")
    assert "port " in command.log.partition("Shard other:")[2].partition("2 processes")[0]
    jobs = [enqueue(tasks.noop), on_other(tasks.noop)]
    over(*jobs)
    jobs = [enqueue(tasks.wait_for_entry, "go"), on_other(tasks.wait_for_entry, "go")]
    begun("go", 2)
    (killed,) = [each for each in there if each.pk == Job.objects.using("other").get(pk=jobs[1].pk).worker]
    os.kill(killed.pid, signal.SIGKILL)
    begun("go", 3)
    assert {each.supervisor for each in workers(2, "other")} == {killed.supervisor}
    assert workers(1)[0].pk == here.pk
    assert "other: requeued 1 job of the process that ended" in command.log
    command.send(signal.SIGTERM)
    command.logged("other: Stopping: waiting up to 30 s for 1 running job")
    command.logged("default: Stopping: waiting up to 30 s for 1 running job")
    Entry.objects.create(key="go")
    assert command.wait() == 0, command.log
    over(*jobs)
    assert command.log.count("Stopped: all started jobs have finished.") == 1
    assert not workers(0) + workers(0, "other")
    assert "Traceback" not in command.log


@both
def test_a_shard_that_is_down_at_the_start_is_served_when_it_comes(
    start: Start, door: Proxy, tmp_path: Path
) -> None:
    alive = tmp_path / "alive"
    jobs = [enqueue(tasks.noop), on_other(tasks.noop)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(SLOW)
        environment = at_port(door.port, "other") | {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        command = start(
            "--alive-file", str(alive), env=environment, constants={"fleet.WRITE_EVERY": 0.2}, SHARDS=SHARDS
        )
        over(jobs[0])
        while manager.recv(4096) != b"READY=1":
            pass
    command.logged("Shard other:")
    assert "other:   not reached yet; 1 process" in command.log
    assert "other: no connection yet" in command.log
    assert not Worker.objects.using("other").exists()
    until(lambda: "other: waiting for the server" in alive.read_text(), seconds=SLOW)
    door.open_door()
    over(jobs[1])
    command.logged("other: its jobs run from now on")
    both_work = "default: 1 of 1 process at work | other: 1 of 1 process at work\n"
    until(lambda: alive.read_text() == both_work, seconds=SLOW)


@both
def test_a_shard_that_never_answers_delays_neither_the_heartbeats_of_the_others_nor_the_end(
    start: Start,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, and says nothing
        environment = at_port(silent.getsockname()[1], "other")
        command = start(env=environment, SHARDS=SHARDS, HEARTBEAT=0.2, LEASE=8)
        (worker,) = workers(1)
        job = enqueue(tasks.wait_for_entry, "go")  # without a job, every second heartbeat is left out
        begun("go")
        for _ in range(20):
            last = worker.heartbeat_at

            def beats() -> bool:
                worker.refresh_from_db()
                return worker.heartbeat_at > last  # noqa: B023 - called at once

            until(beats)
            # A connection that hangs takes ten seconds. The lease is eight.
            assert (worker.heartbeat_at - last).total_seconds() < 7.5
        Entry.objects.create(key="go")
        over(job)
        command.send(signal.SIGTERM)
        assert command.process.wait(8) == 0, command.log


@both
def test_a_worker_with_no_shard_that_can_be_reached_says_so(start: Start) -> None:
    environment = databases()
    for each in environment.values():
        each.update(HOST="127.0.0.1", PORT=1)
    command = start(
        env={"TEST_DATABASES": json.dumps(environment)}, constants={"heartbeat.PATIENCE": 0.5}, SHARDS=SHARDS
    )
    assert command.wait() == 1, command.log
    assert "\nCommandError: The database 'default' cannot be reached: " in command.log
    assert "Traceback" not in command.log


@pytest.mark.django_db(transaction=True)
def test_a_shard_without_tables_is_served_once_it_is_migrated_until_all_stop(start: Start) -> None:
    """One process is asked to stop."""
    with fresh_database() as name, alias("third", NAME=name):
        third = {"third": {**databases()["default"], "NAME": name}}
        environment = {"TEST_DATABASES": json.dumps(databases() | third)}
        command = start(
            "--databases", "default,third", env=environment, constants={"fleet.LONGEST_PAUSE": 0.5}
        )
        command.logged(
            "third: its jobs wait, because it cannot be served: The database 'third' is not migrated"
        )
        over(enqueue(tasks.noop))
        migrate("third")
        over(enqueue(tasks.noop.using(database="third")))
        assert drain_worker(workers(1, "third")[0], replace=False)
        assert command.wait() == 0, command.log
        assert not workers(0) + workers(0, "third")


@both
def test_a_process_moves_to_the_backlog_and_back_and_a_second_signal_ends_the_grace_on_all_shards(
    start: Start,
) -> None:
    looks = {"fleet.LOOK_EVERY": 0.3}
    command = start("--processes=4", "--threads=1", "--grace=600", constants=looks, SHARDS=SHARDS)
    workers(2), workers(2, "other")
    jobs = [on_other(tasks.wait_for_entry, "go") for _ in range(4)]
    begun("go", 3)
    workers(1), workers(3, "other")
    assert command.log.count("a process moves from default to other") == 1
    Entry.objects.create(key="go")
    over(*jobs)
    jobs = [enqueue(tasks.wait_for_entry, "home") for _ in range(4)]
    begun("home", 3)
    workers(3), workers(1, "other")
    assert command.log.count("a process moves from other to default") == 2
    Entry.objects.create(key="home")
    over(*jobs)
    assert all(job.attempts == 1 for job in Job.objects.all())
    jobs = [enqueue(tasks.wait_for_entry, "never"), on_other(tasks.wait_for_entry, "never")]
    begun("never", 2)
    command.send(signal.SIGINT)
    command.logged("Stopping: waiting up to 600 s", 2)
    command.send(signal.SIGINT)
    assert command.wait() == 0, command.log
    assert "Stopped: interrupted 2 running jobs." in command.log
    for job in jobs:
        row = Job.objects.using(job.database).get(pk=job.pk)
        assert (row.status, row.attempts) == ("pending", 0)


@both
def test_a_burst_ends_when_no_shard_has_due_jobs(start: Start) -> None:
    """A job may enqueue another one where the burst has ended."""
    enqueue(tasks.hop, "other", "default")
    command = start("--burst", SHARDS=SHARDS)
    assert command.wait() == 0, command.log
    assert [Job.objects.using(each).filter(status="done").count() for each in SHARDS] == [2, 1]


@both
def test_a_burst_fails_if_a_shard_cannot_be_reached(start: Start) -> None:
    job = enqueue(tasks.noop)
    patience = {"heartbeat.PATIENCE": 0.5}
    command = start("--burst", env=at_port(1, "other"), constants=patience, SHARDS=SHARDS)
    assert command.wait() == 1, command.log
    over(job)
    assert "The database 'other' cannot be reached" in command.log


@both
def test_a_worker_with_shards_restarts_when_code_changes(start: Start, tmp_path: Path) -> None:
    watched = tmp_path / "watched.py"
    watched.touch()
    (tmp_path / "watching.py").write_text("import watched\nfrom tests.processes.settings import *\n")
    environment = {"PYTHONPATH": str(tmp_path), "DJANGO_SETTINGS_MODULE": "watching"}
    command = start("--reload", env=environment, SHARDS=SHARDS)
    before = {workers(1)[0].pid, workers(1, "other")[0].pid}
    watched.write_text("changed = True\n")
    command.logged(f"{watched} has changed: restarting.")
    command.logged("Shard other:", 2)
    over(enqueue(tasks.noop), on_other(tasks.noop))
    assert before.isdisjoint({workers(1)[0].pid, workers(1, "other")[0].pid})
    command.send(signal.SIGINT)
    assert command.wait() == 0, command.log
    assert "Traceback" not in command.log
