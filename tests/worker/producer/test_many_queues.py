"""Thousands of queues whose jobs are due later cost a worker little, and hide no job that is due."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import pytest

from django_pgqueue.postgres.session import Session, connect
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.producer.claimer import MOST_COMING, Claimer
from django_pgqueue.worker.producer.inbox import Orders
from django_pgqueue.worker.producer.ranges import FORGET_AFTER, MOST_QUIET, FirstDue, Places
from tests.support.foreign import register, sql_claim
from tests.support.jobs import add
from tests.support.plans import CLAIM_INDEX, LIVE, reads
from tests.support.sessions import Connect, Connection

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 2_000
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.fixture
def one(connect: Connect) -> Connection:
    return connect(autocommit=True)


@pytest.fixture
def session() -> Iterator[Session]:
    with closing(connect("default")) as session:
        yield session


@pytest.fixture
def tenants(one: Connection) -> Connection:
    """A queue for each of many customers, with one job that is due in an hour or later."""
    later(one, MANY)
    return one


def later(one: Connection, queues: int, priorities: int = 1) -> None:
    one.execute(
        "INSERT INTO pgqueue_job_live (task_path, max_attempts, on_lost, queue_name, priority, run_after)"
        " SELECT 'tests.tasks.noop', 5, 'rerun', 'tenant' || n %% %s, n %% %s,"
        " clock_timestamp() + interval '1 hour' + n * interval '1 s'"
        " FROM generate_series(1, %s) AS n",
        (queues, priorities, queues * priorities),
    )


def claimer(**options: Any) -> Claimer:
    return Claimer(WorkerOptions(**options), worker=1)


def claimed(found: Claimer, session: Session) -> list[int]:
    return [row.id for row in found.claim(session, 100)]


def test_a_job_in_a_queue_that_a_notification_names_is_found_without_a_search_through_all(
    tenants: Connection, session: Session
) -> None:
    found = claimer()
    assert found.search(session)[0] is False
    assert found.rest > 0
    (job,) = add(tenants, queue_name="tenant77")
    with reads(tenants) as counts:
        assert found.search(session, {"tenant77"})[0] is True
    assert counts.of(CLAIM_INDEX) <= 20, counts
    assert claimed(found, session) == [job]


def test_a_search_through_all_queues_takes_few_steps_and_is_rationed(
    tenants: Connection, session: Session
) -> None:
    found = claimer()
    with reads(tenants) as counts:
        found.search(session)
    assert counts.of(CLAIM_INDEX) <= 1.1 * MANY, counts
    assert len(found._coming) == MOST_COMING
    with reads(tenants) as counts:
        due, next_due = found.search(session)
    assert not due
    assert next_due == pytest.approx(3600, abs=60)
    assert counts.of(CLAIM_INDEX) <= 20, counts
    assert found.knows_ranges is False, "a claim would read them all"


def test_a_job_that_nobody_announced_is_found_when_the_ration_allows_it(
    tenants: Connection, session: Session
) -> None:
    """While a worker is awake, a job that is enqueued sends no notification. So before it sleeps for long, it
    searches all queues once more."""
    found = claimer()
    found.search(session)
    found._next_full_search = monotonic() + 30
    _, next_due = found.search(session, asleep=False)
    (job,) = add(tenants, queue_name="tenant77")
    assert next_due == pytest.approx(30, abs=5)
    due, next_due = found.search(session)
    assert not due
    assert next_due == pytest.approx(30, abs=5), "it is still to come"
    found._next_full_search = 0.0
    assert found.search(session)[0]
    assert claimed(found, session) == [job]
    assert found.search(session)[1] == pytest.approx(3600, abs=60)


def test_an_awake_worker_does_not_search_all_queues_before_it_announces_that_it_sleeps(
    tenants: Connection, session: Session
) -> None:
    found = claimer()
    found.search(session)
    found._next_full_search = 0.0
    with reads(tenants) as counts:
        assert found.search(session, asleep=False) == (False, 0.0), "the next one comes at once"
    assert counts.of(CLAIM_INDEX) <= 20, counts


def test_jobs_that_come_due_are_found_also_behind_the_next_ones(
    tenants: Connection, session: Session
) -> None:
    found = claimer()
    found.search(session)
    queues = sorted(found._coming, key=lambda name: found._coming[name])
    tenants.execute(f"UPDATE {LIVE} SET run_after = now() WHERE queue_name = %s", (queues[0],))
    found._coming[queues[0]] = monotonic()
    assert found.search(session)[0]
    assert len(claimed(found, session)) == 1
    # The last one that it knew of is due: there may be more behind it, whatever the ration says.
    (job,) = add(tenants, queue_name="tenant77")
    found._coming_until = monotonic()
    assert found.search(session)[0]
    assert claimed(found, session) == [job]


def test_a_worker_for_some_queues_ignores_a_notification_about_others(
    tenants: Connection, session: Session
) -> None:
    add(tenants, queue_name="tenant77")
    for found in (claimer(queues=("tenant1", "tenant2")), claimer(exclude_queues=("tenant77",))):
        found.search(session)
        assert found.search(session, {"tenant77"})[0] is False


def test_few_ranges_without_jobs_are_kept() -> None:
    known = Places(Orders(), {}, {}, None)
    firsts = [FirstDue(f"q{number}", 0, str(LONG_AGO), 1, -9) for number in range(MOST_QUIET + 20)]
    for number, first in enumerate(firsts):
        known.learn([first], number / 100)
    known.forget(10)
    assert len(known.keys()) == len(firsts), "those with jobs are kept"
    asked = {"queues": [first.queue_name for first in firsts], "priorities": [0] * len(firsts)}
    known.claimed([], asked, 10, whole=True, refused=False)
    known.forget(20)
    assert known.keys() == [(first.queue_name, 0) for first in firsts[-MOST_QUIET:]]
    known.forget(FORGET_AFTER + 10)
    assert known.keys() == []


def test_a_claim_by_sql_passes_them_in_few_steps(tenants: Connection) -> None:
    worker = register(tenants)
    (job,) = add(tenants, queue_name="tenant77")
    with reads(tenants) as counts:
        assert [row.id for row in sql_claim(tenants, worker)] == [job]
    # PostgreSQL 14 reads a table as short as this one as a whole, besides.
    passes = 1.2 if tenants.info.server_version >= 150000 else 2.2
    assert counts.of(CLAIM_INDEX) <= passes * MANY, counts


# -- the search against a query that reads everything

EVERYTHING = """
    SELECT DISTINCT ON (queue_name, is_grouped, priority) queue_name::text, priority, id, group_key::text
    FROM pgqueue_job_live WHERE status IN ('pending', 'retry') AND queue_name <> ALL (%s)
    ORDER BY queue_name, is_grouped, priority DESC, run_after, id
