"""Figures of spans and of queues, and how many jobs are in each state."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from django_pgqueue import pause
from django_pgqueue.models.job import Status
from django_pgqueue.monitoring import queues
from django_pgqueue.monitoring.depth import Counted, depth_series
from django_pgqueue.monitoring.queues import one_queue, queue_figures, shared_counts, state_counts
from django_pgqueue.monitoring.spans import (
    DAY,
    HOUR,
    MONTH,
    SPANS,
    WEEK,
    TimeSpan,
    between,
    breakdown,
    series,
    totals,
    trends,
)
from django_pgqueue.postgres.clock import server_now
from tests.support.factories import JobFactory, JobStatFactory, QueueFactory, WorkerFactory, ago
from tests.support.figures import count, roll_up
from tests.support.jobs import sql
from tests.support.sessions import Connection

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
@pytest.mark.parametrize("is_rolled_up", [True, False])
def test_charts_and_tables_count_everything_once(one: Connection, span: TimeSpan, is_rolled_up: bool) -> None:
    length = span.length / timedelta(minutes=1)
    back = [0, 5, length / 2, length * 0.9]
    count(one, back, 2)
    count(one, back, 1, task="tests.app.tasks.add")
    count(one, [5], 5, queue="mail")
    count(one, [length * 2.5], 100)
    if is_rolled_up:
        assert roll_up(one) == 8
    points = series("default", span)
    assert len(points) == span.length / span.step
    assert points[1].start - points[0].start == span.step
    assert sum(point.done for point in points) == sum(point.attempts for point in points) == 17
    assert points[-1].done >= 3
    assert points[-1].waited(0.5) == pytest.approx(0.0015)
    assert sum(point.done for point in series("default", span, queue="mail")) == 5
    assert sum(point.done for point in series("default", span, task="tests.app.tasks.add")) == 4
    of_queues = breakdown("default", span, "queue")
    sums = [(row.queue_name, row.task_path, row.done) for row in of_queues]
    assert sums == [("default", "", 12), ("mail", "", 5)]
    tasks = breakdown("default", span, "task", queue="default")
    assert [(row.task_path.rpartition(".")[2], row.done) for row in tasks] == [("noop", 8), ("add", 4)]
    assert tasks[0].ran(0.95) == pytest.approx(1.0, abs=0.1)
    assert tasks[0].run_seconds == pytest.approx(8.0)
    assert len(breakdown("default", span, "task", most=1)) == 1


@pytest.mark.parametrize(
    ("back", "length", "points"), [(300, 120, 8), (300, 115, 8), (95, 200, 7), (9e3, 600, 10)]
)
def test_a_chart_from_one_time_to_another_has_what_a_table_has(
    one: Connection, back: float, length: float, points: int
) -> None:
    """Each step from the first to the last one, which may be a part of a step."""
    now = server_now("default")
    start = now - timedelta(minutes=back)
    span = between("x", start, min(start + timedelta(minutes=length), now), now)
    end = span.end
    assert isinstance(end, datetime)
    end = min(end, now)
    ago = [back - length + 15, back - 1, back - length / 2, back + 120, 0]
    count(one, [minutes for minutes in ago if minutes >= 0], 3)
    counted, found = depth_series("default", span), series("default", span)
    assert [point.start for point in found] == [point.start for point in counted]
    assert found[0].start <= start < found[1].start
    assert points <= len(found) <= points + 2
    assert found[-1].start < end
    assert sum(point.seconds for point in found) == pytest.approx(
        (end - found[0].start).total_seconds(), abs=60
    )
    roll_up(one)
    found = series("default", span)
    [row] = breakdown("default", span, "queue")
    assert sum(point.done for point in found) == row.done > 0


def test_a_chart_of_nothing_has_points_and_no_percentiles() -> None:
    points = series("default", HOUR)
    assert [point.attempts for point in points] == [0] * 60
    assert points[0].waited(0.5) is None
    assert breakdown("default", DAY, "queue") == []
    assert totals("default") == []
    assert [len(series("default", span)) for span in (DAY, WEEK, MONTH)] == [96, 168, 120]


@pytest.mark.parametrize(("span", "steps", "back"), [(HOUR, 12, 25), (DAY, 24, 600), (WEEK, 28, 3 * 1440)])
@pytest.mark.parametrize("is_rolled_up", [False, True])
def test_each_attempt_is_in_one_step_of_its_queue_and_task(
    one: Connection, span: TimeSpan, steps: int, back: int, is_rolled_up: bool
) -> None:
    count(one, [0, back], 2)
    count(one, [back], 3, queue="mail", task="shop.a")
    count(one, [-600, 8 * 1440], 100)
    if is_rolled_up:
        roll_up(one)
    tasks = trends("default", span, "task", ["tests.app.tasks.noop", "shop.a", "shop.idle"])
    noop = tasks["tests.app.tasks.noop"].done
    assert {len(trend.done) for trend in tasks.values()} == {steps}
    assert (sum(noop), noop[-1]) == (4, 2)
    assert sum(tasks["shop.a"].done) == 3
    assert [step for step in noop[:-1] if step] == [2]
    assert tasks["shop.a"].done.index(3) == noop.index(2), "the same time is the same step"
    assert sum(tasks["shop.idle"].done) == 0
    of_queues = trends("default", span, "queue", ["mail", "default"])
    assert {name: sum(trend.done) for name, trend in of_queues.items()} == {"mail": 3, "default": 4}


def test_the_figures_of_each_queue() -> None:
    worker = WorkerFactory.create()
    JobFactory.create(queue_name="mail", run_after=ago(minutes=20))
    JobFactory.create(queue_name="mail", scheduled=True)
    JobFactory.create(queue_name="mail", running=True, worker=worker.pk)
    JobFactory.create(queue_name="mail", running=True, worker=worker.pk + 1)
    JobFactory.create(queue_name="mail", status="blocked", waiting_reason="waits for jobs 1, 2")
    JobStatFactory.create(queue_name="mail", done=5, failed=1, retried=2, minute=ago(minutes=2))
    JobStatFactory.create(queue_name="ran", done=7, minute=ago(hours=3))
    for hours in (0, 3, 72):
        JobFactory.create(queue_name="failures", failed=True, finished_at=ago(hours=hours))
    JobFactory.create(queue_name="failures", done=True, shelf=9)
    QueueFactory.create(name="unused")
    pause(queue="paused")
    found, is_slow = queue_figures("default")
    assert not is_slow
    by_name = {figures.name: figures for figures in found}
    assert list(by_name) == ["failures", "mail", "paused", "ran", "unused"]
    mail = by_name["mail"]
    depth = mail.depth
    assert (depth.ready, depth.scheduled, depth.running, depth.blocked, mail.lost) == (1, 1, 2, 1, 1)
    assert mail.oldest is not None
    assert timedelta(minutes=20) <= mail.oldest < timedelta(minutes=21)
    assert mail.hour is not None
    assert (mail.hour.done, mail.hour.failed, mail.hour.retried) == (5, 1, 2)
    assert (sum(mail.trend.done), sum(mail.trend.failed), len(mail.trend.done)) == (5, 3, 12)
    assert mail.depth.needs_workers
    assert by_name["failures"].failed.day == 2
    assert by_name["ran"].hour is None
    assert by_name["unused"].oldest is None
    assert not by_name["unused"].depth.needs_workers
    alone = one_queue("default", "mail")
    assert alone is not None
    assert (alone.depth.ready, alone.depth.running, alone.lost) == (1, 2, 1)
    nothing = one_queue("default", "never heard of")
    assert nothing is not None
    assert not nothing.depth.needs_workers


# -- how many jobs are in each state, and that all viewers share one count


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


def test_few_jobs_are_counted_exactly() -> None:
    assert state_counts("default") == dict.fromkeys(Status.values, Counted(0))
    some_jobs()
    counts = {"pending": 4, "retry": 2, "running": 2, "blocked": 3, "done": 4, "failed": 2, "cancelled": 2}
    assert state_counts("default") == {status: Counted(number) for status, number in counts.items()}


def test_beyond_the_limit_a_state_has_at_least_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    some_jobs()
    exact = {status: count.number for status, count in state_counts("default").items()}
    monkeypatch.setattr(queues, "MOST", 3)
    found = state_counts("default")
    assert {name for name, count in found.items() if count.is_exact} == {
        name for name, number in exact.items() if number <= 3 and name not in {"done", "cancelled"}
    }, "the ring is read up to the limit of all its states"
    assert all(count.number <= exact[name] for name, count in found.items())
    assert (str(Counted(3, is_exact=False)), str(Counted(3))) == ("3+", "3")


def test_a_status_that_is_not_counted_in_time_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    some_jobs()
    monkeypatch.setattr(queues, "COUNT_PATIENCE", 0.02)
    monkeypatch.setattr(queues, "_RING", "SELECT 'done', 1 FROM pg_sleep(5) WHERE %(most)s > 0")
    assert set(state_counts("default")) == {*Status.values} - {"done", "cancelled"}


def test_the_settings_of_a_count_end_with_it() -> None:
    state_counts("default")
    assert (sql("SHOW enable_seqscan"), sql("SHOW enable_bitmapscan")) == ("on", "on")


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    queues._shared.clear()
    yield
    queues._shared.clear()


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

    def count(alias: str) -> queues.Counts:
        calls.append(alias)
        started.set()
        assert other_asks.wait(10)
        return {"done": Counted(len(calls))}

    answers: list[object] = []
    monkeypatch.setattr(queues, "state_counts", count)
    monkeypatch.setattr(queues, "_lock", Watched())
    first = threading.Thread(target=lambda: answers.append(shared_counts("default")))
    first.start()
    assert started.wait(10)
    second = threading.Thread(target=lambda: answers.append(shared_counts("default")))
    second.start()
    first.join()
    second.join()
    assert calls == ["default"]
    assert answers == [{"done": Counted(1)}] * 2
    assert shared_counts("other") == {"done": Counted(2)}, "each database has its own"


def test_a_count_is_shared_for_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(queues, "monotonic", lambda: now)
    read = iter(range(1, 9))
    monkeypatch.setattr(queues, "state_counts", lambda alias: {"done": Counted(next(read))})
    first, second, third = ({"done": Counted(number)} for number in (1, 2, 3))
    assert (shared_counts("default"), shared_counts("default")) == (first, first)
    now = 105.0
    assert shared_counts("default") == second
    queues._shared.clear()
    assert shared_counts("default") == third
