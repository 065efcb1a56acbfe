"""What a report does to a job: where it goes, what it keeps, and which reports are refused."""

from __future__ import annotations

from time import monotonic
from typing import Any

import psycopg
import pytest
from django.db import IntegrityError, transaction

from django_pgqueue.jobs.finish import Outcome, finish_one_statement, finish_statement
from django_pgqueue.models import Job
from tests.support.jobs import add, cancel, claim, finish, retry, sql, value
from tests.support.sessions import Connection
from tests.support.workers import fresh

pytestmark = pytest.mark.django_db(transaction=True)

OVER = ["done", "failed", "cancelled"]
BACK = ["retry", "snooze", "release", "unknown"]
KINDS: list[Any] = [*OVER, *BACK]


def running(one: Connection, count: int = 1, **options: Any) -> list[int]:
    jobs = add(one, count, **options)
    assert [row.id for row in claim(one, count)] == jobs
    return jobs


def row(pk: int) -> dict[str, Any]:
    return dict(Job.objects.values().get(pk=pk))


# -- each outcome, in one report for all jobs, and one by one


def together(one: Connection, outcomes: list[Outcome]) -> Any:
    """Return the jobs that were accepted, and those of them that were cancelled."""
    found = one.execute(*finish_statement(outcomes)).fetchone()
    assert found is not None
    return sorted(found[0]), sorted(found[1] or [])


