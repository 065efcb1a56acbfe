"""Running worker processes: start, bursts, queues, several processes, replacement."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.models import Job, Worker
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.commands import SLOW, Command, databases
from tests.support.databases import alias, in_schema, migrate
from tests.support.workers import fresh, until

Start = Callable[..., Command]


def all_done(ids: list[int]) -> bool:
    return Job.objects.filter(pk__in=ids, status="done").count() == len(ids)


def processes() -> set[int]:
    """Return the processes that ran `count_runs` jobs."""
    return {int(note) for note in Entry.objects.values_list("note", flat=True)}


def test_a_burst_runs_what_is_due_and_exits_with_0(start: Start) -> None:
    ids = enqueue_many(tasks.add.bind(number) for number in range(200)).ids
    command = start("--burst")
    assert command.wait() == 0, command.log
    assert all_done(ids)
    assert not Worker.objects.exists()


def test_a_burst_with_nothing_to_do_exits_with_0(start: Start) -> None:
    command = start("--burst", "--processes", "2")
    assert command.wait() == 0, command.log


def test_a_worker_waits_for_jobs_until_it_is_told_to_stop(start: Start) -> None:
    command = start()
    (worker,) = command.workers()
    assert worker.queues == []
    job, frozen = enqueue(tasks.whole_process), enqueue(tasks.frozen)
    until(lambda: all_done([job.pk, frozen.pk]), seconds=SLOW)
    result: Any = fresh(job).result
    assert result[:2] == [worker.pid, command.process.pid]
    counts: Any = fresh(frozen).result
    loaded, others = counts
    assert loaded > others > 0, "what it has loaded is excluded from garbage collection"
    command.process.terminate()
    assert command.wait() == 0, command.log
    assert not Worker.objects.exists()


def test_queues_and_verbosity(start: Start) -> None:
    jobs = {name: enqueue(tasks.noop.using(queue_name=name)) for name in ("a", "b", "c", "d")}
    command = start("--queues", "a,b", "--burst", "--verbosity", "2")
    assert command.wait() == 0, command.log
    assert {name: fresh(job).status for name, job in jobs.items()} == {
        "a": "done", "b": "done", "c": "pending", "d": "pending",
    }  # fmt: skip
    assert f"job {jobs['a'].pk} tests.app.worker_tasks.noop done (queue a, attempt 1" in command.log
    quiet = start("--exclude-queues", "d", "--burst", "--verbosity", "0")
    assert quiet.wait() == 0
    assert (fresh(jobs["c"]).status, fresh(jobs["d"]).status) == ("done", "pending")
    assert quiet.log == ""


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_another_database(start: Start) -> None:
    job = enqueue(tasks.noop.using(database="other"))
    here = enqueue(tasks.noop)
    assert start("--database", "other", "--burst").wait() == 0
    assert Job.objects.using("other").get(pk=job.pk).status == "done"
    assert fresh(here).status == "pending"


def test_several_processes_share_the_work_and_no_socket(start: Start) -> None:
    command = start("--processes", "2", "--threads", "1")
    workers = command.workers(2)
    no_socket_is_shared(command.process.pid, *(worker.pid for worker in workers))
    # One slot each: both must take one of two jobs that wait for each other to start.
    ids = enqueue_many(tasks.wait_for_entry.bind("go") for _ in range(2)).ids
    until(lambda: Entry.objects.filter(key="go runs").count() == 2, seconds=SLOW)
    Entry.objects.create(key="go")
    until(lambda: all_done(ids), seconds=SLOW)
    assert {fresh(pk).worker for pk in ids} == {worker.pk for worker in workers}
    assert {worker.supervisor for worker in workers} == {workers[0].supervisor}


def no_socket_is_shared(*pids: int) -> None:
    owners: dict[int, set[int]] = {}
    for pid in pids:
        for socket in sockets(pid):
            owners.setdefault(socket, set()).add(pid)
    assert owners
    assert all(len(sharing) == 1 for sharing in owners.values()), owners


def sockets(pid: int) -> set[int]:
    """The inodes of the TCP and Unix sockets that a process has open, beside its standard streams."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        target = str(link.readlink())
        if int(link.name) > 2 and target.startswith("socket:["):
            found.add(int(target[8:-1]))
    return found


def test_max_jobs_replaces_processes(start: Start) -> None:
    ids = enqueue_many(tasks.count_runs.bind("x") for _ in range(30)).ids
    command = start("--burst", "--max-jobs", "10")
    assert command.wait() == 0, command.log
    assert all_done(ids)
    assert Entry.objects.count() == 30
    assert len(processes()) >= 3
    assert "is replaced" in command.log


def test_max_rss_replaces_processes_that_have_worked(start: Start) -> None:
    ids = [enqueue(tasks.count_runs, "x").pk]
    command = start("--max-memory", "1", "--threads", "1")
    until(lambda: all_done(ids), seconds=SLOW)
    command.logged("is replaced")
    ids.append(enqueue(tasks.count_runs, "x").pk)
    until(lambda: all_done(ids), seconds=SLOW)
    assert len(processes()) == 2


def test_a_changed_retention_is_told_to_the_ring_and_logged(start: Start) -> None:
    try:
        command = start("--burst", RETENTION=3600 * 24 * 3)
        assert command.wait() == 0
        assert "retention changed from 7 days, 0:00:00 to 3 days, 0:00:00" in command.log
        with connection.cursor() as cursor:
            cursor.execute("SELECT retention = '3 days' FROM pgqueue_ring")
            assert cursor.fetchone() == (True,)
        again = start("--burst", RETENTION=3600 * 24 * 3)
        assert again.wait() == 0
        assert "retention" not in again.log
    finally:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE pgqueue_ring SET retention = '7 days'")


def test_a_schema_in_the_search_path(start: Start) -> None:
    """The tables and functions are in a separate schema, which only OPTIONS names."""
    with connection.cursor() as cursor:
        cursor.execute("DROP SCHEMA IF EXISTS queue_only CASCADE")
        cursor.execute("CREATE SCHEMA queue_only")
    try:
        with alias("schema", OPTIONS=in_schema("queue_only")) as name:
            migrate(name)
            with connections[name].cursor() as cursor:
                cursor.execute("SELECT pgqueue_enqueue('tests.app.worker_tasks.noop')")
            given = databases()
            given["default"]["OPTIONS"] = in_schema("queue_only")
            command = start("--burst", env={"TEST_DATABASES": json.dumps(given)})
            assert command.wait() == 0, command.log
            with connections[name].cursor() as cursor:
                cursor.execute("SELECT status FROM pgqueue_job")
                assert cursor.fetchall() == [("done",)]
        assert not Job.objects.exists()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP SCHEMA queue_only CASCADE")
