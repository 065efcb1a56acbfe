"""Django's connections are kept between jobs for as long as allowed, and cleaned after a job if necessary."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from os import dup
from pathlib import Path
from select import select
from socket import SHUT_RDWR, socket
from typing import Any

import pytest
from django.db import connection, connections
from django.db.backends.signals import connection_created

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.models import Job
from django_pgqueue.worker.executor import connections as connections_module
from django_pgqueue.worker.producer import demand
from tests.app import hostile_tasks as hostile
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.databases import alias, database_settings
from tests.support.workers import DEADLINE, fresh, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)

LEFT = ["transaction", "empty transaction", "closed in a transaction", "autocommit off", "broken", "error"]


@contextmanager
def pool(**options: Any) -> Iterator[None]:
    """Connections from a pool."""
    pytest.importorskip("psycopg_pool")
    connection.ensure_connection()  # our own connection does not come from the pool
    given = {**connections.settings["default"].get("OPTIONS", {}), "pool": options}
    with database_settings(CONN_MAX_AGE=0, OPTIONS=given):
        try:
            yield
        finally:
            default: Any = connections["default"]
            pools = default._connection_pools  # of all threads
            for made in pools.values():
                made.close()
            pools.clear()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Connections are watched and kept, as in every worker process. Jobs run in the order in which they were
    enqueued, also if the machine is busy: a worker requeues jobs that wait for a second.
    """
    monkeypatch.setattr(demand, "HOARD_SECONDS", DEADLINE)
    connections_module.watch_connections()
    yield
    connection_created.disconnect(dispatch_uid=connections_module.__name__)


def terminate(*pids: int) -> None:
    """End sessions, and wait for their end."""
    with connection.cursor() as cursor:
        for pid in pids:
            cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
            # One may have ended by itself.
            assert cursor.fetchone() == (True,) or pid not in django_sessions()