def one_by_one(one: Connection, outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        one.execute(*finish_one_statement(outcome))


LEVELS = pytest.mark.parametrize("report", [together, one_by_one])
HISTORY = "finished_at result shelf status waiting_reason"
LIVE = "deadline lease run_after status waiting_reason worker"
#: The status, and the columns that change. A job that goes back or is cancelled before it started made no
#: attempt. For the others, the claim is the known start.
BECOMES = {
    "done": f"done: {HISTORY}",
    "failed": f"failed: error_fingerprint {HISTORY}",
    "cancelled": "cancelled: attempts finished_at last_attempted_at result shelf started_at status"
    " waiting_reason",
    "retry": "retry: deadline error_fingerprint lease run_after started_at status waiting_reason worker",
    "snooze": "pending: attempts deadline lease run_after started_at status waiting_reason worker",
    "release": "pending: attempts deadline lease run_after started_at status waiting_reason worker",
    "unknown": f"pending: attempts {LIVE}",
}


def changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    names = sorted(name for name in after if after[name] != before[name])
    return f"{after['status']}: {' '.join(names)}"


@LEVELS
def test_where_a_job_goes_and_what_it_keeps(one: Connection, report: Any) -> None:
    jobs = running(one, len(KINDS), args='[1, "a"]', kwargs='{"k": 2}', metadata='{"m": 3}', max_attempts=4,
                   timeout=50, on_lost="fail", expires_at="2090-01-01 UTC")  # fmt: skip
    before = [row(pk) for pk in jobs]
    answer = report(one, [
        Outcome(pk, 1, kind, result='{"answer": 42}', delay=60.0, reason="so it is")
        for pk, kind in zip(jobs, KINDS, strict=True)
    ])  # fmt: skip
    assert answer in ((jobs, []), None)
    after = [row(pk) for pk in jobs]
    found = [changes(*pair) for pair in zip(before, after, strict=True)]
    assert dict(zip(KINDS, found, strict=True)) == BECOMES
    for kind, pk, each in zip(KINDS, jobs, after, strict=True):
        assert each["waiting_reason"] == "so it is"
        if kind in BACK:
            assert (each["worker"], each["lease"], each["deadline"]) == (None, None, None)
            wait = "SELECT run_after - clock_timestamp() BETWEEN '50s' AND '60s' FROM pgqueue_job_live"
            assert value(one, f"{wait} WHERE id = %s", pk)
        else:
            assert (each["result"], each["shelf"]) == ({"answer": 42}, 9 if kind == "failed" else 1)
            assert each["finished_at"] >= before[0]["last_attempted_at"]


@LEVELS
def test_a_job_that_was_asked_to_stop_does_not_go_back(one: Connection, report: Any) -> None:
    """Of the others the answer says nothing more than that they were accepted."""
    jobs = running(one, len(KINDS))
    cancel(one, jobs)
    outcomes = [
        Outcome(pk, 1, kind, started=monotonic() - 3, ran=2.5) for pk, kind in zip(jobs, KINDS, strict=True)
    ]
    assert report(one, outcomes) in ((jobs, jobs[len(OVER) :]), None)
    assert [fresh(pk).status for pk in jobs] == ["done", "failed", *["cancelled"] * 5]
    assert {fresh(pk).duration for pk in jobs} == {2.5}, "also of one that ran until it was cancelled"


@LEVELS
@pytest.mark.promise("completed-once")
def test_a_second_report_is_refused(one: Connection, report: Any) -> None:
    jobs = running(one, len(KINDS))
    report(one, [Outcome(pk, 1, kind) for pk, kind in zip(jobs, KINDS, strict=True)])
    before = [row(pk) for pk in jobs]
    for pk in jobs:
        if report is together:
            assert report(one, [Outcome(pk, 1, "failed")]) == ([], [])
        else:
            with pytest.raises(psycopg.IntegrityError):
                report(one, [Outcome(pk, 1, "failed")])
    assert [row(pk) for pk in jobs] == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.promise("completed-once")
def test_a_foreign_lease_is_refused_and_the_others_are_not(one: Connection, kind: Any) -> None:
    mine, theirs = add(one, 2)
    claim(one, 1, lease=1)
    claim(one, 1, lease=2)
    assert finish(one, [mine, theirs, 999_999], kind, lease=1) == [mine]
    assert (fresh(theirs).status, fresh(theirs).lease) == ("running", 2)


def test_arrays_that_say_nothing_may_be_left_out(one: Connection) -> None:
    jobs = running(one, 3)
    query = "SELECT accepted FROM _pgqueue_finish(%s, ARRAY[1, 1, 1]::bigint[]" + ", NULL" * 8 + ", 20)"
    assert sorted(value(one, query, jobs)) == jobs
    assert {fresh(pk).status for pk in jobs} == {"done"}


# -- attempts, times and errors


@pytest.mark.parametrize("end", ["release", "recovery"])
@pytest.mark.promise("requeued-behind")
def test_a_job_that_is_requeued_is_placed_behind_waiting_jobs(one: Connection, end: str) -> None:
    (pk,) = running(one)
    (waiting,) = add(one, 1)
    if end == "recovery":
        query = "SELECT _pgqueue_recover(ARRAY[%s::bigint], NULL, NULL, false, 'lost', 3, 100, 20)"
        one.execute(query, (row(pk)["worker"],))
    else:
        assert finish(one, [pk], end) == [pk]
    assert [claim(one, 1, lease=lease)[0].id for lease in (2, 3)] == [waiting, pk]


def test_only_a_retry_spends_an_attempt(one: Connection) -> None:
    (pk,) = add(one)
    kinds = [("release", 0), ("retry", 1), ("snooze", 1), ("unknown", 1), ("retry", 2), ("release", 2)]
    for kind, attempts in kinds:
        assert [row.id for row in claim(one)] == [pk]
        assert finish(one, [pk], kind) == [pk]
        assert fresh(pk).attempts == attempts
        assert fresh(pk).status == ("retry" if attempts else "pending")


@pytest.mark.parametrize("kind", OVER)
def test_the_times_are_those_of_the_task_not_of_the_claim_or_the_report(one: Connection, kind: str) -> None:
    (pk,) = running(one)
    finish(one, [pk], "retry", started=monotonic() - 90, ran=80.0)
    assert value(one, "SELECT clock_timestamp() - started_at BETWEEN '90s' AND '100s' FROM pgqueue_job_live")
    assert fresh(pk).duration is None, "the job is not over"
    claim(one)
    finish(one, [pk], kind, started=monotonic() - 60, ran=2.5)
    assert fresh(pk).duration == 2.5
    times = (
        "clock_timestamp() - started_at > '90s' AND finished_at - last_attempted_at BETWEEN '60s' AND '70s'"
    )
    assert value(one, f"SELECT {times} FROM pgqueue_job WHERE id = %s", pk), "started_at is the first start"


def test_without_a_duration_the_task_ran_until_the_report(one: Connection) -> None:
    ended, never_ran, timed = running(one, 3)
    one.execute("CALL pgqueue_finish(%s, 1, 'done', started_ago => 4)", (ended,))
    one.execute("CALL pgqueue_finish(%s, 1, 'cancelled')", (never_ran,))
    one.execute("CALL pgqueue_finish(%s, 1, 'failed', started_ago => 4, duration => 1.5)", (timed,))
    assert [fresh(pk).duration for pk in (ended, never_ran, timed)] == [4.0, None, 1.5]


def test_a_job_that_did_not_end_by_itself_has_no_duration(one: Connection) -> None:
    waiting, lost, given_back = running(one, 3)
    finish(one, [waiting, given_back], "retry", started=monotonic() - 2, ran=1.0)
    cancel(one, [waiting])
    give_back = "SELECT _pgqueue_give_back(ARRAY[%s::bigint], '{1}', '{t}', '{f}', '{t}', '', NULL, 1, 20)"
    value(one, give_back, lost)
    claim(one)
    finish(one, [given_back], "failed")
    assert [fresh(pk).status for pk in (waiting, lost, given_back)] == ["cancelled", "failed", "failed"]
    assert [fresh(pk).duration for pk in (waiting, lost, given_back)] == [None] * 3


def test_a_retry_by_hand_forgets_the_duration(one: Connection) -> None:
    (pk,) = running(one)
    finish(one, [pk], started=monotonic() - 2, ran=1.0)
    assert retry(one, [pk]) == 1
    assert (fresh(pk).status, fresh(pk).duration) == ("pending", None)


def test_an_unknown_task_remembers_when_that_was_first_seen(one: Connection) -> None:
    (pk,) = running(one)
    seen = fresh(pk).started_at
    assert seen is not None
    for _ in range(2):
        assert finish(one, [pk], "unknown", delay=0.0) == [pk]
        assert fresh(pk).started_at == seen
        claim(one)
    assert value(one, "SELECT started_at FROM pgqueue_job_live") == seen


def error(number: int) -> str:
    return f'{{"class": "ValueError", "message": "{number}", "worker": "7", "attempt": {number}}}'


def test_errors_are_kept_first_and_last(one: Connection) -> None:
    (pk,) = add(one)
    query = (
        "SELECT _pgqueue_finish(ARRAY[%s::bigint], ARRAY[1::bigint], ARRAY['retry'], NULL,"
        " ARRAY[%s::jsonb], ARRAY[%s], NULL, ARRAY[1.0], NULL, NULL, 3)"
    )
    for number in range(10):
        claim(one)
        one.execute(query, (pk, error(number), f"print{number}"))
    found = fresh(pk)
    assert [entry["message"] for entry in found.errors] == ["0", "1", "2", "7", "8", "9"]
    assert found.error_fingerprint == "print9"
    assert all(entry["started_at"] < entry["finished_at"] for entry in found.errors)
    assert len(found.worker_ids) == found.attempts == 10


def test_success_after_errors_keeps_them(one: Connection) -> None:
    (pk,) = running(one)
    finish(one, [pk], "retry", error=error(1), fingerprint="f")
    claim(one)
    finish(one, [pk])
    assert [entry["message"] for entry in fresh(pk).errors] == ["1"]
    assert fresh(pk).error_fingerprint == "f"


# -- one outcome at a time, with errors

FINISH_ONE = "CALL _pgqueue_finish_one(%s, %s, %s)"


def test_the_procedure_takes_everything_by_name(one: Connection) -> None:
    (pk,) = running(one)
    one.execute(
        "CALL _pgqueue_finish_one(%s, 1, 'failed', p_error => %s, p_fingerprint => 'f', p_started_ago => 2,"
        " p_reason => 'why', p_keep_errors => 1)", (pk, error(1)),
    )  # fmt: skip
    found = fresh(pk)
    assert (found.status, found.error_fingerprint, found.waiting_reason) == ("failed", "f", "why")
    assert [entry["message"] for entry in found.errors] == ["1"]


def test_the_procedure_says_what_is_wrong_by_its_code(one: Connection) -> None:
    (past,) = running(one)
    assert finish(one, [past]) == [past]
    waiting, mine = add(one, 2)
    one.execute("UPDATE pgqueue_job_live SET run_after = '2090-01-01 UTC' WHERE id = %s", (waiting,))
    claim(one)
    before = list(Job.objects.order_by("pk").values())
    for pk, lease, state, text in (
        (999_999, 1, "23Q01", "there is no live job 999999"),
        (past, 1, "23Q01", "It is finished, or its lease was lost"),
        (mine, 2, "23Q02", f"job {mine} is leased to another claim"),
        (mine, None, "23Q02", f"job {mine} is leased to another claim"),
        (waiting, 1, "23Q03", f"job {waiting} is pending, not running"),
    ):
        with pytest.raises(psycopg.IntegrityError, match=text) as caught:
            one.execute(FINISH_ONE, (pk, lease, "done"))
        assert caught.value.sqlstate == state
        assert caught.value.diag.message_hint
    assert list(Job.objects.order_by("pk").values()) == before


@pytest.mark.parametrize("kind", ["", "finished", "running", "DONE", None])
def test_the_procedure_refuses_an_outcome_that_there_is_not(one: Connection, kind: str | None) -> None:
    (pk,) = running(one)
    with pytest.raises(psycopg.DataError, match="is not one of done, failed, cancelled, retry, snooze"):
        one.execute(FINISH_ONE, (pk, 1, kind))


def test_django_sees_an_integrity_error_and_the_effects_roll_back(one: Connection) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        sql("SELECT pgqueue_enqueue('a.b'); CALL _pgqueue_finish_one(999999, 1, 'done')")
    assert not Job.objects.exists()
