"""Django's connections: how long they are kept between jobs, what is cleaned after a job, and how both ends
notice when the other end has vanished.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from os import dup
from pathlib import Path
from select import select
from typing import Any

import psycopg
import pytest
from django.db import connection, connections
from django.db.backends.signals import connection_created

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.models import Job
from django_pgqueue.postgres.session import connect
from django_pgqueue.worker.executor import connections as connections_module, fork
from django_pgqueue.worker.executor.connections import touches_session
from django_pgqueue.worker.producer import demand
from tests.app import async_tasks, hostile_tasks as hostile, worker_tasks as tasks
from tests.app.models import Entry
from tests.support.databases import alias, database_settings
from tests.support.jobs import fetch, sql
from tests.support.workers import DEADLINE, fresh, over, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)

BACKENDS: list[Any] = [tasks.backend, tasks.abackend]


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


def kept(pooled: bool) -> Any:
    """Connections that are kept from job to job, or come from a pool with one of them."""
    return pool(min_size=1, max_size=1) if pooled else database_settings(CONN_MAX_AGE=None)


@pytest.fixture(autouse=True)
def _watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Connections are watched and kept, as in every worker process. Jobs run in the order in which they were
    enqueued, also if the machine is busy: a worker requeues jobs that wait for a second.
    """
    monkeypatch.setattr(demand, "HOARD_SECONDS", DEADLINE)
    connections_module.watch_connections()
    yield
    connection_created.disconnect(dispatch_uid=connections_module.__name__)


def terminate(*pids: int) -> None:
    """End sessions, and wait for their end."""
    for pid in pids:  # one may have ended by itself
        assert sql("SELECT pg_terminate_backend(%s, 5000)", pid) or pid not in django_sessions()


def django_sessions() -> set[int]:
    """Return the sessions other than our own and the producer's, which has a name.

    One of an earlier test may still be about to end.
    """
    found = fetch(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend' AND application_name <> 'pgqueue worker'"
    )
    return {pid for (pid,) in found}


# -- what jobs leave behind

LEFT = ["transaction", "empty transaction", "closed in a transaction", "autocommit off", "broken", "error"]


@pytest.mark.parametrize(
    ("leave", "note", "backend"),
    [(tasks.leave, hostile.work_durably, tasks.backend), (tasks.aleave, tasks.anote, tasks.abackend)],
    ids=["sync", "async"],
)
@pytest.mark.promise("clean-sessions")
def test_what_a_job_leaves_open_is_gone_before_the_next(leave: Any, note: Any, backend: Any) -> None:
    with database_settings(CONN_MAX_AGE=None):
        jobs = {
            kind: (enqueue(leave, kind), enqueue(note, f"after {kind}"), enqueue(backend)) for kind in LEFT
        }
        run_due(threads=1)
    for kind, found in jobs.items():
        first, after, last = map(fresh, found)
        assert first.status == ("failed" if kind in {"transaction", "autocommit off", "error"} else "done"), (
            kind
        )
        assert (after.status, last.status) == ("done", "done"), kind
        assert last.result != first.result, "another connection"
    assert sorted(entry.key for entry in Entry.objects.all()) == sorted(f"after {kind}" for kind in LEFT)


def test_what_a_task_sets_on_a_connection_without_a_session_is_gone() -> None:
    """As django-tenants sets the schema, which only the next statement tells the server."""

    def is_kept() -> bool:
        connections["other"].tenant = "acme"  # type: ignore[attr-defined]
        connections_module.tidy_up()
        return hasattr(connections["other"], "tenant")

    with ThreadPoolExecutor(1) as thread:
        assert not thread.submit(is_kept).result()