def django_sessions() -> set[int]:
    """Return the sessions other than our own and the producer's, which has a name.

    One of an earlier test may still be about to end.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            " AND application_name <> 'pgqueue worker'"
        )
        return {pid for (pid,) in cursor.fetchall()}


@pytest.mark.parametrize("kind", LEFT)
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.promise("clean-sessions")
def test_what_a_job_leaves_open_is_gone_before_the_next(kind: str, is_async: bool) -> None:
    leave, backend = (tasks.aleave, tasks.abackend) if is_async else (tasks.leave, tasks.backend)
    with database_settings(CONN_MAX_AGE=None):
        first = enqueue(leave, kind)
        after = [
            enqueue(tasks.anote, "after") if is_async else enqueue(tasks.note, "after"),
            enqueue(backend),
        ]
        run_due(threads=1)
    lost = kind in {"transaction", "autocommit off", "error"}
    assert fresh(first).status == ("failed" if lost else "done")
    assert [fresh(job).status for job in after] == ["done", "done"]
    assert [entry.key for entry in Entry.objects.all()] == ["after"]
    assert fresh(after[1]).result != fresh(first).result  # another connection


def test_what_a_task_sets_on_a_connection_without_a_session_is_gone() -> None:
    """As django-tenants sets the schema, which only the next statement tells the server."""

    def is_kept() -> bool:
        connections["other"].tenant = "acme"  # type: ignore[attr-defined]
        connections_module.tidy_up()
        return hasattr(connections["other"], "tenant")

    with ThreadPoolExecutor(1) as thread:
        assert not thread.submit(is_kept).result()


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("max_age", "connections_used"), [(None, 1), (600, 1), (0, 3)])
def test_conn_max_age(max_age: int | None, connections_used: int, is_async: bool) -> None:
    backend = tasks.abackend if is_async else tasks.backend
    with database_settings(CONN_MAX_AGE=max_age):
        jobs = [enqueue(backend) for _ in range(3)]
        run_due(threads=1)
    assert len({fresh(job).result for job in jobs}) == connections_used


@pytest.mark.parametrize("is_async", [False, True])
def test_health_checks_replace_a_connection_that_died_between_jobs(is_async: bool) -> None:
    backend = tasks.abackend if is_async else tasks.backend
    with database_settings(CONN_MAX_AGE=None, CONN_HEALTH_CHECKS=True), working(threads=1):
        first = enqueue(backend)
        pid = until(lambda: fresh(first).result)
        terminate(pid)
        second = enqueue(backend)
        until(lambda: fresh(second).is_finished)
    assert fresh(second).status == "done"
    assert fresh(second).attempts == 1


def test_no_connection_is_left_when_the_worker_has_ended() -> None:
    before = django_sessions()
    with database_settings(CONN_MAX_AGE=None):
        enqueue_many(tasks.backend.bind() for _ in range(20))
        enqueue_many(tasks.abackend.bind() for _ in range(20))
        run_due(threads=4)
    assert set(Job.objects.values_list("status", flat=True)) == {"done"}
    until(lambda: django_sessions() <= before, what="no session left")


def test_a_job_that_uses_no_database_opens_no_connection() -> None:
    before = django_sessions()
    enqueue(tasks.hold, "a")
    with working():
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        assert django_sessions() <= before
        tasks.gate("a").set()


def test_a_pool_gets_its_connections_back() -> None:
    with pool(min_size=1, max_size=2):
        # With four threads and two connections, the pool would run out if jobs did not return theirs.
        ids = enqueue_many(tasks.backend.bind() for _ in range(30)).ids
        left = enqueue(tasks.leave, "transaction")
        last = enqueue(tasks.note, "after")
        run_due(threads=4)
        assert Job.objects.filter(pk__in=ids, status="done").count() == 30
        # One of them was closed because of what was left in its session.
        assert len(set(Job.objects.filter(pk__in=ids).values_list("result", flat=True))) <= 3
        assert (fresh(left).status, fresh(last).status) == ("failed", "done")
        assert Entry.objects.count() == 1


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize(
    ("leave", "look"),
    [
        (hostile.leave_state, hostile.look),
        (hostile.aleave_state, hostile.alook),
        (hostile.tleave_state, hostile.tlook),
    ],
    ids=["sync", "async", "to_thread"],
)
@pytest.mark.promise("clean-sessions")
def test_no_job_finds_what_another_has_left_in_the_session(leave: Any, look: Any, pooled: bool) -> None:
    with pool(min_size=1, max_size=1) if pooled else database_settings(CONN_MAX_AGE=None):
        first = enqueue(look)
        pairs = {kind: (enqueue(leave, kind), enqueue(look)) for kind in hostile.STATES}
        run_due(threads=1)
        pid, *clean = fresh(first).result  # type: ignore[misc]
        for kind, (left, looked) in pairs.items():
            assert fresh(left).status == "done", kind
            # The session is kept from job to job, until a job leaves something in it.
            assert fresh(left).result == pid or look is hostile.tlook, kind  # there are several threads
            pid, *found = fresh(looked).result  # type: ignore[misc]
            assert found == clean, kind
            assert pid != fresh(left).result, kind


@pytest.mark.usefixtures("watched")
def test_a_pool_does_not_hand_on_what_a_task_has_put_there() -> None:
    with pool(min_size=1, max_size=1):
        looks = [enqueue(hostile.look)]
        left = [enqueue(hostile.give_back_with_state, kind) for kind in ("variable", "listen")]
        looks.append(enqueue(hostile.look))
        run_due(threads=1)
    (first, *clean), (second, *found) = (fresh(job).result for job in looks)  # type: ignore[misc]
    assert [fresh(job).status for job in left] == ["done", "done"]
    assert found == clean
    assert first != second


@pytest.mark.usefixtures("watched")
def test_the_project_s_own_set_up_of_a_session_is_no_state_left_by_a_job() -> None:
    def set_up(connection: Any, **kwargs: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = 9000")
            cursor.execute("SET IntervalStyle = 'iso_8601'")

    connection_created.connect(set_up)
    try:
        with database_settings(CONN_MAX_AGE=None):
            # The first connection moves the watch behind the receiver.
            jobs = [enqueue(tasks.backend), *(enqueue(hostile.look) for _ in range(4))]
            run_due(threads=1)
    finally:
        connection_created.disconnect(set_up)
        connection.close()
    found = [fresh(job).result for job in jobs[1:]]
    assert found[0][2] == "9s"  # type: ignore[index]
    assert all(one == found[0] for one in found)


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("left", ["transaction", "empty transaction", "closed in a transaction"])
def test_the_next_job_may_begin_a_durable_transaction(left: str) -> None:
    for pooled in (False, True):
        with pool(min_size=1, max_size=1) if pooled else database_settings(CONN_MAX_AGE=None):
            jobs = [enqueue(tasks.leave, left), enqueue(hostile.work_durably)]
            run_due(threads=1)
        first = "failed" if left == "transaction" else "done"
        assert [fresh(job).status for job in jobs] == [first, "done"], fresh(jobs[1]).errors


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.promise("idle-death")
def test_a_session_that_ended_between_two_jobs_costs_no_attempt(is_async: bool, pooled: bool) -> None:
    """End the sessions as a restart of the server does, without CONN_HEALTH_CHECKS."""
    backend = tasks.abackend if is_async else tasks.backend
    with pool(min_size=3, max_size=3) if pooled else database_settings(CONN_MAX_AGE=None), working(threads=1):
        first = enqueue(backend)
        until(lambda: fresh(first).is_finished)
        if pooled:
            until(lambda: len(django_sessions()) == 3)
        terminate(*django_sessions())
        jobs = [enqueue(backend) for _ in range(3)]
        until(lambda: all(fresh(job).is_finished for job in jobs))
    assert [(fresh(job).status, fresh(job).errors) for job in jobs] == [("done", [])] * 3
    assert fresh(first).result not in {fresh(job).result for job in jobs}


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("how", ["an administrator", "an idle timeout", "a crash", "the stream", "the task"])
def test_the_end_of_a_session_is_seen_without_a_query(how: str) -> None:
    other = connections["default"].copy()
    other.ensure_connection()
    raw: Any = other.connection
    assert not connections_module.has_ended(raw)
    if how == "an idle timeout":
        raw.execute("SET idle_session_timeout = '1ms'")
    elif how == "an administrator":
        terminate(raw.info.backend_pid)
    elif how == "a crash":  # of another session: the server warns all others, and ends them
        raw.execute("DO $$ BEGIN RAISE WARNING 'the server starts again' USING ERRCODE = '57P02'; END $$")
    elif how == "the stream":
        with socket(fileno=dup(raw.fileno())) as stream:
            stream.shutdown(SHUT_RDWR)
    else:
        raw.close()
    until(lambda: connections_module.has_ended(raw))
    other.close()


@pytest.mark.usefixtures("watched")
def test_an_open_connection_to_another_kind_of_database_stays_and_holds_up_no_job(tmp_path: Path) -> None:
    other = {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "other", "OPTIONS": {}}
    with alias("sqlite", opened=False, CONN_MAX_AGE=None, **other):
        jobs = [enqueue(tasks.raw_connection, "sqlite") for _ in range(3)]
        run_due(threads=1)
    assert [(fresh(job).status, fresh(job).attempts) for job in jobs] == [("done", 1)] * 3
    assert len({fresh(job).result for job in jobs}) == 1


@pytest.mark.usefixtures("watched")
def test_what_the_server_sends_unasked_is_no_end() -> None:
    """Its configuration may be reloaded, and another session may call one that listens."""
    other = connections["default"].copy()
    other.ensure_connection()
    raw: Any = other.connection
    raw.execute("LISTEN tests")
    with connection.cursor() as cursor:
        cursor.execute("NOTIFY tests")
    assert select([raw], [], [], DEADLINE)[0] == [raw]
    assert not connections_module.has_ended(raw)
    assert raw.execute("SELECT 1").fetchone() == (1,)
    other.close()


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("max_age", [0, 0.001, None])
def test_a_worker_keeps_its_connections_whatever_conn_max_age_says(max_age: Any, is_async: bool) -> None:
    backend = tasks.abackend if is_async else tasks.backend
    with database_settings(CONN_MAX_AGE=max_age):
        jobs = [enqueue(backend) for _ in range(5)]
        run_due(threads=1)
    assert len({fresh(job).result for job in jobs}) == 1


@pytest.mark.usefixtures("watched")
def test_conn_max_age_applies_where_the_project_says_so(settings: Any) -> None:
    settings.PGQUEUE = {"IDLE_CONNECTION_TIMEOUT": None}
    with database_settings(CONN_MAX_AGE=0):
        jobs = [enqueue(tasks.backend) for _ in range(3)]
        run_due(threads=1)
    assert len({fresh(job).result for job in jobs}) == 3


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("is_async", [False, True])
def test_an_idle_thread_closes_its_connection(is_async: bool, settings: Any) -> None:
    settings.PGQUEUE = {"IDLE_CONNECTION_TIMEOUT": 1}
    backend = tasks.abackend if is_async else tasks.backend
    with database_settings(CONN_MAX_AGE=0), working(threads=1):
        first = enqueue(backend)
        pid = until(lambda: fresh(first).result)
        assert pid in django_sessions()
        until(lambda: pid not in django_sessions(), what="the connection is closed")
        second = enqueue(backend)
        until(lambda: fresh(second).is_finished)
    assert (fresh(second).status, fresh(second).attempts) == ("done", 1)


@pytest.mark.usefixtures("watched")
def test_a_connection_that_jobs_no_longer_use_is_closed_between_them(monkeypatch: Any) -> None:
    """The thread is busy with jobs that use no database, so it is never idle."""
    clock = itertools.count(1_000.0, 30.0)  # half of IDLE_CONNECTION_TIMEOUT from one look to the next
    monkeypatch.setattr(connections_module, "monotonic", lambda: next(clock))
    first = enqueue(tasks.backend)
    others = [enqueue(tasks.noop) for _ in range(3)]
    held = enqueue(tasks.hold, "end")
    with database_settings(CONN_MAX_AGE=None), working(threads=1):
        assert tasks.gate("end runs").wait(tasks.DEADLINE)
        until(lambda: all(fresh(job).is_finished for job in [first, *others]))
        until(lambda: fresh(first).result not in django_sessions(), what="the connection is closed")
        tasks.gate("end").set()
        until(lambda: fresh(held).is_finished)


@pytest.mark.usefixtures("watched")
def test_a_connection_is_replaced_after_an_hour_of_use(monkeypatch: Any) -> None:
    monkeypatch.setattr(connections_module, "LONGEST_USE", 0.0)
    with database_settings(CONN_MAX_AGE=None):
        jobs = [enqueue(tasks.backend) for _ in range(3)]
        run_due(threads=1)
    assert len({fresh(job).result for job in jobs}) == 3


@pytest.mark.usefixtures("watched")
def test_a_pool_gets_kept_connections_back_too() -> None:
    with pool(min_size=1, max_size=2):
        ids = enqueue_many(tasks.backend.bind() for _ in range(12)).ids
        run_due(threads=4)
    assert Job.objects.filter(pk__in=ids, status="done").count() == 12
