"""What happens to the jobs of a worker that is gone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone
from django.utils.module_loading import import_string

from django_pgqueue import enqueue, extend
from django_pgqueue.exceptions import TooManyCrashes, WorkerLost
from django_pgqueue.models import Job, Worker
from django_pgqueue.worker.isolation import CRASHED_SQL
from tests.app.tasks import noop
from tests.support.factories import JobFactory, WorkerFactory, ago
from tests.support.jobs import sql
from tests.support.workers import fresh

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("settled_server")]

REASON = "its worker was lost"


def recover(
    *, begun: list[int] | None = None, to_blame: list[int] | None = None, alone: bool = True, limit: int = 100
) -> int:
    """Recover worker 7."""
    query = "SELECT jobs FROM _pgqueue_recover('{7}', %s::bigint[], %s::bigint[], %s, %s, 3, %s, 20)"
    return int(sql(query, begun, to_blame, alone, REASON, limit))


BEGUN, NOT_BEGUN, UNKNOWN = "had begun", "had not begun", "nobody knows"
CRASHED = f"{REASON} (crash 1 of at most 3)"
BACK = {"status": "pending", "attempts": 0, "worker": None, "lease": None, "errors": []}
CANCELLED = {"cancel_requested_at": timezone.now()}

#: What the row of the job says, whether it had begun, how its worker was lost, and what becomes of it.
CASES: dict[str, tuple[dict[str, Any], str, dict[str, Any], dict[str, Any]]] = {
    "a job that had begun counts a crash and no attempt": (
        {}, BEGUN, {}, {**BACK, "crash_count": 1, "lost_in_a_row": 0, "waiting_reason": CRASHED},
    ),
    "a job that had not begun counts nothing": (
        {}, NOT_BEGUN, {}, {**BACK, "crash_count": 0, "waiting_reason": REASON},
    ),
    "who is to blame counts a crash": ({}, BEGUN, {"blamed": True}, {"crash_count": 1}),
    "others do not": ({}, BEGUN, {"blamed": False}, {"crash_count": 0}),
    "a job that is lost with more than its process counts nothing at first": (
        {}, BEGUN, {"alone": False},
        {**BACK, "crash_count": 0, "lost_in_a_row": 1, "waiting_reason": REASON},
    ),
    "the second time it says that it counts": (
        {"lost_in_a_row": 1}, BEGUN, {"alone": False},
        {"crash_count": 1, "lost_in_a_row": 2, "waiting_reason": CRASHED},
    ),
    "a stop of its worker counts nothing": (
        {"lost_in_a_row": 1}, BEGUN, {"blamed": False, "alone": False},
        {"crash_count": 0, "lost_in_a_row": 1},
    ),
    "what was only held in advance is not lost": (
        {"lost_in_a_row": 1}, NOT_BEGUN, {"alone": False}, {"crash_count": 0, "lost_in_a_row": 1},
    ),
    "a job fails at the limit": (
        {"crash_count": 2}, BEGUN, {}, {"status": "failed", "crash_count": 3, "attempts": 1},
    ),
    "a job that was asked to stop is cancelled": (CANCELLED, BEGUN, {}, {"status": "cancelled"}),
    **{
        f"a job that must not run twice, {begun}, {'alone' if alone else 'with others'}": (
            {"on_lost": "fail"}, begun, {"alone": alone},
            {"status": "pending" if begun == NOT_BEGUN else "failed"},
        )
        for begun in (BEGUN, UNKNOWN, NOT_BEGUN)
        for alone in (True, False)
    },
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.promise("recovered", "crash-is-no-attempt", "alone-counts-a-crash", "blame-counts-a-crash")
@pytest.mark.promise("lost-in-a-row", "stopped-counts-none", "crash-limit", "on-lost-never-again")
def test_recovery(case: str) -> None:
    columns, begun, how, expected = CASES[case]
    job = JobFactory.create(running=True, **columns)
    given: dict[str, Any] = {"alone": how.get("alone", True)}
    if begun != UNKNOWN:
        given["begun"] = [job.pk if begun == BEGUN else job.pk + 1]
    if "blamed" in how:
        given["to_blame"] = [job.pk] if how["blamed"] else []
    assert recover(**given) == 1
    left = fresh(job)
    assert {name: getattr(left, name) for name in expected} == expected
    if expected.get("status") != "failed":
        return
    (error,) = left.errors
    assert (error["worker"], error["attempt"]) == ("7", 1)
    if columns.get("on_lost"):
        assert import_string(error["class"]) is WorkerLost
        assert "must not run twice" in error["message"]
    else:
        assert import_string(error["class"]) is TooManyCrashes
        assert error["message"].endswith("Its process has died 3 times while it ran, which is the limit.")


def run_again(job: Job) -> None:
    """Worker 7 claims it."""
    Job.objects.filter(pk=job.pk).update(status="running", attempts=F("attempts") + 1, worker=7, lease=1)


def lose(job: Job) -> tuple[str, int, int]:
    """Its worker is lost, and not its process alone. What became of the job."""
    assert recover(begun=[job.pk], alone=False) == 1
    left = fresh(job)
    return left.status, left.crash_count, left.lost_in_a_row


@pytest.mark.promise("lost-in-a-row")
def test_a_job_that_takes_everything_down_in_each_run_fails_one_run_later() -> None:
    job = JobFactory.create(running=True)
    seen = [lose(job)]
    while seen[-1][0] == "pending" and len(seen) < 10:
        run_again(job)
        seen.append(lose(job))
    assert seen == [("pending", 0, 1), ("pending", 1, 2), ("pending", 2, 3), ("failed", 3, 4)]
    (error,) = fresh(job).errors
    assert import_string(error["class"]) is TooManyCrashes


@pytest.mark.parametrize(
    ("outcome", "crashes"), [("snooze", 0), ("retry", 0), ("release", 1), ("unknown", 1)]
)
@pytest.mark.promise("series-ends")
def test_a_run_that_came_to_an_end_breaks_the_row(outcome: str, crashes: int) -> None:
    """One that never began does not."""
    job = JobFactory.create(running=True)
    lose(job)
    run_again(job)
    finish = (
        "SELECT accepted FROM _pgqueue_finish("
        "'{%s}', '{1}', '{%s}', NULL, NULL, NULL, '{0}', NULL, NULL, NULL, 20)"
    )
    assert sql(finish % (job.pk, outcome)) == [job.pk]
    run_again(job)
    assert lose(job)[1] == crashes


def test_a_crash_between_two_losses_does_not_break_the_row() -> None:
    job = JobFactory.create(running=True)
    lose(job)
    run_again(job)
    assert recover(begun=[job.pk]) == 1
    run_again(job)
    assert lose(job) == ("pending", 2, 2)


def test_the_jobs_of_other_workers_are_left_alone_and_a_round_is_bounded() -> None:
    JobFactory.create_batch(3, running=True)
    alive = JobFactory.create(running=True, worker=8)
    assert [recover(limit=2), recover(limit=2), recover(limit=2)] == [2, 1, 0]
    assert Job.objects.get(pk=alive.pk).status == "running"


@pytest.mark.parametrize("state", ["failed", "retrying"])
@pytest.mark.promise("series-ends")
def test_a_retry_by_hand_forgives_the_crashes(state: str) -> None:
    job = JobFactory.create(**{state: True}, crash_count=3, lost_in_a_row=2)
    Job.objects.filter(pk=job.pk).retry()
    assert (fresh(job).crash_count, fresh(job).lost_in_a_row) == (0, 0)


@pytest.mark.parametrize(
    ("changes", "kind", "status", "crashes"),
    [
        ({}, "crash", "pending", 2),
        ({"crash_count": 2}, "failed", "failed", 3),
        ({"on_lost": "fail"}, "failed", "failed", 2),
        ({"cancel_requested_at": timezone.now()}, "cancelled", "cancelled", 2),
        ({"lease": 99}, "lost", "running", 1),
    ],
)
def test_a_job_that_took_its_own_process_down(
    changes: dict[str, Any], kind: str, status: str, crashes: int
) -> None:
    job = JobFactory.create(**{"running": True, "lease": 5, "crash_count": 1, **changes})
    assert sql(CRASHED_SQL, job.pk, 5, "why", 100, 3, 20) == kind
    left = fresh(job)
    assert (left.status, left.crash_count) == (status, crashes)
    if kind == "crash":
        assert left.run_after > timezone.now() + timedelta(seconds=90)


# -- rounds


def round_of_recovery(lease: float = 30.0, limit: int = 100, heartbeat: float = 0.1) -> tuple[int, int]:
    """Use a short heartbeat: the server of a test run has just started, so heartbeats must be newer than
    that.
    """
    query = "SELECT ARRAY[dead, jobs] FROM _pgqueue_recover_dead(%s, %s, 3, %s, 20)"
    dead, jobs = sql(query, heartbeat, lease, limit)
    return dead, jobs


@pytest.mark.promise("live-worker-keeps-jobs")
def test_a_worker_that_beats_is_alive() -> None:
    WorkerFactory.create(heartbeat_at=ago(seconds=0.1))
    assert round_of_recovery() == (0, 0)


def test_a_worker_whose_lock_is_free_is_dead_after_two_missed_beats() -> None:
    """Its last heartbeat tells which of its jobs had begun."""
    jobs = JobFactory.create_batch(2, running=True)
    worker = WorkerFactory.create(id=7, heartbeat_at=ago(seconds=0.3), started_jobs=[jobs[0].pk])
    assert round_of_recovery() == (1, 2)
    left = [(job.status, job.crash_count, job.lost_in_a_row) for job in map(fresh, jobs)]
    assert left == [("pending", 0, 1), ("pending", 0, 0)]
    assert not Worker.objects.filter(pk=worker.pk).exists()


def test_a_worker_without_started_jobs_may_miss_one_more_heartbeat() -> None:
    """Its supervisor leaves out every second one."""
    for age in (1.05, 1.45):
        WorkerFactory.create(heartbeat_at=ago(seconds=age), started_jobs=[])
    # The lease ends in any case.
    assert round_of_recovery(lease=10.0, heartbeat=0.4) == (1, 0)
    assert round_of_recovery(lease=0.25) == (1, 0)


def test_a_worker_that_has_no_lock_or_none_to_trust_is_dead_after_the_lease() -> None:
    WorkerFactory.create(id=7, heartbeat_at=ago(seconds=1), holds_lock=False)
    assert round_of_recovery(lease=10.0) == (0, 0)
    assert round_of_recovery(lease=0.9) == (1, 0)


@pytest.mark.promise("dead-machine")
def test_a_worker_that_holds_its_lock_is_dead_only_after_the_lease(connect: Any) -> None:
    other = connect(autocommit=True)
    other.execute("SELECT pg_advisory_lock(_pgqueue_lock_key('worker', '7'))")
    WorkerFactory.create(id=7, heartbeat_at=ago(seconds=1))
    assert round_of_recovery(lease=10.0) == (0, 0)


def test_about_a_worker_that_has_not_beaten_since_the_server_started_the_lock_says_nothing() -> None:
    up = sql("SELECT clock_timestamp() - pg_postmaster_start_time()")
    before_the_start = ago(seconds=up.total_seconds() + 10)
    WorkerFactory.create(id=7, heartbeat_at=before_the_start)
    # Its lease is counted from the beginning of our own session, which is younger than this.
    assert round_of_recovery(lease=up.total_seconds() + 5) == (0, 0)


def test_a_worker_stays_on_the_list_until_its_last_job_is_recovered() -> None:
    WorkerFactory.create(id=7, heartbeat_at=ago(seconds=1), holds_lock=False)
    JobFactory.create_batch(3, running=True)
    assert [round_of_recovery(0.9, limit=2) for _ in range(3)] == [(1, 2), (1, 1), (0, 0)]


def test_jobs_of_workers_that_nobody_knows_are_found() -> None:
    known = JobFactory.create(running=True)
    WorkerFactory.create(id=7)
    stray = JobFactory.create(running=True, worker=8)
    assert sql("SELECT jobs FROM _pgqueue_recover(NULL, NULL, NULL, false, 'lost', 3, 100, 20)") == 1
    assert [fresh(job).status for job in (known, stray)] == ["running", "pending"]


# -- deadlines


def seconds_left(job: Job) -> float:
    deadline: Any = fresh(job).deadline
    return float((deadline - timezone.now()).total_seconds())


@pytest.mark.promise("extend")
def test_extending_moves_the_deadline_of_running_jobs_forward_only() -> None:
    soon, late = (
        JobFactory.create(running=True, timeout=60, deadline=timezone.now() + timedelta(seconds=seconds))
        for seconds in (10, 1000)
    )
    without = JobFactory.create(running=True)
    waiting = enqueue(noop)
    assert extend(Job.objects.all(), 100) == 3
    assert 95 < seconds_left(soon) <= 100
    assert fresh(late).deadline == late.deadline
    assert fresh(without).deadline is None
    assert extend(waiting, timedelta(minutes=1)) == 0
    assert extend(soon.pk, timedelta(minutes=10)) == 1
    assert seconds_left(soon) > 590


@pytest.mark.parametrize("seconds", ["60", None, True, -1, float("nan"), float("inf")])
def test_extending_takes_a_duration(seconds: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"extend\(jobs, duration\) takes"):
        extend(1, seconds)


@pytest.mark.parametrize("duration", ["'-1 second'", "NULL", "'101 years'"])
def test_extending_by_plain_sql_takes_a_duration(duration: str) -> None:
    with pytest.raises(Exception, match="extend: the duration must be from 0 to 100 years"):
        sql(f"SELECT pgqueue_extend('{{1}}', {duration})")
