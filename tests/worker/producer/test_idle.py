"""When an idle worker looks for jobs again. It holds the sleepers' lock exactly while it sleeps."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_pgqueue.postgres.session import Session, connect
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
    idle.connected()
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


def pauses(idle: Idle, session: Session, count: int, *, hears: bool) -> list[float]:
    """Return the pauses after this many looks that find nothing."""
    found = []
    for _ in range(count):
        idle.nothing_found(session, 10.0, None, hears=hears)
        found.append(idle.seconds_left(10.0))
    return found


def asleep(session: Session, poll_interval: float | None) -> Idle:
    """Return a worker that has done its looks after the announcement."""
    idle = Idle((), poll_interval)
    idle.connected()
    pauses(idle, session, len(LOOKS) + 1, hears=True)
    return idle


@pytest.fixture
def longest_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: high)


@pytest.mark.usefixtures("longest_pauses")
def test_a_worker_that_is_notified_looks_less_and_less_often(session: Session) -> None:
    idle = asleep(session, None)
    assert pauses(idle, session, 6, hears=True) == [1, 2, 4, 8, 10, 10]
    # A session that may be deaf: it is not known when that began.
    assert pauses(idle, session, 2, hears=False) == [1, 1]
    assert pauses(idle, session, 1, hears=True) == [10]
    # Somebody has committed a job, which another worker has claimed. A second job may become visible later
    # without another notification.
    idle.look_now()
    assert pauses(idle, session, 2, hears=True) == [1, 2]
    # The same after its own jobs.
    idle.found()
    assert pauses(idle, session, len(LOOKS) + 3, hears=True)[-2:] == [1, 2]


@pytest.mark.usefixtures("longest_pauses")
def test_an_interval_that_is_set_applies_to_all(session: Session) -> None:
    idle = asleep(session, 0.5)
    assert pauses(idle, session, 4, hears=True) == [0.5] * 4


@pytest.mark.usefixtures("longest_pauses")
@pytest.mark.promise("pooler-polls")
def test_behind_a_pooler_it_polls_every_second(session: Session) -> None:
    session.pooled = True
    idle = Idle((), None)
    idle.connected()
    assert pauses(idle, session, 4, hears=True) == [1] * 4


def test_it_wakes_for_the_next_job_that_comes_due(session: Session) -> None:
    idle = Idle((), 60.0)
    idle.connected()
    for _ in range(len(LOOKS) + 2):
        idle.nothing_found(session, 10.0, 0.25)
    assert idle.seconds_left(10.0) == pytest.approx(0.25)


def test_a_job_that_comes_due_between_two_looks_does_not_wait_for_the_second_one(session: Session) -> None:
    idle = Idle((), 60.0)
    idle.connected()
    idle.nothing_found(session, 10.0, 0.1)
    looks, now = [], 10.0
    for _ in range(5):
        idle.nothing_found(session, now, 10.1 - now if now < 10.1 else None)
        now += idle.seconds_left(now)
        looks.append(now - 10.0)
    # That it looked for this job is no reason to leave out the look after it.
    assert looks == pytest.approx([0.005, 0.02, 0.06, 0.1, 0.2])


def test_a_call_ends_the_sleep(session: Session) -> None:
    idle = Idle((), 60.0)
    idle.connected()
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
    idle.connected()
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
    idle.connected()
    idle.nothing_found(session, 10.0, None)
    again = connect("default")
    idle.connected()
    assert not idle.announced
    assert idle.due(0.0)
    assert locks(again) == 0
    again.close()


def test_behind_a_pooler_it_only_polls(session: Session) -> None:
    session.pooled = True
    idle = Idle((), 0.5)
    idle.connected()
    idle.nothing_found(session, 10.0, None)
    assert not idle.announced
    assert 0.4 <= idle.seconds_left(10.0) <= 0.5
    assert locks(session) == 0
