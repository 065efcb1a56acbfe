"""``pgqueue_why`` beside long backlogs: it reads as far as it counts, wherever the job stands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from tests.support.plans import fill, reads
from tests.support.sessions import Connection, open_raw

from .statements import HISTORY, LIVE

pytestmark = pytest.mark.django_db

MANY = 4_000  # jobs of each kind, with the ids from 100,000 * its place on
GROUPS, SLOTS = 500, 300
KINDS: list[dict[str, str]] = [
    {"queue_name": "'deep'", "run_after": "clock_timestamp() - interval '1 day' + n * interval '1 s'"},
    {"queue_name": "'deep'", "priority": "50", "run_after": "clock_timestamp() + n * interval '1 h'"},
    {"queue_name": "'keyed'", "limit_key": "'full'", "wait_position": "n", "status": "'blocked'"},
    {"queue_name": "'keyed'", "limit_key": "'free'", "wait_position": "n", "status": "'blocked'"},
    {"queue_name": "'grouped'", "group_key": f"'g' || n % {GROUPS}"},
    {"queue_name": "'high'", "priority": "n % 90"},
    {"queue_name": "'task'", "status": "'blocked'", "waiting_reason": "'paused'"},
]
FIRST, LAST = 1, MANY


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Connection]:
    """Backlogs of each kind, a worker whose slots are taken, and one with a free slot."""
    with django_db_blocker.unblock():
        connection = open_raw()
    with connection:
        for place, columns in enumerate(KINDS):
            fill(connection, LIVE, MANY, id=f"{place * 100_000} + n", analyze=False, **columns)
        fill(
            connection, LIVE, SLOTS, id="900000 + n", status="'running'", worker="1", lease="n",
            limit_key="CASE n WHEN 1 THEN 'full' END", queue_name="'busy'",
        )  # fmt: skip
        fill(connection, "pgqueue_job_past_3", MANY, id="1000000 + n", shelf="3", status="'done'",
             finished_at="clock_timestamp()")  # fmt: skip
        for worker, queues in ((1, "{busy}"), (2, "{deep}"), (3, "{}")):
            connection.execute(
                "INSERT INTO pgqueue_worker"
                " (id, host, pid, supervisor, queues, exclude_queues, slots, version)"
                f" VALUES (%s, 'web', 1, 1, %s, '{{busy}}', {SLOTS}, '1')", (worker, queues),
            )  # fmt: skip
        fill(connection, LIVE, 1, id="910000", queue_name="'busy'", status="'pending'")
        yield connection
        connection.execute("TRUNCATE pgqueue_job, pgqueue_worker")


CASES = {
    "the first of a backlog": (FIRST, "ready", 200),
    "the last of a backlog": (LAST, "behind", 2_100),
    "of the future": (100_000 + FIRST, "scheduled", 50),
    "the first of a line": (200_000 + FIRST, "limit", 50),
    "the last of a line": (200_000 + LAST, "limit", 1_200),
    "the last of a line that moves": (300_000 + LAST, "wait_queue", 1_500),
    "the first of a group": (400_000 + FIRST, "behind", 2_600),
    "the last of a group": (400_000 + LAST, "behind", 2_600),
    "below many priorities": (500_000 + 90, "behind", 3_000),
    "a paused one": (600_000 + LAST, "pause_over", 50),
    "one whose workers are busy": (910_000, "busy", 3_000),
    "one that runs": (900_001, "running", 50),
    "one of the history": (1_000_000 + LAST, "done", 50),
    "none": (5_000_000, "unknown", 50),
}


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.promise("why-cost")
def test_the_reads_do_not_follow_the_backlog(filled: Connection, analyzed: bool) -> None:
    if analyzed:
        filled.execute(f"ANALYZE {LIVE}")
    for name, (job, code, most) in CASES.items():
        with reads(filled) as counts:
            # The workers of this test send no heartbeats.
            row = filled.execute("SELECT code FROM pgqueue_why(%s, 10000, 100000)", (job,)).fetchone()
        assert row == (code,), name
        assert counts.of("pgqueue_job") <= most, (name, counts)
        assert counts.of(*HISTORY) <= 2, (name, counts)


def test_the_limits_of_the_last_of_a_line(filled: Connection) -> None:
    """Also by the first plan of a session, while no page is known to be all visible."""
    filled.execute(f"ANALYZE {LIVE}")
    with open_raw() as other, reads(other) as counts:
        row = other.execute("SELECT place FROM pgqueue_blocked_by(%s)", (200_000 + LAST,)).fetchone()
    assert row == (1_001,)
    assert counts.of("pgqueue_job") <= 1_500, counts