@pytest.mark.parametrize(("leave", "look", "pooled"), [
    pytest.param(hostile.leave_state, hostile.look, False, id="sync"),
    pytest.param(hostile.aleave_state, hostile.alook, True, id="async, pooled"),
    pytest.param(hostile.tleave_state, hostile.tlook, False, id="to_thread"),
])  # fmt: skip
@pytest.mark.promise("clean-sessions")
def test_no_job_finds_what_another_has_left_in_the_session(leave: Any, look: Any, pooled: bool) -> None:
    with kept(pooled):
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


def test_the_project_s_own_set_up_of_a_session_is_no_state_left_by_a_job() -> None:
    def set_up(connection: Any, **kwargs: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = 9000; SET IntervalStyle = 'iso_8601'")

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


TOUCHES = [
    "SET search_path TO other", "  set\n session search_path = other",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SET ROLE other", "-- a comment\nSET a.b = 1",
    "/* a; comment */ SET a.b = 1", "SELECT 1; SET a.b = 1", "BEGIN;SET a.b = 1;COMMIT", "RESET ALL",
    "LISTEN channel", "LOAD 'auto_explain'", "DO $$ BEGIN PERFORM 1; END $$", "PREPARE p AS SELECT 1",
    "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "create temporary view v AS SELECT 1",
    "CREATE TABLE pg_temp.t (a int)", "SELECT 1 INTO TEMP t", "SELECT set_config('a.b', %s, false)",
    "SELECT set_config(%s, %s, %s)", "SELECT PG_CATALOG.SET_CONFIG('a.b', 'c', FALSE)",
    "SELECT pg_advisory_lock(%s)", "SELECT pg_try_advisory_lock(1, 2)", "SELECT pg_advisory_lock_shared(1)",
    "SELECT setseed(0.5)", "SELECT dblink_connect('x', 'y')",
    "SELECT " + "1, " * 5_000 + "pg_advisory_lock(1)",
]  # fmt: skip
TOUCHES_NOT = [
    'UPDATE "app_entry" SET "note" = %s',
    'INSERT INTO "t" ("set", "listen") VALUES (%s, %s) ON CONFLICT DO UPDATE SET a = 1',
    '(SELECT "t"."attempts" FROM "t") UNION (SELECT 1)', "/* comment */ SELECT 1;\n",
    "SET LOCAL lock_timeout = 1", "set  local search_path TO other",
    "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET CONSTRAINTS ALL IMMEDIATE",
    "SELECT set_config('app.tenant', %s, true)", "SELECT set_config('app.tenant', %s, TRUE) AS b",
    "SELECT pg_advisory_xact_lock(1)", "SELECT pg_try_advisory_xact_lock_shared(1)",
    "SELECT * FROM temperature INTO", "SELECT settings FROM t", "LOCK TABLE t", "SAVEPOINT s",
    'RELEASE SAVEPOINT "s"', "CALL pgqueue_finish(1, 2, 'done')", "NOTIFY channel", "",
    "SELECT " + "1, " * 5_000 + "1",
]  # fmt: skip


def test_a_statement_that_may_change_the_session_costs_its_connection_and_others_do_not() -> None:
    """They are told by how they begin."""
    assert [text for text in TOUCHES if not touches_session(text)] == []
    assert [text for text in TOUCHES_NOT if touches_session(text)] == []


# -- how long connections are kept


@pytest.mark.parametrize(("max_age", "idle_timeout", "longest_use", "count"), [
    pytest.param(0, 60, 3600, 1, id="kept whatever CONN_MAX_AGE says"),
    pytest.param(0.001, 60, 3600, 1, id="kept also if it was over"),
    pytest.param(None, 60, 0, 3, id="replaced after an hour of use"),
    pytest.param(0, None, 3600, 3, id="CONN_MAX_AGE applies where the project says so"),
    pytest.param(600, None, 3600, 1, id="kept for CONN_MAX_AGE where the project says so"),
])  # fmt: skip
def test_how_many_sessions_three_jobs_use(
    max_age: Any, idle_timeout: Any, longest_use: float, count: int, settings: Any, monkeypatch: Any
) -> None:
    settings.PGQUEUE = {"IDLE_CONNECTION_TIMEOUT": idle_timeout}
    monkeypatch.setattr(connections_module, "LONGEST_USE", longest_use)
    with database_settings(CONN_MAX_AGE=max_age):
        jobs = [enqueue(backend) for _ in range(3) for backend in BACKENDS]
        run_due(threads=1)
    results = [fresh(job).result for job in jobs]
    assert [len({*results[::2]}), len({*results[1::2]})] == [count, count], "of sync and of async ones"


def test_an_idle_thread_closes_its_connection(settings: Any) -> None:
    settings.PGQUEUE = {"IDLE_CONNECTION_TIMEOUT": 1}
    with database_settings(CONN_MAX_AGE=0), working(threads=1):
        first = [enqueue(backend) for backend in BACKENDS]
        pids: set[Any] = {until(lambda job=job: fresh(job).result) for job in first}  # type: ignore[misc]
        until(lambda: not pids & django_sessions(), what="the connections are closed")
        second = [enqueue(backend) for backend in BACKENDS]
        over(*second)
    assert [(fresh(job).status, fresh(job).attempts) for job in second] == [("done", 1)] * 2


def test_a_connection_that_jobs_no_longer_use_is_closed_between_them(monkeypatch: Any) -> None:
    """The thread is busy with jobs that use no database, so it is never idle."""
    clock = itertools.count(1_000.0, 30.0)  # half of IDLE_CONNECTION_TIMEOUT from one look to the next
    monkeypatch.setattr(connections_module, "monotonic", lambda: next(clock))
    first, *others = enqueue(tasks.backend), *(enqueue(tasks.noop) for _ in range(3))
    enqueue(tasks.hold, "end")
    with database_settings(CONN_MAX_AGE=None), working(threads=1):
        tasks.runs("end")
        over(first, *others)
        until(lambda: fresh(first).result not in django_sessions(), what="the connection is closed")
        tasks.release("end")


def test_a_job_that_uses_no_database_opens_no_connection() -> None:
    before = django_sessions()
    with working(), tasks.held("a"):
        assert django_sessions() <= before


def test_connections_are_bounded_whatever_the_jobs_do_and_none_is_left() -> None:
    """`python -m benchmarks.in_flight` is the long form, with 10,000 jobs."""
    before = django_sessions()
    kinds: list[Any] = [*BACKENDS, hostile.tlook, async_tasks.in_a_thread]
    with working(threads=2, async_slots=50):
        ids = enqueue_many(kinds[number % 4].bind() for number in range(100)).ids
        until(lambda: Job.objects.filter(pk__in=ids, status="done").count() == 100)
        # Two job threads, two of async jobs. Others are closed after each call.
        until(lambda: len(django_sessions() - before) <= 4)
    until(lambda: django_sessions() <= before, what="no session left")


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


def test_an_open_connection_to_another_kind_of_database_stays_and_holds_up_no_job(tmp_path: Path) -> None:
    other = {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "other", "OPTIONS": {}}
    with alias("sqlite", opened=False, CONN_MAX_AGE=None, **other):
        jobs = [enqueue(tasks.raw_connection, "sqlite") for _ in range(3)]
        run_due(threads=1)
    assert [(fresh(job).status, fresh(job).attempts) for job in jobs] == [("done", 1)] * 3
    assert len({fresh(job).result for job in jobs}) == 1


# -- the end of a session


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.promise("idle-death")
def test_a_session_that_ended_between_two_jobs_costs_no_attempt(pooled: bool) -> None:
    """End the sessions as a restart of the server does, without CONN_HEALTH_CHECKS."""
    with pool(min_size=3, max_size=3) if pooled else kept(False), working(threads=1):
        first = [enqueue(backend) for backend in BACKENDS]
        over(*first)
        if pooled:
            until(lambda: len(django_sessions()) == 3)
        terminate(*django_sessions())
        jobs = [enqueue(backend) for backend in BACKENDS * 3]
        over(*jobs)
    assert [(job.status, job.attempts, job.errors) for job in map(fresh, jobs)] == [("done", 1, [])] * 6
    assert {fresh(job).result for job in first}.isdisjoint({fresh(job).result for job in jobs})


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
        with socket.socket(fileno=dup(raw.fileno())) as stream:
            stream.shutdown(socket.SHUT_RDWR)
    else:
        raw.close()
    until(lambda: connections_module.has_ended(raw))
    other.close()


def test_what_the_server_sends_unasked_is_no_end() -> None:
    """Its configuration may be reloaded, and another session may call one that listens."""
    other = connections["default"].copy()
    other.ensure_connection()
    raw: Any = other.connection
    raw.execute("LISTEN tests")
    sql("NOTIFY tests")
    assert select([raw], [], [], DEADLINE)[0] == [raw]
    assert not connections_module.has_ended(raw)
    assert raw.execute("SELECT 1").fetchone() == (1,)
    other.close()


# -- each end notices when the other one has vanished

SERVER = (
    "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout",
    "client_connection_check_interval",
)  # fmt: skip
CLIENT = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")


@contextmanager
def prepared(name: str) -> Iterator[Any]:
    """Open the connection of an alias as a worker process does."""
    before = {each: connections.settings[each].get("OPTIONS", {}) for each in connections}
    try:
        fork._set_options()
        connections[name].connect()
        yield connections[name].connection
    finally:
        for each, options in before.items():
            connections.settings[each]["OPTIONS"] = options


def ends(raw: Any) -> tuple[list[int], list[int]]:
    """Return what is set for the client's and for the server's end of a connection."""
    with socket.socket(fileno=socket.dup(raw.fileno())) as ours:
        client = [ours.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in CLIENT]
    rows = raw.execute("SELECT name, setting FROM pg_settings WHERE name = ANY (%s)", [list(SERVER)])
    found = dict(rows.fetchall())
    return client, [int(found[name]) for name in SERVER]


CONFIGURED = {"keepalives_idle": 100, "options": "-c tcp_keepalives_count=7 -c tcp_user_timeout=0"}
#: What differs in the database, and the settings.
ENDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the connection of a task": ({}, {}),
    "a shorter lease means shorter times": ({}, {"LEASE": 8, "HEARTBEAT": 1}),
    "a longer lease lets a task pause for a minute": ({}, {"LEASE": 3600}),
    "what is configured comes first": ({"OPTIONS": CONFIGURED}, {}),
    "without autocommit": ({"AUTOCOMMIT": False}, {}),
}


