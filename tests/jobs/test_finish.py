"""What a report does to a job: where it goes, what it keeps, and which reports are refused."""

from __future__ import annotations

import json
from time import monotonic
from typing import Any, NamedTuple

import psycopg
import pytest
from django.db import OperationalError, transaction

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.jobs.finish import Outcome, finish_one_statement, finish_statement
from django_pgqueue.models import Job
from django_pgqueue.worker.isolation import CRASHED_SQL
from tests.app.unique_tasks import index
from tests.support.jobs import add, cancel, claim, finish, live, sql, statuses, value
from tests.support.sessions import Connect, Connection
from tests.support.workers import fresh

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("settled_server")]

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


def changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    names = sorted(name for name in after if after[name] != before[name])
    return f"{after['status']}: {' '.join(names)}"


def test_where_a_job_goes_and_what_it_keeps(one: Connection, wording: Any) -> None:
    """The status, and the columns that change. A job that goes back or is cancelled before it started made no
    attempt. For the others, the claim is the known start.
    """
    for report in (together, one_by_one):
        jobs = running(one, len(KINDS), args='[1, "a"]', kwargs='{"k": 2}', metadata='{"m": 3}', timeout=50,
                       max_attempts=4, on_lost="fail", expires_at="2090-01-01 UTC",
                       options='{"tenant": "acme"}')  # fmt: skip
        before = [row(pk) for pk in jobs]
        answer = report(one, [
            Outcome(pk, 1, kind, result='{"answer": 42}', delay=60.0, reason="so it is")
            for pk, kind in zip(jobs, KINDS, strict=True)
        ])  # fmt: skip
        assert answer in ((jobs, []), None)
        after = [row(pk) for pk in jobs]
        found = [changes(*pair) for pair in zip(before, after, strict=True)]
        assert dict(zip(KINDS, found, strict=True)) == wording(name="each level")
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
    kinds = [*KINDS, "paused"] if report is together else KINDS
    jobs = running(one, len(kinds))
    cancel(one, jobs)
    outcomes = [
        Outcome(pk, 1, kind, started=monotonic() - 3, ran=2.5) for pk, kind in zip(jobs, kinds, strict=True)
    ]
    assert report(one, outcomes) in ((jobs, jobs[len(OVER) :]), None)
    assert [fresh(pk).status for pk in jobs] == ["done", "failed", *["cancelled"] * (len(kinds) - 2)]
    assert {fresh(pk).attempts for pk in jobs[:4]} == {1}, "a retry has spent one, too"
    assert {fresh(pk).attempts for pk in jobs[4:]} == {0}
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
        "CALL pgqueue_finish(%s, 1, 'retry', error => %s, fingerprint => %s, started_ago => 1,"
        " keep_errors => 3)"
    )
    for number in range(10):
        claim(one)
        one.execute(query, (pk, error(number), f"print{number}"))
    claim(one)
    finish(one, [pk])  # a success keeps them
    found = fresh(pk)
    assert [entry["message"] for entry in found.errors] == ["0", "1", "2", "7", "8", "9"]
    assert found.error_fingerprint == "print9"
    assert all(entry["started_at"] < entry["finished_at"] for entry in found.errors)
    assert len(found.worker_ids) == found.attempts == 11


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
            one.execute("CALL pgqueue_finish(%s, %s, 'done')", (pk, lease))
        assert caught.value.sqlstate == state
        assert caught.value.diag.message_hint
    assert list(Job.objects.order_by("pk").values()) == before


# --- Jobs that go back to waiting and find another one with their unique key in their place


KEYED = json.dumps({"unique_key": "k"})
LIVE_KEY = json.dumps({"unique_key": "k", "unique_scope": "live"})


def pair(one: Connection) -> tuple[int, int]:
    """Return a job that runs, and the one with the same key that waits."""
    (runs,) = add(one, options=KEYED)
    claim(one)
    (waits,) = add(one, options=KEYED)
    return runs, waits


def begin(one: Connection, job: int) -> None:
    one.execute(
        "UPDATE pgqueue_job_live SET status = 'running', lease = 1, worker = 1, attempts = 1 WHERE id = %s",
        (job,),
    )


class Report(NamedTuple):
    """How a job ends whose twin waits, what was before, and what the job is then, and why."""

    kind: Any
    before: str
    status: str
    reason: str = "why"


