"""Minutes are added to the sums, and what nobody reads any more is deleted."""

from __future__ import annotations

import pytest

from django_pgqueue.maintenance.rounds import sweep
from django_pgqueue.models import JobStat, StatRollup
from django_pgqueue.postgres.session import connect as connect_session
from tests.support.sessions import Connection
from tests.support.statistics import count, counted, forget, roll_up

pytestmark = pytest.mark.django_db(transaction=True)


def test_every_sum_has_every_attempt_once(one: Connection) -> None:
    count(one, [0, 5, 25, 90, 3000], 3)
    count(one, [5, 25], 2, task="tests.app.tasks.add")
    count(one, [5], 1, queue="mail")
    expected = dict.fromkeys(counted(one), (20, 20))
    assert roll_up(one) == 7, "all but the current minute"
    assert counted(one) == expected
    assert len(expected) == 9
    total = StatRollup.objects.get(span="total", queue_name="default", task_path="tests.app.tasks.noop")
    assert (total.done, sum(total.run_histogram), total.run_seconds) == (12, 12, 12.0)
    assert JobStat.objects.filter(rolled_up=False).count() == 1


def test_it_is_done_once_and_in_steps(one: Connection) -> None:
    count(one, range(10, 16))
    assert [roll_up(one, 4) for _ in range(3)] == [4, 2, 0]
    assert set(counted(one).values()) == {(6, 6)}


def test_counts_that_come_late_are_added(one: Connection) -> None:
    """A job is counted in the minute of its claim, but when it is over."""
    count(one, [100], 2)
    assert roll_up(one) == 1
    count(one, [100], 5)
    assert JobStat.objects.count() == 2
    assert set(counted(one).values()) == {(7, 7)}
    assert roll_up(one) == 1
    assert JobStat.objects.get().done == 7
    assert set(counted(one).values()) == {(7, 7)}


DAY = 24 * 60


def test_what_is_kept(one: Connection) -> None:
    count(one, [1 * DAY, 3 * DAY, 3 * DAY + 30, 100 * DAY])
    assert forget(one) == 0, "nothing that is not in the sums"
    assert roll_up(one) == 4
    assert forget(one) == 13, "sums: 3 minutes, 3 quarters, an hour and a day; all but minutes twice"
    assert JobStat.objects.count() == 1
    left = dict.fromkeys(["minute", "quarter", "hour", "day", "total"], 0)
    for span in StatRollup.objects.values_list("span", flat=True):
        left[span] += 1
    assert left["minute"] == 1
    assert left["quarter"] == 2, "of the task and of all tasks"
    assert 4 <= left["hour"] <= 6, "those of the last 90 days"
    assert left["day"] >= 4
    assert left["total"] == 1
    assert forget(one) == 0
    one.execute("UPDATE pgqueue_stat_rollup SET updated_at = now() - interval '91 days'")
    forget(one)
    assert not StatRollup.objects.filter(span="total").exists(), "the task has not run for as long"


def test_old_rows_are_deleted_in_steps(one: Connection) -> None:
    count(one, range(3 * DAY, 3 * DAY + 10))
    roll_up(one)
    assert forget(one, limit=7) > 7, "with the sums of minutes, those of quarters of an hour"
    assert [JobStat.objects.count(), StatRollup.objects.filter(span="minute").count()] == [3, 3]
    assert [forget(one, limit=7) for _ in range(2)] == [3, 0]


def test_the_upkeep_of_a_worker_does_both(one: Connection) -> None:
    count(one, [5, 3 * DAY])
    session = connect_session("default")
    sweep(session)
    session.close()
    assert JobStat.objects.get().rolled_up
    assert set(StatRollup.objects.filter(span="total").values_list("done", flat=True)) == {2}