"""
SEARCH = """
    SELECT queue_name, priority, id, group_key
    FROM _pgqueue_first_due(NULL, %s, %s, %s, %s, %s, %s)
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_search_finds_the_first_job_of_every_range(one: Connection, seed: int) -> None:
    dice = random.Random(seed)
    for number in range(dice.choice([3, 40, 300])):
        for _ in range(dice.choice([1, 1, 1, 2, 3])):
            one.execute(
                "INSERT INTO pgqueue_job_live"
                " (task_path, max_attempts, on_lost, queue_name, priority, group_key)"
                " SELECT 'a.b', 5, 'rerun', %s, %s + n %% %s, %s FROM generate_series(1, %s) AS n",
                (
                    f"q{number}", dice.choice([-100, -1, 0, 50]), dice.choice([1, 2, 50]),
                    dice.choice([None, None, "g"]), dice.choice([1, 1, 2, 16, 17, 60]),
                ),
            )  # fmt: skip
    for but in ([], ["q0", "q2"]):
        expected = one.execute(EVERYTHING, (but,)).fetchall()
        assert len(expected) > 2
        for part in (0, 0.2, 1):
            known = [row for row in expected if dice.random() < part]
            arrays = (
                [name for name, *_ in known], [group is not None for *_, group in known],
                [priority for _, priority, *_ in known], [LONG_AGO] * len(known), [0] * len(known),
            )  # fmt: skip
            assert one.execute(SEARCH, (but, *arrays)).fetchall() == expected, (seed, but, part)