IN_ITS_PLACE = "job {twin} with the same unique key waits in its place"
REPORTS = {
    **{f"it goes back: {kind}": Report(kind, "", "cancelled", IN_ITS_PLACE)
       for kind in ("retry", "snooze", "release", "unknown")},
    **{f"it is over: {kind}": Report(kind, "", kind) for kind in ("done", "failed", "cancelled")},
    "its place is free": Report("retry", "the twin is cancelled", "retry"),
    "it was asked to stop, which is the reason": Report("retry", "it is cancelled", "cancelled"),
    "its lease was lost": Report("retry", "it has another lease", "running", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.promise("unique-meets-twin")
def test_a_job_that_goes_back_ends_as_cancelled_and_keeps_its_error(one: Connection, name: str) -> None:
    kind, before, status, reason = REPORTS[name]
    runs, waits = pair(one)
    (plain,) = add(one)
    begin(one, plain)
    if before == "it has another lease":
        one.execute("UPDATE pgqueue_job_live SET lease = 2 WHERE id = %s", (runs,))
    elif before:
        assert cancel(one, [waits] if before == "the twin is cancelled" else [runs]) == 1
    error = '{"class": "E", "message": "m"}' if kind == "retry" else None
    given: Any = {"error": error, "fingerprint": error and "f", "reason": "why"}
    accepted, cancelled = together(one, [Outcome(job, 1, kind, **given) for job in (runs, plain)])
    assert accepted == ([plain] if status == "running" else [runs, plain])
    assert cancelled == ([runs] if status == "cancelled" != kind else [])
    found = Job.objects.get(pk=runs)
    assert (found.status, found.waiting_reason) == (status, reason.format(twin=waits))
    assert (found.unique_key, found.finished_at is None) == ("k", status in ("running", "retry"))
    if status != "running":
        assert [entry["class"] for entry in found.errors] == (["E"] if error else [])
        assert (found.error_fingerprint == "f") == (error is not None)
    assert Job.objects.get(pk=plain).waiting_reason == "why", "others go back"


def test_scope_live_meets_nobody(one: Connection) -> None:
    (job,) = add(one, options=LIVE_KEY)
    claim(one)
    assert add(one, options=LIVE_KEY) == [job]
    assert finish(one, [job], "retry") == [job]
    assert live(one) == {job: "retry"}


def test_of_two_that_go_back_together_the_first_waits(one: Connection) -> None:
    first, second = pair(one)
    claim(one)
    assert live(one) == {first: "running", second: "running"}
    outcomes = [Outcome(second, 1, "retry"), Outcome(first, 1, "snooze", started=0.0)]
    assert together(one, outcomes) == ([first, second], [second])
    assert live(one) == {first: "pending"}
    assert Job.objects.get(pk=second).waiting_reason == IN_ITS_PLACE.format(twin=first)


@pytest.mark.promise("unique-meets-twin")
def test_recovery_ends_a_job_that_meets_its_twin_and_says_so(one: Connection) -> None:
    runs, waits = pair(one)
    (plain,) = add(one)
    begin(one, plain)
    recover = "SELECT * FROM _pgqueue_recover(ARRAY[1]::bigint[], '{}', NULL, true, 'lost', 3, 100, 20)"
    ((jobs, notable, *_),) = one.execute(recover).fetchall()
    assert jobs == 2
    assert [(told["id"], told["outcome"], told["reason"]) for told in notable] == [
        (runs, "cancelled", "a job with the same unique key waits in its place")
    ]
    assert statuses(one) == {runs: "cancelled", waits: "pending", plain: "pending"}


def test_a_crash_that_meets_its_twin_is_told_as_cancelled(one: Connection) -> None:
    runs, _ = pair(one)
    assert value(one, CRASHED_SQL, runs, 1, "died", 1, 3, 20) == "cancelled"
    assert statuses(one)[runs] == "cancelled"
    again, _ = pair(one)
    assert value(one, CRASHED_SQL, again, 1, "died", 1, 1, 20) == "failed"
    (alone,) = add(one, options=json.dumps({"unique_key": "other"}))
    claim(one)
    assert value(one, CRASHED_SQL, alone, 1, "died", 1, 3, 20) == "crash"
    assert value(one, CRASHED_SQL, alone, 1, "died", 1, 3, 20) == "lost"


# ----------------------------------------------------------------------------
# The twin is in a transaction that is still open.


@pytest.mark.parametrize("call", [lambda: enqueue(index, 7), lambda: enqueue_many([index.bind(7)] * 2)])
def test_a_call_does_not_wait_without_end_for_an_open_transaction(connect: Connect, call: Any) -> None:
    with transaction.atomic():
        key = enqueue(index, 7).unique_key
        transaction.set_rollback(True)
    holder = connect(autocommit=False)
    add(holder, options=json.dumps({"unique_key": key}))
    with transaction.atomic():
        sql("SET LOCAL lock_timeout = '100ms'")
        with (
            pytest.raises(OperationalError, match="another transaction that is still open"),
            transaction.atomic(),
        ):
            call()
        assert sql("SHOW lock_timeout") == "100ms"
    holder.rollback()
    call()


@pytest.mark.parametrize(("own", "applied"), [("0", "10s"), ("2s", "2s"), ("1min", "1min")])
@pytest.mark.promise("unique-wait-ends")
def test_the_wait_for_a_unique_key_has_a_limit(own: str, applied: str) -> None:
    with transaction.atomic():
        sql(
            "CREATE FUNCTION pg_temp.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " PERFORM set_config('test.limit', current_setting('lock_timeout'), true); RETURN NEW; END $$;"
            " CREATE TRIGGER note BEFORE INSERT ON pgqueue_job_live FOR EACH ROW"
            " EXECUTE FUNCTION pg_temp.note()"
        )
        sql(f"SET LOCAL lock_timeout = '{own}'")
        for outcome in ("created", "existing"):
            assert enqueue(index, 8).enqueue_outcome == outcome
            assert sql("SELECT current_setting('test.limit')") == applied
            assert sql("SHOW lock_timeout") == own
        transaction.set_rollback(True)
