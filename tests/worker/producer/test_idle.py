"""When an idle worker looks for jobs again. It holds the sleepers' lock just while it sleeps, and misses no
notification. A session that receives none is replaced.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from time import monotonic
from typing import Any

import pytest
from django.db import connection

from django_pgqueue import enqueue
from django_pgqueue.models import Job
from django_pgqueue.postgres.session import Session
from django_pgqueue.worker import sessions
from django_pgqueue.worker.producer import idle as idle_module, producer as producer_module
from django_pgqueue.worker.producer.claimer import Claimer
from django_pgqueue.worker.producer.idle import LOOKS, Idle
from django_pgqueue.worker.producer.producer import Producer
from tests.app import worker_tasks as tasks
from tests.support.jobs import sql
from tests.support.workers import RunningWorker, backend_of, done, make_producer, until, working

pytestmark = pytest.mark.django_db(transaction=True)


def locks(session: Session) -> int:
    """How many advisory locks the session holds, in shared mode."""
    query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND pid = %s"
    return int(sql(query, session.connection.info.backend_pid))


def connected(poll_interval: float | None = 60.0, queues: tuple[str, ...] = ()) -> Idle:
    idle = Idle(queues, poll_interval)
    idle.connected()
    return idle


def pauses(idle: Idle, session: Session, count: int, *, hears: bool, due: float | None = None) -> list[float]:
    """Return the pauses after this many looks that find nothing."""
    found = []
    for _ in range(count):
        idle.nothing_found(session, 10.0, due, hears=hears)
        found.append(idle.seconds_left(10.0))
    return found


ANNOUNCED = len(LOOKS) + 1  # the looks with which a worker falls asleep


@pytest.fixture
def longest_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: high)


@pytest.mark.usefixtures("longest_pauses")
def test_a_worker_that_is_notified_looks_less_and_less_often(session: Session) -> None:
    idle = connected(None)
    assert pauses(idle, session, ANNOUNCED + 6, hears=True)[ANNOUNCED:] == [1, 2, 4, 8, 10, 10]
    # A session that may be deaf: it is not known when that began.
    assert pauses(idle, session, 2, hears=False) == [1, 1]
    assert pauses(idle, session, 1, hears=True) == [10]
    # Somebody has committed a job, which another worker has claimed. A second job may become visible later
    # without another notification.
    idle.look_now()
    assert pauses(idle, session, 2, hears=True) == [1, 2]
    # The same after its own jobs.
    idle.found()
    assert pauses(idle, session, ANNOUNCED + 2, hears=True)[-2:] == [1, 2]


@pytest.mark.usefixtures("longest_pauses")
@pytest.mark.promise("pooler-polls")
@pytest.mark.parametrize(
    ("poll_interval", "pooled", "pause"), [(0.5, False, 0.5), (0.5, True, 0.5), (None, True, 1)]
)
def test_an_interval_that_is_set_applies_to_all_and_behind_a_pooler_it_only_polls(
    session: Session, poll_interval: float | None, pooled: bool, pause: float
) -> None:
    session.pooled = pooled
    idle = connected(poll_interval)
    skipped = 0 if pooled else ANNOUNCED
    assert pauses(idle, session, skipped + 4, hears=True)[skipped:] == [pause] * 4
    assert (idle.announced, locks(session)) == (not pooled, 0 if pooled else 1)


def test_a_job_that_comes_due_between_two_looks_does_not_wait_for_the_second_one(session: Session) -> None:
    idle = connected()
    idle.nothing_found(session, 10.0, 0.1)
    assert not idle.seconds_left(10.0), "the look after the announcement comes at once"
    looks, now = [], 10.0
    for _ in range(5):
        idle.nothing_found(session, now, 10.1 - now if now < 10.1 else None)
        now += idle.seconds_left(now)
        looks.append(now - 10.0)
    # That it looked for this job is no reason to leave out the look after it.
    assert looks == pytest.approx([0.005, 0.02, 0.06, 0.1, 0.2])
    # Asleep, it wakes for the next job that comes due.
    assert pauses(idle, session, 2, hears=False, due=0.25)[-1] == pytest.approx(0.25)


def test_the_lock_is_let_go_once_when_it_is_awake_and_a_new_session_has_none(session: Session) -> None:
    idle = connected(1.0, ("a", "b"))
    assert idle.release() is None
    idle.nothing_found(session, 10.0, None)
    assert locks(session) == 2
    assert idle.release() is None  # still asleep
    idle.found()
    # The worker sleeps again before the lock was released, and does not take it twice.
    idle.nothing_found(session, 11.0, None)
    assert locks(session) == 2
    idle.found()
    statement: Any = idle.release()
    session.run(statement)
    assert locks(session) == 0
    assert idle.release() is None
    idle.nothing_found(session, 12.0, None)
    idle.connected()
    assert not idle.announced
    assert not idle.seconds_left(0.0)
    assert idle.release() is None


# -- notifications


@pytest.fixture
def rare_polls(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker polls never within a test, and checks often that it is notified."""
    settings.PGQUEUE = {"POLL_INTERVAL": 60}
    monkeypatch.setattr(sessions, "REGISTER_EVERY", 0.05)
    monkeypatch.setattr(producer_module, "LONGEST_SLEEP", 0.05)


