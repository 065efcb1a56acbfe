"""Figures of spans and of queues: what ended, how many jobs are in each state, and their depth."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest

from django_pgqueue import pause
from django_pgqueue.maintenance.rounds import IN_USE_SQL
from django_pgqueue.models.job import Status
from django_pgqueue.monitoring import queues
from django_pgqueue.monitoring.depth import Counted, Depth, Flow, capped, deploys, depth_series, depths, flows
from django_pgqueue.monitoring.queues import queue_figures, shared_counts, state_counts
from django_pgqueue.monitoring.spans import (
    DAY,
    HOUR,
    SPANS,
    WEEK,
    TimeSpan,
    between,
    breakdown,
    series,
    trends,
)
from django_pgqueue.postgres.clock import server_now
from tests.support.factories import JobFactory, JobStatFactory, WorkerFactory, ago
from tests.support.figures import count, forget, roll_up
from tests.support.jobs import sql, value
from tests.support.plans import fill
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
def test_a_chart_has_what_a_table_has(one: Connection, back: float, length: float, points: int) -> None:
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


def test_a_chart_has_a_point_for_each_step_also_of_nothing() -> None:
    assert [len(series("default", span)) for span in SPANS.values()] == [60, 96, 168, 120]


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


def test_what_each_queue_has_ended() -> None:
    """What waits and runs there is in ``depths()``."""
    JobStatFactory.create(queue_name="mail", done=5, failed=1, retried=2, minute=ago(minutes=2))
    JobStatFactory.create(queue_name="ran", done=7, minute=ago(hours=3))
    for hours in (0, 1.5, 3, 72):
        JobFactory.create(queue_name="failures", failed=True, finished_at=ago(hours=hours))
    JobFactory.create(queue_name="failures", done=True, shelf=9)
    found, is_slow = queue_figures("default")
    assert not is_slow
    by_name = {figures.name: figures for figures in found}
    assert by_name["failures"].failed == (1, 1, 3), "in the last hour, in the hour before, in a day"
    assert by_name["ran"].hour is None
    mail = by_name["mail"]
    assert mail.hour is not None
    assert (mail.hour.done, mail.hour.failed, mail.hour.retried) == (5, 1, 2)
    assert (sum(mail.trend.done), sum(mail.trend.failed), len(mail.trend.done)) == (5, 3, 12)


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
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "_shared", {})


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

    monkeypatch.setattr(queues, "state_counts", count)
    monkeypatch.setattr(queues, "_lock", Watched())
    with ThreadPoolExecutor() as viewers:
        first = viewers.submit(shared_counts, "default")
        assert started.wait(10)
        second = viewers.submit(shared_counts, "default")
    assert calls == ["default"]
    assert first.result() == second.result() == {"done": Counted(1)}
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


# -- how many jobs wait and run in each queue: now, minute by minute, and where that leads


def test_depth_and_age() -> None:
    JobFactory.create(queue_name="mail", run_after=ago(minutes=10))
    JobFactory.create(queue_name="mail", priority=5, run_after=ago(minutes=20))
    JobFactory.create(queue_name="mail", priority=7, group_key="a", run_after=ago(minutes=30))
    JobFactory.create(queue_name="mail", scheduled=True)
    JobFactory.create(queue_name="mail", retrying=True)
    JobFactory.create(queue_name="slow", running=True, last_attempted_at=ago(hours=1))
    JobFactory.create(queue_name="slow", status="blocked", waiting_reason="paused by anna")
    JobFactory.create(queue_name="slow", status="blocked", waiting_reason="waits for jobs 1, 2")
    JobFactory.create(queue_name="mail", done=True)
    pause(queue="idle")
    found = depths("default", ["wanted"])
    assert list(found) == ["idle", "mail", "slow", "wanted"]
    mail, slow = found["mail"], found["slow"]
    assert (mail.ready, mail.scheduled, mail.retrying, mail.running, mail.blocked) == (3, 1, 1, 0, 0)
    assert 1800 <= mail.oldest_ready < 1860
    assert (slow.ready, slow.scheduled, slow.running, slow.blocked) == (0, 0, 1, 2)
    assert 3600 <= slow.longest_running < 3660
    assert found["idle"].is_paused
    assert found["wanted"] == Depth("wanted")
    assert (slow.needs_workers, found["wanted"].needs_workers) == (True, False)
    pause(everything=True)
    assert all(depth.is_paused for depth in depths("default", ["wanted"]).values())


def test_beyond_the_limit_a_count_says_that_there_are_more(one: Connection) -> None:
    """Whatever the statistics of the table say."""
    fill(
        one, "pgqueue_job_live", 800, analyze=False,
        queue_name="CASE WHEN n % 5 = 0 THEN 'mail' ELSE 'default' END", priority="n % 3",
        status="(ARRAY['pending', 'pending', 'retry', 'blocked'])[1 + n % 4]",
        run_after="clock_timestamp() + (n / 4 % 2 - 0.5) * interval '1 hour'",
    )  # fmt: skip
    exact = {"default": (240, 160, 80, 160), "mail": (60, 40, 20, 40)}
    for most in (1000, 100, 80, 30, 0):
        found = depths("default", most=most)
        for name, counts in exact.items():
            depth = found[name]
            whole = [min(count, most + 1) for count in counts]
            if whole[2] > most:  # so many retries that nobody knows what is behind them
                assert depth.scheduled is None
                whole[1] = -1
            assert [depth.ready, -1 if depth.scheduled is None else depth.scheduled, depth.retrying,
                    depth.blocked] == whole  # fmt: skip


def test_many_retries_do_not_hide_that_nothing_is_scheduled(one: Connection) -> None:
    fill(one, "pgqueue_job_live", 50, status="'retry'", run_after="clock_timestamp() + interval '1 hour'")
    found = depths("default", most=50)["default"]
    assert (found.ready, found.scheduled, found.retrying) == (0, 0, 50)
    assert depths("default", most=49)["default"].scheduled == 0
    assert depths("default", most=48)["default"].scheduled is None
    assert [capped(count) for count in (None, 4_999, 5_000, 5_001)] == ["?", "4,999", "5,000", "5,000+"]


def counted(one: Connection, minutes_ago: float, *, queue: str = "", **columns: Any) -> None:
    """Keep the count of a minute, as maintenance does."""
    names, values = "".join(f", {name}" for name in columns), ", %s" * len(columns)
    one.execute(
        f"INSERT INTO pgqueue_depth (queue_name, minute{names})"
        f" VALUES (%s, date_bin('1 minute', now() - %s * interval '1 minute', 'epoch'){values})",
        (queue, minutes_ago, *columns.values()),
    )


def test_each_minute_is_counted_once(one: Connection) -> None:
    JobFactory.create_batch(3)
    JobFactory.create(scheduled=True, queue_name="mail")
    JobFactory.create(retrying=True, queue_name="mail")
    JobFactory.create(running=True, queue_name="mail")
    JobFactory.create(status="blocked", waiting_reason="at most 1", queue_name="slow")
    WorkerFactory.create_batch(2, version="v8")
    WorkerFactory.create(version="v7")
    WorkerFactory.create(version="v6", heartbeat_at=ago(hours=1))
    one.execute("DELETE FROM pgqueue_depth")
    one.execute(IN_USE_SQL)  # as a round of maintenance does
    JobFactory.create()
    assert not value(one, "SELECT _pgqueue_count_depth()"), "unless a minute has just begun"
    rows = one.execute(
        "SELECT queue_name, ready, scheduled, retrying, running, blocked, oldest_ready IS NULL"
        " FROM pgqueue_depth ORDER BY 1"
    ).fetchall()
    assert rows == [
        ("", 3, 1, 1, 1, 1, False), ("default", 3, 0, 0, 0, 0, False), ("mail", 0, 1, 1, 1, 0, True),
        ("slow", 0, 0, 0, 0, 1, True),
    ]  # fmt: skip
    versions = one.execute("SELECT versions FROM pgqueue_depth ORDER BY queue_name").fetchall()
    assert versions == [(["v7", "v8"],), (None,), (None,), (None,)]


def test_a_deploy_is_where_a_version_appears(one: Connection) -> None:
    """Not where an old one ends, and not where no worker was there."""
    ran = {50: ["v7"], 40: ["v7", "v8"], 35: ["v8"], 30: None, 20: ["v8"], 9: ["v7", "v9"]}
    for back, versions in ran.items():
        counted(one, back, versions=versions)
    points = depth_series("default", HOUR)
    assert deploys(points) == {points[19].start: "v8", points[50].start: "v7, v9"}
    assert deploys(points) == deploys(depth_series("default", HOUR, "mail"))


def test_a_count_that_the_server_refuses_does_not_hold_up_maintenance(one: Connection) -> None:
    with one.transaction(force_rollback=True):
        one.execute("DELETE FROM pgqueue_depth; ALTER TABLE pgqueue_depth ADD CHECK (ready < 0)")
        assert not value(one, "SELECT _pgqueue_count_depth()")
        assert one.execute(IN_USE_SQL).fetchone() == (False, False, False)


def test_a_chart_has_the_newest_count_of_each_step(one: Connection) -> None:
    counted(one, 20, ready=100)
    counted(one, 20, queue="mail", ready=60, blocked=5)
    counted(one, 0, ready=7)
    points = depth_series("default", HOUR)
    assert (len(points), points[39].ready, points[-1].ready, points[50].ready) == (60, 100, 7, None)
    mail = depth_series("default", HOUR, "mail")
    assert (mail[39].ready, mail[39].blocked, mail[-1].ready) == (60, 5, 0), "no row: no jobs then"
    day = depth_series("default", DAY)
    assert [point.ready for point in day if point.ready is not None] == [100, 7]


@pytest.mark.parametrize(
    ("ready", "ended", "oldest", "grows", "text"),
    [
        ((1000, 2000, 3000), 6000, 600, True, "grows"), ((1000, 2000, 3000), 0, 600, True, "grows"),
        ((1000, 2000, 3000), 6000, 10, False, ""), ((1000, 3500, 3000), 6000, 600, False, ""),
        ((1000, 1010, 1020), 6000, 600, False, ""),
        ((7000, 5000, 4000), 6000, 600, False, "empty in about 13 min"), ((0, 0, 0), 6000, 0, False, ""),
    ],
    ids=["more and more", "nothing runs", "it keeps up", "it has shrunk", "hardly", "it shrinks", "empty"],
)  # fmt: skip
def test_whether_a_queue_grows(
    one: Connection, ready: tuple[int, int, int], ended: int, oldest: float, grows: bool, text: str
) -> None:
    for minutes, many in zip((10, 5, 0), ready, strict=True):
        for queue in ("", "default"):
            counted(one, minutes, queue=queue, ready=many, oldest_ready=oldest)
    if ended:
        count(one, [7], ended)
    found = flows("default")
    assert list(found) == ["", "default"]
    for flow in found.values():
        assert (flow.ready_before, flow.ready_between, flow.ready) == ready
        assert (flow.seconds, flow.ended, flow.arrived) == (600, ended, max(0, ready[2] - ready[0] + ended))
        assert (flow.grows, flow.text) == (grows, text)


def test_a_queue_that_has_emptied_or_begun_is_known(one: Connection) -> None:
    counted(one, 9, ready=10, running=2)
    counted(one, 9, queue="gone", ready=10, running=2)
    counted(one, 0, ready=5)
    counted(one, 0, queue="new", ready=5)
    count(one, [5], 8, queue="gone")
    found = flows("default")
    known = {name: (each.ready, each.ready_before, each.arrived, each.ended) for name, each in found.items()}
    assert known == {"": (5, 10, 1, 8), "gone": (0, 10, 0, 8), "new": (5, 0, 5, 0)}


def test_one_count_and_an_old_one_say_nothing_about_the_flow(one: Connection) -> None:
    assert flows("default") == {}
    counted(one, 4, ready=5)
    assert flows("default") == {}, "it is too old to be shown as of now"
    counted(one, 1, ready=5, oldest_ready=100.0)
    one.execute("DELETE FROM pgqueue_depth WHERE minute < now() - interval '3 minutes'")
    [flow] = flows("default").values()
    assert (flow.ready, flow.arriving, flow.ending, flow.grows, flow.text) == (5, 0, 0, False, "")
    assert isinstance(flow, Flow)


def test_old_counts_are_thinned_out(one: Connection) -> None:
    one.execute(
        "INSERT INTO pgqueue_depth (queue_name, minute)"
        " SELECT '', date_bin('1 hour', now(), 'epoch') - n * interval '1 minute' - days * interval '1 day'"
        " FROM generate_series(1, 60) AS n, unnest(ARRAY[1, 2, 95]) AS days"
    )
    forget(one)
    left = one.execute(
        "SELECT now() - minute > interval '2 days', count(*) FROM pgqueue_depth GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert left == [(False, 60), (True, 4)]
