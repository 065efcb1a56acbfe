"""Jobs that wait for jobs and batches: what starts them, and what becomes of them if a parent fails."""

from __future__ import annotations

import pytest

from tests.support.flows import after, close, counts, edges, members, open_batch, outcome, reason
from tests.support.jobs import add, cancel, claim, finish, retry, statuses, value
from tests.support.sessions import Connect, Connection

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def one(connect: Connect) -> Connection:
    return connect(autocommit=True)


def status(one: Connection, *jobs: int) -> list[str]:
    found = (
        statuses(one, *jobs)
        if False
        else {
            pk: name
            for pk, name in one.execute(
                "SELECT id, status FROM pgqueue_job WHERE id = ANY (%s)", (list(jobs),)
            )
        }
    )
    return [found.get(job, "gone") for job in jobs]


def end(one: Connection, job: int, kind: str = "done") -> None:
    claim(one)
    assert finish(one, [job], kind) == [job]


def test_a_job_starts_when_all_of_its_parents_are_done(one: Connection) -> None:
    parents = add(one, 3)
    child = after(one, parents)
    assert status(one, child) == ["blocked"]
    assert reason(one, child) == "waits for jobs {}, {}, {}".format(*parents)
    end(one, parents[1])
    end(one, parents[0])
    assert status(one, child) == ["blocked"]
    end(one, parents[2])
    assert (status(one, child), reason(one, child), edges(one)) == (["pending"], "", [])
    assert value(one, "SELECT parents FROM pgqueue_job WHERE id = %s", child) == parents


@pytest.mark.parametrize(
    ("if_failed", "failed", "cancelled"),
    [("hold", "blocked", "cancelled"), ("cancel", "cancelled", "cancelled"), ("run", "pending", "pending")],
)
def test_what_becomes_of_a_child_if_its_parent_fails(
    one: Connection, if_failed: str, failed: str, cancelled: str
) -> None:
    (first, second) = add(one, 2)
    child, other = after(one, [first], if_failed), after(one, [second], if_failed)
    claim(one)
    finish(one, [first], "failed")
    finish(one, [second], "cancelled")
    assert status(one, child, other) == [failed, cancelled]


def test_a_batch(one: Connection) -> None:
    batch, jobs = open_batch(one, 3)
    callback, always = after(one, [batch]), after(one, [batch], "run")
    claim(one)
    finish(one, jobs[:2])
    finish(one, jobs[2:], "failed")
    assert (outcome(one, batch), counts(one, batch)) == ("failed", (3, 0, 2, 1, 0))
    assert status(one, callback, always) == ["blocked", "pending"]
    assert value(one, "SELECT pgqueue_retry_batch(%s)", batch) == 1
    assert (outcome(one, batch), counts(one, batch)) == ("", (3, 1, 2, 0, 0))
    end(one, jobs[2])
    assert (outcome(one, batch), counts(one, batch)) == ("done", (3, 0, 3, 0, 0))
    assert status(one, callback, always) == ["pending", "running"]