def sleeps(producer: Producer) -> bool:
    """Return whether the worker sleeps until its poll or a notification."""
    return producer._idle.announced and producer._idle.seconds_left(monotonic()) > 30


def test_a_notification_that_comes_during_a_statement_is_heard_before_the_sleep(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read off the socket together with the answer, so nothing is left there that could wake anybody.

    The worker is alone with its notifications here: no second looks, no poll within the test.
    """
    settings.PGQUEUE = {"POLL_INTERVAL": 60}
    monkeypatch.setattr(idle_module, "LOOKS", ())
    monkeypatch.setattr(producer_module, "LONGEST_SLEEP", 60.0)
    asleep = Event()
    committed: list[Job] = []
    look = Claimer.search

    def enqueue_elsewhere() -> Job:
        try:
            return enqueue(tasks.noop)
        finally:
            connection.close()

    def search(claimer: Claimer, *given: Any, **options: Any) -> tuple[bool, float | None]:
        answer = look(claimer, *given, **options)
        if sleeper._idle.announced and not committed:
            # The look has found no jobs. Now the job is committed, and the next statement receives the
            # notification.
            with ThreadPoolExecutor(1) as elsewhere:
                committed.append(elsewhere.submit(enqueue_elsewhere).result())
            given[0].run(("SELECT pg_sleep(0)", None))
            asleep.set()
        return answer

    monkeypatch.setattr(Claimer, "search", search)
    sleeper = make_producer()
    worker = RunningWorker(sleeper)
    try:
        assert asleep.wait(20)
        done(committed[0])
    finally:
        worker.stop()


@pytest.mark.usefixtures("rare_polls")
def test_a_deaf_session_is_replaced_and_the_worker_is_called_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    register = Producer._keep_registered
    deafen: list[bool] = []

    def before(self: Producer, session: Session, now: float) -> None:
        if deafen:  # on the producer's own thread, between two statements
            deafen.clear()
            session.connection.execute("UNLISTEN *")
        register(self, session, now)

    monkeypatch.setattr(Producer, "_keep_registered", before)
    with working() as worker:
        deaf = until(lambda: backend_of(worker.producer) if sleeps(worker.producer) else None)
        deafen.append(True)
        until(lambda: backend_of(worker.producer) not in (None, deaf), what="a new connection")
        until(lambda: sleeps(worker.producer))
        done(enqueue(tasks.noop))
    assert caplog.text.count("the connection is lost: the session does not receive notifications") == 1


def test_behind_a_pooler_there_is_nothing_to_prove() -> None:
    worker = make_producer()
    worker._connection.open()
    session = worker._connection.live
    session.pooled = True
    inbox = worker._inbox
    inbox.connected(session)
    assert not inbox.hears
    assert inbox.prove(1.0) is inbox.prove(2.0) is None
    worker._shut_down()
    worker._waker.close()
