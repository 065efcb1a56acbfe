"""How many jobs are in each state, and that all viewers share one count."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from django.db import connection

from django_pgqueue.models.job import Status
from django_pgqueue.monitoring import states
from django_pgqueue.monitoring.states import StateCount, shared_counts, state_counts
from tests.support.factories import JobFactory

pytestmark = pytest.mark.django_db


def some_jobs() -> None:
    JobFactory.create_batch(4)
    JobFactory.create_batch(2, retrying=True)
    JobFactory.create_batch(2, running=True)
    JobFactory.create(status="blocked", waiting_reason="waits for job 5")
    JobFactory.create(status="blocked", waiting_reason="paused", wait_position=1, limit_key="a")
    JobFactory.create(status="blocked", waiting_reason="at most 1", wait_position=1, limit_key="a")
    JobFactory.create_batch(3, done=True)
    JobFactory.create(done=True, shelf=9)
    JobFactory.create_batch(2, cancelled=True)
    JobFactory.create(failed=True)
    JobFactory.create(failed=True, queue_name="mail")


def analyze() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE pgqueue_job")


def test_few_jobs_are_counted_exactly() -> None:
    assert state_counts("default") == dict.fromkeys(Status.values, StateCount(0))
    some_jobs()
    counts = {"pending": 4, "retry": 2, "running": 2, "blocked": 3, "done": 4, "failed": 2, "cancelled": 2}
    assert state_counts("default") == {status: StateCount(number) for status, number in counts.items()}


def test_beyond_the_limit_the_states_with_an_index_are_counted_and_others_estimated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some_jobs()
    analyze()
    monkeypatch.setattr(states, "MOST", 4)
    found = state_counts("default")
    assert {status for status, count in found.items() if count.is_exact} == {"running", "blocked", "failed"}
    assert found["running"] == StateCount(2)
    assert found["blocked"] == StateCount(3)
    assert (found["pending"].number, found["retry"].number) == (4, 2), "as the statistics say"
    assert (found["done"].number, found["cancelled"].number) == (4, 2)


def test_a_status_that_is_not_counted_in_time_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    some_jobs()
    monkeypatch.setattr(states, "PATIENCE", 0.02)
    monkeypatch.setattr(states, "_RING", "SELECT 'done', 1 FROM pg_sleep(5) WHERE %(most)s > 0")
    assert set(state_counts("default")) == {*Status.values} - {"done", "cancelled"}


def test_the_settings_of_a_count_end_with_it() -> None:
    state_counts("default")
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('enable_seqscan'), current_setting('enable_bitmapscan')")
        assert cursor.fetchall() == [("on", "on")]


@pytest.fixture
def _forgotten() -> Iterator[None]:
    states._shared.clear()
    yield
    states._shared.clear()


@pytest.mark.usefixtures("_forgotten")
def test_several_viewers_cause_one_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Race: the first count is not complete when the second viewer asks."""
    started, other_asks = threading.Event(), threading.Event()
    calls: list[str] = []

    class Watched:
        """Tells when the second viewer comes."""

        lock = threading.Lock()

        def __enter__(self) -> None:
            if started.is_set():
                other_asks.set()
            self.lock.acquire()

        def __exit__(self, *error: object) -> None:
            self.lock.release()

    def count(alias: str) -> states.Counts:
        calls.append(alias)
        started.set()
        assert other_asks.wait(10)
        return {"done": StateCount(len(calls))}

    answers: list[object] = []
    monkeypatch.setattr(states, "state_counts", count)
    monkeypatch.setattr(states, "_lock", Watched())
    first = threading.Thread(target=lambda: answers.append(shared_counts("default")))
    first.start()
    assert started.wait(10)
    second = threading.Thread(target=lambda: answers.append(shared_counts("default")))
    second.start()
    first.join()
    second.join()
    assert calls == ["default"]
    assert answers == [{"done": StateCount(1)}] * 2
    assert shared_counts("other") == {"done": StateCount(2)}, "each database has its own"


@pytest.mark.usefixtures("_forgotten")
def test_a_count_is_shared_for_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(states, "monotonic", lambda: now)
    read = iter(range(1, 9))
    monkeypatch.setattr(states, "state_counts", lambda alias: {"done": StateCount(next(read))})
    first, second, third = ({"done": StateCount(number)} for number in (1, 2, 3))
    assert (shared_counts("default"), shared_counts("default")) == (first, first)
    now = 105.0
    assert shared_counts("default") == second
    states._shared.clear()
    assert shared_counts("default") == third
