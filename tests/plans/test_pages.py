"""What the pages of tasks, queues and workers read: a bounded number of rows, however long the history is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import DjangoDbBlocker

from django_pgqueue.monitoring import jobs, queues
from tests.support.plans import fill, reads
from tests.support.sessions import Connection, open_raw

from .statements import LIVE

pytestmark = pytest.mark.django_db

MANY, WINDOW, SOME = 10_000, 200, 10
LIMITS: dict[str, Any] = {
    "window": WINDOW,
    "some": SOME,
    "most": 20,
    "worker": 3,
    "task": "tests.app.tasks.noop",
}


@pytest.fixture(scope="module")
def one(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Connection]:
    """A history on two shelves, failed jobs of two queues, and running jobs of many workers."""
    with django_db_blocker.unblock():
        connection = open_raw()
    over = {
        "finished_at": "clock_timestamp() - n * interval '1 s'",
        "worker": "n % 5",
        "queue_name": "'q' || n % 2",
    }
    with connection:
        connection.execute("TRUNCATE pgqueue_job")  # other tests may have left dead rows on other shelves
        for shelf, status in ((1, "done"), (2, "done"), (9, "failed")):
            table = "pgqueue_job_kept" if shelf == 9 else f"pgqueue_job_past_{shelf}"
            fill(connection, table, MANY, analyze=False, shelf=str(shelf), status=f"'{status}'", **over)
        fill(
            connection,
            LIVE,
            MANY,
            analyze=False,
            status="'running'",
            worker="n % 50",
            queue_name="'q' || n % 2",
        )
        connection.execute("ANALYZE pgqueue_job")
        yield connection
        connection.execute("TRUNCATE pgqueue_job")


@pytest.mark.parametrize("statement", ["_OF_WORKER", "_CALLERS"])
def test_what_ended_last_is_read_up_to_a_window(one: Connection, statement: str) -> None:
    with reads(one) as counts:
        one.execute(getattr(jobs, statement), LIMITS)
    probes = 100
    assert counts.of("pgqueue_job_past") <= 2 * (WINDOW + 8) + probes, counts
    assert counts.of("pgqueue_job_kept") <= 2 * 2 * SOME + probes, counts
    assert counts.of(LIVE) <= 2 * WINDOW + probes, counts


def test_lost_jobs_and_failures_are_counted_up_to_a_limit(one: Connection) -> None:
    with reads(one) as counts:
        one.execute(queues._LOST_SQL, {"most": WINDOW, "lease": 30.0})
        one.execute(queues._FAILURES, {"most": WINDOW})
    assert counts.of(LIVE, "pgqueue_job_running") <= 2 * WINDOW + 100, counts
    assert counts.of("pgqueue_job_kept") <= 2 * 2 * WINDOW + 100, counts
    assert counts.of("pgqueue_job_past") == 0
