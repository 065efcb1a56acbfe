"""How many jobs wait and run in each queue: now, minute by minute, and where that leads."""

from __future__ import annotations

from typing import Any

import pytest

from django_pgqueue import pause
from django_pgqueue.maintenance.rounds import IN_USE_SQL
from django_pgqueue.monitoring.depth import Depth, Flow, capped, deploys, depth_series, depths, flows
from django_pgqueue.monitoring.spans import DAY, HOUR
from django_pgqueue.postgres import fetch_rows
from tests.support.factories import JobFactory, WorkerFactory, ago
from tests.support.figures import count, forget
from tests.support.jobs import value
from tests.support.limits import add_many
from tests.support.plans import fill
from tests.support.sessions import Connect, Connection

pytestmark = pytest.mark.django_db


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
    pause(everything=True)
    assert all(depth.is_paused for depth in depths("default", ["wanted"]).values())


def test_jobs_that_wait_for_their_key_are_blocked(one: Connection) -> None:
    add_many(one, "k", "k", "k")
    found = depths("default")["default"]
    assert (found.ready, found.blocked) == (1, 2)


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
    assert [capped(count) for count in (None, 9_999, 10_000, 10_001)] == ["?", "9,999", "10,000", "10,000+"]


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
    assert value(one, "SELECT _pgqueue_count_depth()")
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


@pytest.mark.django_db(transaction=True)
def test_two_supervisors_count_a_minute_once(one: Connection, connect: Connect) -> None:
    """Race: the second one comes while the first counts. It neither waits nor counts."""
    other = connect()
    other.execute("SET lock_timeout = '1s'")
    with one.transaction(force_rollback=True):
        one.execute("DELETE FROM pgqueue_depth")
        assert value(one, "SELECT _pgqueue_count_depth()")
        assert not value(other, "SELECT _pgqueue_count_depth()")


def test_a_count_that_the_server_refuses_does_not_hold_up_maintenance(one: Connection) -> None:
    with one.transaction(force_rollback=True):
        one.execute("DELETE FROM pgqueue_depth; ALTER TABLE pgqueue_depth ADD CHECK (ready < 0)")
        assert not value(one, "SELECT _pgqueue_count_depth()")
        assert one.execute(IN_USE_SQL).fetchone() == (False, False, False)


def test_a_round_of_maintenance_counts(one: Connection) -> None:
    JobFactory.create()
    with one.transaction(force_rollback=True):
        one.execute("DELETE FROM pgqueue_depth")
        one.execute(IN_USE_SQL)
        assert value(one, "SELECT count(*) FROM pgqueue_depth") >= 1


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
        ((1000, 2000, 3000), 6000, 600, True, "grows"),
        ((1000, 2000, 3000), 0, 600, True, "grows"),
        ((1000, 2000, 3000), 6000, 10, False, ""),
        ((1000, 3500, 3000), 6000, 600, False, ""),
        ((1000, 1010, 1020), 6000, 600, False, ""),
        ((7000, 5000, 4000), 6000, 600, False, "empty in about 13 min"),
        ((0, 0, 0), 6000, 0, False, ""),
    ],
    ids=["more and more", "nothing runs", "it keeps up", "it has shrunk", "hardly", "it shrinks", "empty"],
)
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


def test_the_queues_that_have_jobs_of_a_kind() -> None:
    JobFactory.create(queue_name="a")
    JobFactory.create(queue_name="b", retrying=True)
    JobFactory.create(queue_name="b", status="blocked")
    JobFactory.create(queue_name="c", status="blocked")
    JobFactory.create(queue_name="d", running=True)
    JobFactory.create(queue_name="e", failed=True)
    expected = {"claimable": ["a", "b"], "retry": ["b"], "blocked": ["b", "c"]}
    for kind, queues in expected.items():
        found = fetch_rows("default", "SELECT _pgqueue_queues_with(%s)", [kind])
        assert [name for (name,) in found] == queues
