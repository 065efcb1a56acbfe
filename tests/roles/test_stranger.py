"""A role that may connect, and nothing else. It can send notifications and take advisory locks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.utils import timezone

from django_pgqueue import cancel, enqueue
from django_pgqueue.maintenance.rounds import tell_foreign_locks
from django_pgqueue.monitoring.health import full_health, health
from django_pgqueue.monitoring.queues import foreign_locks
from django_pgqueue.postgres.session import Session
from tests.app import worker_tasks as tasks
from tests.app.limit_tasks import ship
from tests.support.databases import roles
from tests.support.factories import JobFactory, WorkerFactory
from tests.support.history import fresh_ring
from tests.support.jobs import over as add_over, rotate, value
from tests.support.sessions import Connect, Connection, open_raw, start
from tests.support.workers import fresh, until, working

from .conftest import PASSWORD, Login

#: What workers send to each other, and what they do not.
WORDS = [
    "", "cancel", "cancel ", "cancel ²", "cancel -1", "cancel x", "cancel 1 2", "cancel 9223372036854775808",
    "cancel " + "9" * 5_000, "pause", "pause pause", "drain", "drain stop", "wake", "wake default",
    "proof", "proof 1 1", "proof " + "9" * 5_000, "\x01\x7f", "€" * 2_000,
]  # fmt: skip


@pytest.fixture
def stranger(transactional_db: None, login: Login) -> Iterator[Connection]:
    """A session of a role without any grant."""
    with roles("stranger") as (name,), open_raw() as owner:
        owner.execute(f"ALTER ROLE \"{name}\" LOGIN PASSWORD '{PASSWORD}'")
        session = login(name)
        yield session
        session.close()


@pytest.fixture(autouse=True)
def _clean_gates() -> Iterator[None]:
    tasks.reset()
    yield
    tasks.reset()


@pytest.mark.promise("stranger")
def test_no_notification_harms_a_worker_or_its_jobs(stranger: Connection, settings: Any) -> None:
    settings.PGQUEUE = {"POLL_INTERVAL": 60}
    leaf = value(stranger, "SELECT oid FROM pg_class WHERE relname = 'pgqueue_job_live' AND relkind = 'r'")
    jobs = [enqueue(tasks.asleep, "async"), enqueue(tasks.stoppable, "sync")]
    with working() as worker:
        assert tasks.gate("async runs").wait(tasks.DEADLINE)
        assert tasks.gate("sync runs").wait(tasks.DEADLINE)
        for word in [*WORDS, *(f"cancel {job.pk}" for job in jobs)]:
            stranger.execute("SELECT pg_notify(%s, %s)", (f"pgqueue_{leaf}", word))
        after = enqueue(tasks.noop)  # its notification comes after all of them
        until(lambda: fresh(after).status == "done")
        until(lambda: not worker.producer._inbox._named_jobs)
        assert [fresh(job).status for job in jobs] == ["running", "running"]
        assert tasks.SEEN == []
        assert cancel(jobs[0]) == cancel(jobs[1]) == 1
        until(lambda: [fresh(job).status for job in jobs] == ["cancelled", "cancelled"])


DUTIES = ["alerts", "batches", "depth", "edges", "failures", "kept", "lines", "recover", "ring", "schedules",
          "statistics", "unpause"]  # fmt: skip


@pytest.fixture
def hoarder(stranger: Connection) -> Connection:
    """A stranger that holds every advisory lock with which duties were guarded once."""
    for kind, names in (("maintenance", DUTIES), ("schedules", ["synchronize"])):
        for name in names:
            stranger.execute(
                "SELECT pg_advisory_lock(hashtextextended('pgqueue/' || oid || %s, 0)) FROM pg_class"
                " WHERE relname = 'pgqueue_job_live'",
                (f"/{kind}/{name}",),
            )
    return stranger


@pytest.mark.promise("stranger")
def test_the_jobs_of_a_dead_worker_are_recovered(hoarder: Connection, connect: Connect) -> None:
    lost = JobFactory.create(running=True)
    WorkerFactory.create(id=7, heartbeat_at=timezone.now() - timedelta(seconds=0.3), started_jobs=[lost.pk])
    recovered = value(connect(autocommit=True), "SELECT jobs FROM _pgqueue_recover_dead(0.1, 30, 3, 100, 20)")
    assert recovered == 1
    assert fresh(lost).status == "pending"


def test_old_jobs_are_removed(hoarder: Connection, connect: Connect) -> None:
    owner = connect(autocommit=True)
    with fresh_ring(owner):
        add_over(owner, 2, "8 days", 3)
        assert rotate(owner) == "emptied shelf 2"


def test_one_session_at_a_time_has_a_duty(hoarder: Connection, connect: Connect) -> None:
    """Whatever advisory locks somebody holds. It lasts until the end of the transaction."""
    ask = "SELECT _pgqueue_on_duty(%s)"
    one, other = connect(), connect()
    for duty in DUTIES:
        assert [value(each, ask, duty) for each in (one, one, other)] == [True, True, False], duty
        one.commit()
        assert value(other, ask, duty) is True, duty


@pytest.fixture
def no_duties(connect: Connect) -> Iterator[None]:
    """The table is empty, as after a restore without data."""
    one = connect(autocommit=True)
    one.execute("DELETE FROM pgqueue_duty")
    yield
    one.execute("INSERT INTO pgqueue_duty SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING", (DUTIES,))


def test_a_duty_whose_row_was_lost_is_made_again(connect: Connect, no_duties: None) -> None:
    one, other = connect(), connect()
    ask = "SELECT _pgqueue_on_duty('ring')"
    assert value(one, ask) is True
    waits = start(other, value, ask).blocked()
    one.commit()
    assert waits.result() is False
    other.commit()
    assert value(other, ask) is True
    other.commit()


@pytest.mark.promise("stranger")
def test_no_function_leaves_a_duty_to_an_advisory_lock(connect: Connect) -> None:
    one = connect()
    assert value(one, "SELECT array_agg(name::text ORDER BY name) FROM pgqueue_duty") == DUTIES
    guarded = "SELECT array_agg(proname::text ORDER BY proname) FROM pg_proc WHERE strpos(prosrc, %s) > 0"
    assert value(one, guarded, "_pgqueue_lock_key('maintenance'") is None
    assert value(one, guarded, "_pgqueue_on_duty('") == [
        "_pgqueue_count_depth", "_pgqueue_fold_failures", "_pgqueue_forget_figures",
        "_pgqueue_recover_dead", "_pgqueue_repair_batches", "_pgqueue_repair_edges",
        "_pgqueue_repair_lines", "_pgqueue_roll_up", "_pgqueue_rotate",
        "_pgqueue_sweep", "_pgqueue_tell_failures", "_pgqueue_unpause",
    ]  # fmt: skip


def test_who_may_only_read_has_no_duty(connect: Connect) -> None:
    one = connect()
    with roles("reader") as (name,), one.transaction(force_rollback=True):
        one.execute(f'GRANT SELECT ON pgqueue_duty TO "{name}"')
        one.execute(f'SET LOCAL ROLE "{name}"')
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            one.execute("SELECT name FROM pgqueue_duty FOR UPDATE")


@pytest.mark.parametrize("kind", ["limit", "room", "worker", "none of ours"])
def test_a_lock_that_a_stranger_holds_is_named(
    stranger: Connection, connect: Connect, session: Session, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """By health and the log. A worker's own locks, and those of other applications, are not."""
    owner = connect(autocommit=True)
    job = enqueue(ship, 7)
    owner.execute("SELECT pgqueue_set_limit('queue', 'slow', 5)")
    WorkerFactory.create(id=7, heartbeat_at=timezone.now())
    name = {"limit": fresh(job).limit_key, "room": "slow", "worker": "7"}.get(kind, "x")
    owner.execute("SELECT pg_advisory_lock(_pgqueue_lock_key('limit', 'a key that has no line'))")
    assert foreign_locks("default") == []
    stranger.execute(
        "SELECT pg_advisory_lock(%s)", (value(owner, "SELECT _pgqueue_lock_key(%s, %s)", kind, name),)
    )
    tell_foreign_locks(session)
    tell_foreign_locks(session)
    said = f"(process {stranger.info.backend_pid}) holds a lock of the queue without a right to it"
    if kind == "none of ours":
        assert foreign_locks("default") == []
        assert said not in caplog.text
        return
    assert [problem.text for problem in health("default").problems if said in problem.text]
    assert "foreign_lock" in {problem.kind for problem in full_health("default").problems}
    assert caplog.text.count(said) == 1
    assert f"pg_terminate_backend({stranger.info.backend_pid})" in caplog.text


def test_a_job_whose_key_a_stranger_has_locked_runs_afterwards(
    stranger: Connection, connect: Connect
) -> None:
    job = enqueue(ship, 7)
    key = value(connect(), "SELECT _pgqueue_lock_key('limit', %s)", fresh(job).limit_key)
    stranger.execute("SELECT pg_advisory_lock(%s)", (key,))
    with working():
        after = enqueue(tasks.noop)
        until(lambda: fresh(after).status == "done")
        assert fresh(job).status == "pending"
        stranger.execute("SELECT pg_advisory_unlock(%s)", (key,))
        tasks.gate("").set()
        until(lambda: fresh(job).status == "done")
