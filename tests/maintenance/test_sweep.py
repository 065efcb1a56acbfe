from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from django_pgqueue.models import Job, Queue
from tests.support.history import fresh_ring
from tests.support.jobs import add, cancel, claim, finish, over, statuses, value
from tests.support.sessions import Connect, Connection, start

pytestmark = pytest.mark.django_db(transaction=True)

ZERO = timedelta(0)
YEAR = timedelta(days=365)
KEPT = 9


@pytest.fixture
def one(connect: Connect) -> Iterator[Connection]:
    connection = connect(autocommit=True)
    with fresh_ring(connection):
        yield connection


def ends(one: Connection, kind: str, queue_name: str = "mail") -> int | None:
    """Return the shelf on which a job of the queue ends, or None if the job is not kept."""
    (job,) = add(one, queue_name=queue_name)
    if kind == "cancelled before it ran":
        assert cancel(one, [job]) == 1
    else:
        one.execute(
            "UPDATE pgqueue_job_live SET status = 'running', lease = 1, attempts = 1 WHERE id = %s", (job,)
        )
        assert finish(one, [job], kind) == [job]
    found = Job.objects.filter(pk=job).first()
    return None if found is None else found.shelf


KINDS = ["done", "cancelled", "cancelled before it ran", "failed"]


@pytest.mark.parametrize(
    ("retention", "failed_retention", "shelves"),
    [
        (None, None, [1, 1, 1, KEPT]),
        (YEAR, None, [KEPT, KEPT, KEPT, KEPT]),
        (timedelta(hours=1), timedelta(hours=1), [KEPT, KEPT, KEPT, KEPT]),
        (ZERO, None, [None, None, None, KEPT]),
        (None, ZERO, [1, 1, 1, None]),
        (ZERO, ZERO, [None, None, None, None]),
    ],
)
def test_a_queue_says_what_it_keeps_done_and_failed_apart(
    one: Connection,
    retention: timedelta | None,
    failed_retention: timedelta | None,
    shelves: list[int | None],
) -> None:
    Queue.objects.create(name="mail", retention=retention, failed_retention=failed_retention)
    assert [ends(one, kind) for kind in KINDS] == shelves
    assert [ends(one, kind, "another") for kind in KINDS] == [1, 1, 1, KEPT]


def test_a_batch_over_several_queues(one: Connection) -> None:
    Queue.objects.create(name="none", retention=ZERO)
    Queue.objects.create(name="long", retention=YEAR)
    jobs = [pk for name in ("none", "long", "default") for pk in add(one, 2, queue_name=name)]
    one.execute("UPDATE pgqueue_job_live SET status = 'running', lease = 1")
    assert finish(one, jobs) == jobs, "accepted, kept or not"
    assert list(Job.objects.order_by("pk").values_list("shelf", flat=True)) == [KEPT, KEPT, 1, 1]


def sweep(one: Connection, limit: int = 1000) -> int:
    return int(value(one, "SELECT _pgqueue_sweep(%s)", limit))


@pytest.mark.promise("failed-retention")
def test_the_sweep_takes_what_is_too_old_for_its_queue_and_status(one: Connection) -> None:
    Queue.objects.create(name="long", retention=YEAR, failed_retention=timedelta(days=2))
    kept = {
        *over(one, KEPT, "29 days", status="failed"),
        *over(one, KEPT, "6 days", status="done"),
        *over(one, KEPT, "6 days", status="cancelled", queue_name="another"),
        *over(one, KEPT, "364 days", status="done", queue_name="long"),
        *over(one, KEPT, "364 days", status="cancelled", queue_name="long"),
        *over(one, KEPT, "1 day", status="failed", queue_name="long"),
    }
    over(one, KEPT, "31 days", 2, status="failed")
    over(one, KEPT, "8 days", 3, status="done")
    over(one, KEPT, "8 days", status="cancelled", queue_name="another")
    over(one, KEPT, "366 days", status="cancelled", queue_name="long")
    over(one, KEPT, "3 days", 4, status="failed", queue_name="long")
    assert sweep(one) == 11
    assert statuses(one).keys() == kept
    assert sweep(one) == 0


def test_the_sweep_works_in_batches_oldest_first(one: Connection) -> None:
    young = over(one, KEPT, "31 days", 3, status="failed", queue_name="a")
    old = over(one, KEPT, "40 days", 4, status="failed", queue_name="a")
    other = over(one, KEPT, "40 days", 2, status="failed", queue_name="b")
    assert sweep(one, 3) == 3
    assert sweep(one, 1) == 1
    assert not set(old) & statuses(one).keys()
    assert sweep(one, 4) == 4
    assert statuses(one).keys() == {other[1]}
    assert set(young).isdisjoint(statuses(one))
    assert sweep(one, 4) == 1


@pytest.mark.promise("retention-of-a-queue")
def test_a_time_that_is_made_shorter_counts_for_what_is_kept_already(one: Connection) -> None:
    over(one, KEPT, "2 days", 2, queue_name="mail")
    queue = Queue.objects.create(name="mail", retention=YEAR)
    assert sweep(one) == 0
    queue.retention = ZERO
    queue.save()
    assert sweep(one) == 2


def test_the_sweep_leaves_the_ring_and_the_live_jobs_alone(one: Connection) -> None:
    old = over(one, 1, "9 days") + over(one, 5, "90 days") + add(one)
    assert sweep(one) == 0
    assert sorted(statuses(one)) == sorted(old)


def test_one_sweep_at_a_time_and_none_waits_for_a_locked_row(one: Connection, connect: Connect) -> None:
    busy, reader = connect(), connect()
    jobs = over(one, KEPT, "40 days", 3, status="failed")
    assert sweep(busy, 1) == 1
    assert sweep(one) == 0
    busy.commit()
    reader.execute("SELECT FROM pgqueue_job_kept WHERE id = %s FOR UPDATE", (jobs[1],))
    assert start(one, sweep).result() == 1
    assert statuses(one).keys() == {jobs[1]}


def test_a_retry_brings_a_kept_job_back(one: Connection) -> None:
    (job,) = over(one, KEPT, "29 days", status="failed")
    assert value(one, "SELECT pgqueue_retry(ARRAY[%s::bigint])", job) == [job]
    assert [row.id for row in claim(one)] == [job]
