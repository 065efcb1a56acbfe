"""When an idle worker looks for jobs again. It holds the sleepers' lock exactly while it sleeps."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_pgqueue.session import Session, connect
from django_pgqueue.worker.producer.idle import LOOKS, Idle


@pytest.fixture
def session(transactional_db: None) -> Any:
    session = connect("default")
    yield session
    session.close()


def locks(session: Session) -> int:
    """How many advisory locks the session holds, in shared mode."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND pid = %s",
            [session.connection.info.backend_pid],
        )
        count: int = cursor.fetchone()[0]
    return count


def test_from_awake_to_asleep(session: Session) -> None:
    idle = Idle((), 1.0)
    idle.connected(session)
    assert idle.due(0.0)
    assert locks(session) == 0
    looks = []
    now = 10.0
    idle.nothing_found(session, now, None)
    assert idle.announced
    assert locks(session) == 1
    for _ in LOOKS:
        assert idle.due(now)
        idle.nothing_found(session, now, None)
        looks.append(idle.seconds_left(10.0))
        now = 10.0 + looks[-1]
    assert looks == pytest.approx(LOOKS)
    idle.nothing_found(session, now, None)
    assert 0.8 <= idle.seconds_left(now) <= 1.0
    assert locks(session) == 1


def test_it_wakes_for_the_next_job_that_comes_due(session: Session) -> None:
    idle = Idle((), 60.0)
    idle.connected(session)
    for _ in range(len(LOOKS) + 2):
        idle.nothing_found(session, 10.0, 0.25)
    assert idle.seconds_left(10.0) == pytest.approx(0.25)


def test_a_call_ends_the_sleep(session: Session) -> None:
    idle = Idle((), 60.0)
    idle.connected(session)
    for _ in range(len(LOOKS) + 2):
        idle.nothing_found(session, 10.0, None)
    assert not idle.due(10.0)
    idle.look_now()
    assert idle.due(10.0)
    assert idle.called
    idle.nothing_found(session, 10.0, None)
    assert not idle.called


def test_the_lock_is_let_go_once_when_it_is_awake(session: Session) -> None:
    idle = Idle(("a", "b"), 1.0)
    idle.connected(session)
    assert idle.release() is None
    idle.nothing_found(session, 10.0, None)
    assert locks(session) == 2
    assert idle.release() is None  # still asleep
    idle.found()
    # The worker sleeps again before the lock was released, and does not take it twice.
    idle.nothing_found(session, 11.0, None)
    assert locks(session) == 2
    idle.found()
    statement = idle.release()
    assert statement is not None
    session.run(statement)
    assert locks(session) == 0
    assert idle.release() is None


def test_a_new_session_holds_nothing(session: Session) -> None:
    idle = Idle((), 1.0)
    idle.connected(session)
    idle.nothing_found(session, 10.0, None)
    again = connect("default")
    idle.connected(again)
    assert not idle.announced
    assert idle.due(0.0)
    assert locks(again) == 0
    again.close()


def test_behind_a_pooler_it_only_polls(session: Session) -> None:
    session.pooled = True
    idle = Idle((), 0.5)
    idle.connected(session)
    idle.nothing_found(session, 10.0, None)
    assert not idle.announced
    assert 0.4 <= idle.seconds_left(10.0) <= 0.5
    assert locks(session) == 0
