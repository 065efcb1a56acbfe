"""The rounds of maintenance for jobs that wait for others, and for batches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_pgqueue.maintenance import rounds as rounds_module
from django_pgqueue.maintenance.rounds import Rounds
from django_pgqueue.postgres.session import Session, connect
from tests.support.flows import after, members, open_batch, outcome, status
from tests.support.jobs import add, value
from tests.support.sessions import Connect, Connection

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(transactional_db: None) -> Iterator[Session]:
    session = connect("default")
    yield session
    session.close()


@pytest.mark.promise("flow-repair")
def test_a_round_ends_batches_and_lets_jobs_run_that_wait_for_nothing(
    session: Session, one: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    (job,) = add(one)
    batch, (member,) = open_batch(one, 1)
    child, callback = after(one, [job]), after(one, [batch])
    rounds = Rounds()
    rounds.run(session, 100.0)
    assert status(one, child, callback) == "blocked blocked"
    assert 108.0 <= rounds._next[rounds._spread_nets] <= 112.0
    one.execute("DELETE FROM pgqueue_edge WHERE child_id = %s", (child,))
    one.execute("DELETE FROM pgqueue_job WHERE id = %s", (member,))
    rounds.run(session, 101.0)
    assert status(one, child, callback) == "blocked blocked", "it is not time"
    with caplog.at_level("INFO", "django_pgqueue"):
        rounds.run(session, 112.0)
    assert status(one, child, callback) == "pending cancelled"
    assert outcome(one, batch) == "cancelled"
    assert "ended 1 batch that nobody else would have ended" in caplog.text
    assert rounds._next[rounds._spread_nets] < 113.0, "there may be more"


def test_rounds_go_through_all_pages(
    session: Session, one: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "PAGE", 2)
    (job,) = add(one)
    children = [after(one, [job]) for _ in range(3)]
    batches = [open_batch(one, 1) for _ in range(3)]
    one.execute("DELETE FROM pgqueue_edge WHERE child_id = %s", (children[2],))
    one.execute("DELETE FROM pgqueue_job WHERE id = %s", (batches[2][1][0],))
    rounds = Rounds()
    rounds.run(session, 100.0)
    assert (status(one, *children), outcome(one, batches[2][0])) == ("blocked blocked blocked", "")
    rounds.run(session, 101.0)
    assert (status(one, *children), outcome(one, batches[2][0])) == ("blocked blocked pending", "cancelled")


def test_an_old_batch_is_deleted(session: Session, one: Connection) -> None:
    batch, _ = open_batch(one)
    members_of, _ = open_batch(one, 1)
    one.execute("UPDATE pgqueue_batch SET finished_at = finished_at - interval '31 days'")
    Rounds().run(session, 100.0)
    assert value(one, "SELECT array_agg(id) FROM pgqueue_batch") == [members_of]
    assert members(one, members_of)
    assert batch != members_of


@pytest.mark.parametrize("parent", [True, False])
def test_two_supervisors_do_not_do_the_same(session: Session, connect: Connect, parent: bool) -> None:
    one = connect()
    name = "edges" if parent else "batches"
    assert value(one, "SELECT _pgqueue_on_duty(%s)", name)
    other = connect(autocommit=True)
    (job,) = add(other)
    child = after(other, [job])
    batch, (member,) = open_batch(other, 1)
    other.execute("DELETE FROM pgqueue_edge WHERE child_id = %s", (child,))
    other.execute("DELETE FROM pgqueue_job WHERE id = %s", (member,))
    Rounds().run(session, 100.0)
    assert (status(other, child), outcome(other, batch)) == (
        ("blocked", "cancelled") if parent else ("pending", "")
    )
