"""Django's connections around jobs: kept as long as they may be, cleaned after a job that made a mess."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, connections

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.models import Job
from tests.app import worker_tasks as tasks
from tests.app.models import Entry
from tests.support.workers import fresh, run_due, until, working

pytestmark = pytest.mark.django_db(transaction=True)

LEFT = ["transaction", "empty transaction", "closed in a transaction", "autocommit off", "broken", "error"]


@contextmanager
def database_settings(**changed: Any) -> Iterator[None]:
    """Settings of the default database, for connections of other threads (they share the dict)."""
    settings = connections.settings["default"]
    before = dict(settings)
    settings.update(changed)
    try:
        yield
    finally:
        settings.clear()
        settings.update(before)


def sessions() -> int:
    """How many sessions there are beside our own and the pump's, which is named."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            " AND application_name <> 'pgqueue worker'"
        )
        count: int = cursor.fetchone()[0]
    return count


@pytest.mark.parametrize("kind", LEFT)
@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_job_leaves_open_is_gone_before_the_next(kind: str, is_async: bool) -> None:
    leave, backend = (tasks.aleave, tasks.abackend) if is_async else (tasks.leave, tasks.backend)
    with database_settings(CONN_MAX_AGE=None):
        first = enqueue(leave, kind)
        after = [
            enqueue(tasks.anote, "after") if is_async else enqueue(tasks.note, "after"),
            enqueue(backend),
        ]
        run_due(threads=1)
    assert fresh(first).status == "done"
    assert [fresh(job).status for job in after] == ["done", "done"]
    assert [entry.key for entry in Entry.objects.all()] == ["after"]
    assert fresh(after[1]).result != fresh(first).result  # another connection


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
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
            assert cursor.fetchone() == (True,)
        second = enqueue(backend)
        until(lambda: fresh(second).is_over)
    assert fresh(second).status == "done"
    assert fresh(second).attempts == 1


def test_no_connection_is_left_when_the_worker_has_ended() -> None:
    before = sessions()
    with database_settings(CONN_MAX_AGE=None):
        enqueue_many(tasks.backend.bind() for _ in range(20))
        enqueue_many(tasks.abackend.bind() for _ in range(20))
        run_due(threads=4)
    assert set(Job.objects.values_list("status", flat=True)) == {"done"}
    until(lambda: sessions() == before, what="no session left")


def test_a_job_that_uses_no_database_opens_no_connection() -> None:
    before = sessions()
    enqueue(tasks.hold, "a")
    with working():
        assert tasks.gate("a runs").wait(tasks.DEADLINE)
        assert sessions() == before
        tasks.gate("a").set()


def test_a_pool_gets_its_connections_back() -> None:
    pytest.importorskip("psycopg_pool")
    options = {**connections.settings["default"].get("OPTIONS", {}), "pool": {"min_size": 1, "max_size": 2}}
    with database_settings(CONN_MAX_AGE=0, OPTIONS=options):
        try:
            # Four threads and two connections: without give-back the pool runs dry.
            ids = enqueue_many(tasks.backend.bind() for _ in range(30))
            left = enqueue(tasks.leave, "transaction")
            last = enqueue(tasks.note, "after")
            run_due(threads=4)
            assert Job.objects.filter(pk__in=ids, status="done").count() == 30
            assert len(set(Job.objects.filter(pk__in=ids).values_list("result", flat=True))) <= 2
            assert (fresh(left).status, fresh(last).status) == ("done", "done")
            assert Entry.objects.count() == 1
        finally:
            default: Any = connections["default"]
            pools = default._connection_pools  # of all threads
            for pool in pools.values():
                pool.close()
            pools.clear()
