"""The lock that shows that a worker is alive: its current session holds it once, and can tell that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from django_pgqueue.models import Worker
from django_pgqueue.postgres.session import Session
from django_pgqueue.postgres.session import connect as connect_worker
from django_pgqueue.worker import sessions
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.sessions import Registration
from tests.support.jobs import add, claim, live
from tests.support.sessions import Connect
from tests.support.workers import RunningWorker, make_producer, until

pytestmark = pytest.mark.django_db(transaction=True)


def holders(worker: int) -> int:
    """Return how many sessions hold the lock of a worker."""
    with closing(connect_worker("default")) as session:
        query = (
            "SELECT count(*) FROM pg_locks, _pgqueue_lock_key('worker', %s) AS key"
            " WHERE locktype = 'advisory' AND objsubid = 1 AND classid = (key >> 32 & 4294967295)::oid"
            " AND objid = (key & 4294967295)::oid AND granted"
        )
        return int(session.value(query, (str(worker),)))


def hold_lock(session: Session, worker: int) -> None:
    session.run(("SELECT pg_advisory_lock(_pgqueue_lock_key('worker', %s))", (str(worker),)))


@pytest.fixture
def old() -> Iterator[Session]:
    """The last session of worker 7, which holds its lock."""
    with closing(connect_worker("default")) as session:
        hold_lock(session, 7)
        yield session


@pytest.fixture
def new() -> Iterator[Session]:
    """Its next session."""
    with closing(connect_worker("default")) as session:
        yield session


@pytest.fixture
def _without_the_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """The role of this worker must not end the session of another role."""
    monkeypatch.setattr(Registration, "_end_last_session", lambda self, session: None)


def registration(**options: Any) -> Registration:
    return Registration(WorkerOptions(**options), worker=7, supervisor=1)


def registered() -> Worker:
    return Worker.objects.get(pk=7)


@pytest.mark.usefixtures("_without_the_right")
def test_a_worker_says_whether_it_holds_its_lock_and_takes_it_once_it_can(old: Session, new: Session) -> None:
    worker = registration()
    for _ in range(2):
        worker.register(new)
        assert not registered().holds_lock
    old.close()
    until(lambda: not holders(7))
    worker.register(new)
    assert (registered().holds_lock, holders(7)) == (True, 1)


def test_the_lock_is_taken_once_however_often_it_registers(new: Session) -> None:
    """Advisory locks are counted: a lock that was taken twice is not free after one release."""
    worker = registration()
    for _ in range(3):
        worker.register(new)
    new.run(("SELECT pg_advisory_unlock(_pgqueue_lock_key('worker', '7'))", None))
    assert not holders(7)


def test_the_last_session_of_a_worker_is_ended_if_the_server_has_not_noticed_that_it_is_lost(
    old: Session, new: Session
) -> None:
    registration().register(new)
    assert (registered().holds_lock, holders(7)) == (True, 1)
    with pytest.raises(psycopg.OperationalError):
        old.rows("SELECT 1")


@pytest.mark.usefixtures("old")
def test_a_session_that_does_not_end_is_not_waited_for_for_long(
    new: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "END_WITHIN", 0.05)
    monkeypatch.setattr(sessions, "_END_SQL", "SELECT %s::bigint[]")
    registration().register(new)
    assert not registered().holds_lock


@pytest.mark.usefixtures("_without_the_right")
def test_a_worker_whose_last_session_ends_late_gets_its_lock_and_gives_back_what_that_has_claimed(
    monkeypatch: pytest.MonkeyPatch, connect: Connect
) -> None:
    """The new session has looked for claims that are not its own already, when it was opened."""
    monkeypatch.setattr(sessions, "REGISTER_EVERY", 0.05)
    producer = make_producer(queues=("other",))
    shown = producer.jobs._started_jobs  # what its supervisor repeats with each heartbeat
    one = connect(autocommit=True)
    with closing(connect_worker("default")) as old:
        hold_lock(old, producer.worker)
        worker = RunningWorker(producer)
        until(lambda: shown.registered)
        assert (Worker.objects.get().holds_lock, bool(shown.holds_lock)) == (False, False)
        (job,) = add(one)
        assert len(claim(one, worker=producer.worker)) == 1
        old.close()
        until(lambda: Worker.objects.get().holds_lock)
        until(lambda: shown.holds_lock)
        until(lambda: live(one) == {job: "pending"})
        worker.stop()


@pytest.mark.usefixtures("old")
def test_a_session_asks_once_that_the_one_before_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time, it would wait for that."""
    asked: list[Session] = []
    monkeypatch.setattr(Registration, "_end_last_session", lambda self, session: asked.append(session))
    worker = registration()
    for _ in range(2):
        with closing(connect_worker("default")) as new:
            worker.register(new)
            worker.renew(new, 0.0, "SELECT 1", None)
    assert len(asked) == len({id(session) for session in asked}) == 2


def test_the_entry_names_the_queues_that_the_worker_leaves_out_and_its_memory(
    new: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = registration(exclude_queues=("never", "slow"))
    worker.register(new)
    assert (registered().queues, registered().exclude_queues) == ([], ["never", "slow"])
    assert (registered().memory or 0) > 2**20
    monkeypatch.setattr(sessions, "_STATM", Path("/does/not/exist"))
    worker.register(new)
    assert registered().memory is None, "not known on this system"
