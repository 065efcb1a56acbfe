"""Plans that a session has kept from the time when the table of live jobs was empty."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from django_pgqueue import enqueue
from django_pgqueue.jobs.claim import claim_sql
from django_pgqueue.jobs.finish import FINISH_SQL, Kind, Outcome, finish_parameters
from django_pgqueue.maintenance.rounds import Rounds
from django_pgqueue.postgres import session as session_module
from django_pgqueue.postgres.session import Session
from django_pgqueue.postgres.session import connect as connect_worker
from django_pgqueue.worker.producer.claimer import FIRST_DUE_SQL
from django_pgqueue.worker.producer.inbox import _RUNNING_SQL
from tests.app import worker_tasks as tasks
from tests.support.jobs import LONG_AGO, Range
from tests.support.plans import CLAIM_INDEX, LIVE, claim_parameters, fill, nodes, reads
from tests.support.sessions import Connect, open_raw
from tests.support.workers import fresh, run_due

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 100_000
BATCH = 50


@pytest.fixture
def session(connect: Connect) -> Iterator[Session]:
    """A session of a worker. Nobody analyzes the table of live jobs unless a test does."""
    owner = connect(autocommit=True)
    owner.execute(f"ALTER TABLE {LIVE} SET (autovacuum_enabled = false)")
    try:
        with closing(connect_worker("default")) as session:
            yield session
    finally:
        owner.execute(f"ALTER TABLE {LIVE} RESET (autovacuum_enabled)")


NOTHING: tuple[list[Any], ...] = ([], [], [], [], [])


def statements(ids: list[int]) -> dict[str, tuple[str, Any]]:
    """Return the frequent statements of a worker, with parameters for these jobs."""
    known = (["default"], [False], [0], [LONG_AGO], [0])
    kinds: tuple[Kind, ...] = ("done", "failed", "cancelled", "retry", "snooze", "release")
    return {
        "claim": (claim_sql(), claim_parameters(Range(), limit=BATCH)),
        "search": (FIRST_DUE_SQL, (None, [], *known, 500)),
        "rescan": (FIRST_DUE_SQL, (None, [], *NOTHING, 500)),
        "cancels": (_RUNNING_SQL, (ids,)),
        **{
            kind: (FINISH_SQL, finish_parameters([Outcome(job, 1, kind, error="{}") for job in ids], 20))
            for kind in kinds
        },
    }


@pytest.mark.parametrize("analyzed", [True, False])
def test_plans_that_were_made_on_an_empty_table_are_made_anew(
    session: Session, monkeypatch: pytest.MonkeyPatch, analyzed: bool
) -> None:
    session.connection.execute(f"TRUNCATE {LIVE}")
    if analyzed:
        session.connection.execute(f"ANALYZE {LIVE}")
    for _ in range(3):
        for statement in statements([1, 2]).values():
            session.run(statement)
    with open_raw() as other:  # what it sets would discard the plans of its own session
        run_after = "'2020-01-01'::timestamptz + n * interval '1 ms'"
        fill(other, LIVE, MANY, analyze=False, run_after=run_after)
    rows = session.run((claim_sql(), claim_parameters(Range(), limit=BATCH)))[0]

    monkeypatch.setattr(session_module, "PLANS_LAST", 0.0)
    session.refresh_plans()
    for name, statement in statements([row[0] for row in rows]).items():
        with reads(session.connection) as counts:
            session.run(statement)
        assert counts.of(LIVE, CLAIM_INDEX) <= 10 * BATCH, (name, counts)
    found = list(nodes(plan_of_the_claim(session)))
    assert {(node["Node Type"], node.get("Index Name")) for node in found} >= {("Index Scan", CLAIM_INDEX)}
    assert not {"Seq Scan", "Sort", "Hash Join"} & {node["Node Type"] for node in found}


def plan_of_the_claim(session: Session) -> dict[str, Any]:
    """Return the plan of the statement that the session has prepared."""
    (name,) = (
        name
        for name, text in session.connection.execute("SELECT name, statement FROM pg_prepared_statements")
        if "WITH picked" in text
    )
    row = session.connection.execute(
        f"EXPLAIN (FORMAT JSON) EXECUTE {name}"
        " ('{}', '{default}', '{0}', '{2000-01-01}', '{0}', 50, 1, 1)"
    ).fetchone()
    assert row is not None
    plan: dict[str, Any] = row[0][0]["Plan"]
    return plan


def test_workers_and_supervisors_plan_anew_from_time_to_time(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    refreshed: list[Session] = []
    monkeypatch.setattr(Session, "refresh_plans", lambda self, idle=False: refreshed.append(self))
    run_due()
    assert len(refreshed) == 1  # it has registered
    job = enqueue(tasks.noop)
    run_due()
    assert fresh(job).status == "done"
    assert len(refreshed) == 3  # it has registered and found a job
    Rounds().run(session, 1.0)
    assert refreshed[3:] == [session]
