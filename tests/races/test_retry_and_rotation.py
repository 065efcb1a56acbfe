from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from django_pgqueue.models import Ring
from tests.support.jobs import live, over, retry, rotate, statuses, value
from tests.support.sessions import Connect, open_raw, start

pytestmark = pytest.mark.django_db(transaction=True)

# Shelf 1 is the current one, so a rotation empties shelf 2.


@pytest.fixture
def patient_rotation(transactional_db: None) -> Iterator[None]:
    """Let the rotation wait for seconds instead of 50 ms, so that a test can run something in between."""
    with open_raw() as owner:
        owner.execute("ALTER FUNCTION _pgqueue_rotate() SET lock_timeout = '20s'")
        yield
        owner.execute("ALTER FUNCTION _pgqueue_rotate() SET lock_timeout = '50ms'")


def test_a_retry_that_meets_a_rotation_waits_and_finds_nothing(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    gone = over(other, 2, "8 days")
    (kept,) = over(other, 1, "1 day")
    assert rotate(one) == "emptied shelf 2"
    retried = start(other, retry, [*gone, kept]).blocked()
    one.commit()
    assert retried.result() == 1
    assert live(other) == {kept: "pending"}
    assert statuses(other) == {kept: "pending"}


def test_a_rotation_gives_way_to_a_retry(connect: Connect) -> None:
    # It gives way only because of its own lock timeout. Without one, it would wait until it is cancelled.
    one = connect()
    other = connect(autocommit=True, options="-c lock_timeout=0 -c statement_timeout=60s")
    job, neighbour = over(other, 2, "8 days", 2)
    assert retry(one, [job]) == 1
    assert rotate(other) == "gave way to a reader of shelf 2"
    one.commit()
    assert statuses(other) == {job: "pending", neighbour: "done"}
    assert rotate(other) == "emptied shelf 2"
    assert statuses(other) == {job: "pending"}


@pytest.mark.usefixtures("patient_rotation")
def test_a_young_job_that_arrives_between_check_and_lock_is_not_dropped(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    over(other, 2, "8 days")
    # A finish has read the ring before it advanced. It commits late, to a shelf that is about to be emptied.
    (young,) = over(one, 2, "1 minute")
    rotation = start(other, rotate).blocked()
    one.commit()
    assert rotation.result() == "waiting for shelf 2"
    assert young in statuses(other)


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_rotation_refuses_a_snapshot_older_than_its_lock(connect: Connect, isolation: str) -> None:
    one = connect(options=f"-c default_transaction_isolation={isolation.replace(' ', chr(92) + ' ')}")
    with pytest.raises(psycopg.errors.InvalidTransactionState, match="only under READ COMMITTED"):
        rotate(one)


def test_only_one_rotation_at_a_time(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    over(other, 2, "8 days")
    assert rotate(one) == "emptied shelf 2"
    assert rotate(other) == "busy"
    one.commit()
    assert rotate(other) == "nothing to do"
    assert value(other, "SELECT current FROM pgqueue_ring") == Ring.objects.get().current == 1


def test_two_retries_at_once_bring_a_job_back_once(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    jobs = over(other, 1, "1 day", 3) + over(other, 9, "1 day", 3, status="failed")
    assert retry(one, jobs) == 6
    second = start(other, retry, jobs[::-1]).blocked()
    one.commit()
    assert second.result() == 0
    assert live(other) == dict.fromkeys(jobs, "pending")
    assert value(other, "SELECT count(*) FROM pgqueue_job") == 6
