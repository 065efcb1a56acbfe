"""The points of the small charts in lists."""

from __future__ import annotations

import pytest

from django_pgqueue.monitoring.spans import DAY, HOUR, WEEK, TimeSpan, trends
from tests.support.sessions import Connect
from tests.support.statistics import count, roll_up

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(("span", "steps", "back"), [(HOUR, 12, 25), (DAY, 24, 600), (WEEK, 28, 3 * 1440)])
@pytest.mark.parametrize("is_rolled_up", [False, True])
def test_each_attempt_is_in_one_step_of_its_queue_and_task(
    connect: Connect, span: TimeSpan, steps: int, back: int, is_rolled_up: bool
) -> None:
    one = connect(autocommit=True)
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
    queues = trends("default", span, "queue", ["mail", "default"])
    assert {name: sum(trend.done) for name, trend in queues.items()} == {"mail": 3, "default": 4}