@pytest.mark.parametrize("case", ENDS)
def test_both_ends_give_up_in_time(case: str, settings: Any, wording: Any) -> None:
    """Those of Django's connections, and those of the worker."""
    changes, settings.PGQUEUE = ENDS[case]
    with alias("mine", opened=False, **changes) as name, prepared(name) as raw:
        assert raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with closing(connect(name)) as worker:
            found = [ends(raw), ends(worker.connection)]
    assert "\n".join(map(str, found)) == wording


def test_settings_of_the_role_come_first() -> None:
    of_role = f'ALTER ROLE CURRENT_USER IN DATABASE "{connection.settings_dict["NAME"]}"'
    sql(f"{of_role} SET tcp_user_timeout = 70000")
    try:
        with alias("mine", opened=False) as name, prepared(name) as raw:
            assert ends(raw)[1] == [10, 5, 3, 70_000, 10_000]
    finally:
        sql(f"{of_role} RESET tcp_user_timeout")


def test_a_server_that_refuses_it_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(raw: Any, **kwargs: Any) -> None:
        raw.execute("SELECT 1 / 0")

    monkeypatch.setattr(connections_module, "set_server_keepalive", refuse)
    with alias("mine", opened=False) as name, prepared(name) as raw:
        assert raw.execute("SELECT 1").fetchone() == (1,)
