from __future__ import annotations

from time import monotonic
from typing import Any

import psycopg
import pytest
from django.db import IntegrityError, connection, transaction

from django_pgqueue.models import Job
from tests.support.jobs import add, cancel, claim, finish, retry, statuses, value
from tests.support.sessions import Connect, Connection

pytestmark = pytest.mark.django_db(transaction=True)

OVER = ["done", "failed", "cancelled"]
BACK = ["retry", "snooze", "release", "unknown"]


@pytest.fixture
def one(connect: Connect) -> Connection:
    return connect(autocommit=True)


def running(one: Connection, count: int = 1, **options: Any) -> list[int]:
    jobs = add(one, count, **options)
    assert [row.id for row in claim(one, count)] == jobs
    return jobs


def job(pk: int) -> Job:
    return Job.objects.get(pk=pk)


def row(pk: int) -> dict[str, Any]:
    return dict(Job.objects.values().get(pk=pk))


@pytest.mark.parametrize("kind", OVER)
def test_a_job_that_is_over_moves_to_history_whole(one: Connection, kind: str) -> None:
    (pk,) = running(one, args='[1, "a"]', kwargs='{"k": 2}', metadata='{"m": 3}', max_attempts=4, timeout=50,
                    on_lost="fail", expires_at="2090-01-01 UTC")  # fmt: skip
    before = row(pk)
    assert finish(one, [pk], kind, result='{"answer": 42}', started=None, reason="so it is") == [pk]
    after = row(pk)
    changed = {name for name in after if after[name] != before[name]}
    # A job that was cancelled before it started made no attempt. For the others, the claim is the known
    # start.
    never_ran = {"attempts", "started_at", "last_attempted_at"} if kind == "cancelled" else set()
    failed = {"error_fingerprint"} if kind == "failed" else set()
    assert changed == {"shelf", "status", "finished_at", "result", "waiting_reason"} | never_ran | failed
    assert (after["status"], after["result"], after["waiting_reason"]) == (kind, {"answer": 42}, "so it is")
    assert after["shelf"] == (9 if kind == "failed" else 1)
    assert after["finished_at"] >= before["last_attempted_at"]
    assert (after["attempts"], after["started_at"] is None) == ((0, True) if never_ran else (1, False))


@pytest.mark.parametrize(
    ("kind", "attempts", "status"),
    [("retry", 1, "retry"), ("snooze", 0, "pending"), ("release", 0, "pending")],
)
def test_a_job_that_goes_back_waits_for_its_time(
    one: Connection, kind: str, attempts: int, status: str
) -> None:
    (pk,) = running(one)
    assert finish(one, [pk], kind, delay=60.0, reason="not yet") == [pk]
    back = job(pk)
    assert (back.shelf, back.status, back.attempts, back.waiting_reason) == (0, status, attempts, "not yet")
    assert (back.worker, back.lease, back.deadline, back.finished_at) == (None, None, None, None)
    assert value(one, "SELECT run_after - clock_timestamp() BETWEEN '50s' AND '60s' FROM pgqueue_job_live")


@pytest.mark.parametrize("end", ["release", "recovery"])
@pytest.mark.promise("requeued-behind")
def test_a_job_that_is_requeued_is_placed_behind_those_that_wait(one: Connection, end: str) -> None:
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
    for kind, attempts in (
        ("release", 0),
        ("retry", 1),
        ("snooze", 1),
        ("unknown", 1),
        ("retry", 2),
        ("release", 2),
    ):
        assert [row.id for row in claim(one)] == [pk]
        assert finish(one, [pk], kind) == [pk]
        assert job(pk).attempts == attempts
        assert job(pk).status == ("retry" if attempts else "pending")


def test_the_times_are_those_of_the_task_not_of_the_claim(one: Connection) -> None:
    (pk,) = running(one)
    first = (
        "SELECT _pgqueue_finish(ARRAY[%s::bigint], ARRAY[1::bigint], ARRAY[%s],"
        " NULL, NULL, NULL, NULL, %s, NULL, NULL, 20)"
    )
    one.execute(first, (pk, "retry", [100.0]))
    assert value(one, "SELECT clock_timestamp() - started_at BETWEEN '100s' AND '110s' FROM pgqueue_job_live")
    claim(one)
    one.execute(first, (pk, "done", [5.0]))
    done = (
        "clock_timestamp() - started_at > '100s'"
        " AND clock_timestamp() - last_attempted_at BETWEEN '5s' AND '15s'"
    )
    assert value(one, f"SELECT {done} FROM pgqueue_job WHERE id = %s", pk), "started_at is the first start"


@pytest.mark.parametrize("kind", OVER)
def test_the_duration_is_that_of_the_run_not_of_the_wait_for_the_report(one: Connection, kind: str) -> None:
    (pk,) = running(one)
    finish(one, [pk], "retry", started=monotonic() - 90, ran=80.0)
    assert job(pk).duration is None, "the job is not over"
    claim(one)
    finish(one, [pk], kind, started=monotonic() - 60, ran=2.5)
    assert job(pk).duration == 2.5
    assert value(one, "SELECT finished_at - last_attempted_at >= '60s' FROM pgqueue_job WHERE id = %s", pk)


@pytest.mark.parametrize("kind", BACK)
def test_a_job_that_ran_until_it_was_cancelled_has_a_duration(one: Connection, kind: str) -> None:
    (pk,) = running(one)
    cancel(one, [pk])
    finish(one, [pk], kind, started=monotonic() - 3, ran=2.5)
    assert (job(pk).status, job(pk).duration) == ("cancelled", 2.5)


def test_without_a_duration_the_task_ran_until_the_report(one: Connection) -> None:
    ended, never_ran, timed = running(one, 3)
    one.execute("CALL pgqueue_finish(%s, 1, 'done', started_ago => 4)", (ended,))
    one.execute("CALL pgqueue_finish(%s, 1, 'cancelled')", (never_ran,))
    one.execute("CALL pgqueue_finish(%s, 1, 'failed', started_ago => 4, duration => 1.5)", (timed,))
    assert [job(pk).duration for pk in (ended, never_ran, timed)] == [4.0, None, 1.5]


def test_a_job_that_did_not_end_by_itself_has_no_duration(one: Connection) -> None:
    waiting, lost, given_back = running(one, 3)
    finish(one, [waiting, given_back], "retry", started=monotonic() - 2, ran=1.0)
    cancel(one, [waiting])
    give_back = "SELECT _pgqueue_give_back(ARRAY[%s::bigint], '{1}', '{t}', '{f}', '{t}', '', NULL, 1, 20)"
    value(one, give_back, lost)
    claim(one)
    finish(one, [given_back], "failed")
    assert [job(pk).status for pk in (waiting, lost, given_back)] == ["cancelled", "failed", "failed"]
    assert [job(pk).duration for pk in (waiting, lost, given_back)] == [None] * 3


def test_a_retry_by_hand_forgets_the_duration(one: Connection) -> None:
    (pk,) = running(one)
    finish(one, [pk], started=monotonic() - 2, ran=1.0)
    assert retry(one, [pk]) == 1
    assert (job(pk).status, job(pk).duration) == ("pending", None)


def test_an_unknown_task_remembers_when_that_was_first_seen(one: Connection) -> None:
    (pk,) = running(one)
    seen = job(pk).started_at
    assert seen is not None
    for _ in range(2):
        assert finish(one, [pk], "unknown", delay=0.0) == [pk]
        assert job(pk).started_at == seen
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
    found = job(pk)
    assert [entry["message"] for entry in found.errors] == ["0", "1", "2", "7", "8", "9"]
    assert found.error_fingerprint == "print9"
    assert all(entry["started_at"] < entry["finished_at"] for entry in found.errors)
    assert len(found.worker_ids) == found.attempts == 10


def test_success_after_errors_keeps_them(one: Connection) -> None:
    (pk,) = running(one)
    finish(one, [pk], "retry", error=error(1), fingerprint="f")
    claim(one)
    finish(one, [pk])
    assert [entry["message"] for entry in job(pk).errors] == ["1"]
    assert job(pk).error_fingerprint == "f"


def test_one_batch_of_everything(one: Connection) -> None:
    kinds = [*OVER, *BACK] * 3
    jobs = running(one, len(kinds))
    accepted = value(
        one, "SELECT accepted FROM _pgqueue_finish(%s, %s, %s" + ", NULL" * 7 + ", 20)",
        jobs, [1] * len(jobs), kinds,
    )  # fmt: skip
    assert sorted(accepted) == jobs
    expected = {"retry": "retry", "snooze": "pending", "release": "pending", "unknown": "pending"}
    assert statuses(one) == {pk: expected.get(kind, kind) for pk, kind in zip(jobs, kinds, strict=True)}


def test_what_was_to_run_again_but_was_asked_to_cancel_is_told(one: Connection) -> None:
    """Of the others the answer says nothing more than that they were accepted."""
    kinds = [*OVER, *BACK]
    jobs = running(one, 2 * len(kinds))
    cancel(one, jobs[: len(kinds)])
    query = "SELECT cancelled FROM _pgqueue_finish(%s, %s, %s" + ", NULL" * 7 + ", 20)"
    cancelled = value(one, query, jobs, [1] * len(jobs), kinds * 2)
    assert sorted(cancelled) == jobs[len(OVER) : len(kinds)]
    assert {job(pk).status for pk in cancelled} == {"cancelled"}
    assert value(one, query, jobs, [1] * len(jobs), kinds * 2) is None


def test_arrays_that_say_nothing_may_be_left_out(one: Connection) -> None:
    jobs = running(one, 3)
    query = (
        "SELECT accepted FROM _pgqueue_finish("
        "%s, ARRAY[1, 1, 1]::bigint[], NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 20)"
    )
    assert sorted(value(one, query, jobs)) == jobs
    assert set(statuses(one).values()) == {"done"}


@pytest.mark.parametrize("kind", [*OVER, *BACK])
@pytest.mark.promise("completed-once")
def test_a_foreign_lease_is_refused_and_the_others_are_not(one: Connection, kind: str) -> None:
    mine, theirs = add(one, 2)
    claim(one, 1, lease=1)
    claim(one, 1, lease=2)
    assert finish(one, [mine, theirs, 999_999], kind, lease=1) == [mine]
    assert job(theirs).status == "running"
    assert job(theirs).lease == 2


@pytest.mark.parametrize("kind", [*OVER, *BACK])
@pytest.mark.promise("completed-once")
def test_a_second_report_is_refused(one: Connection, kind: str) -> None:
    (pk,) = running(one)
    assert finish(one, [pk], kind) == [pk]
    before = Job.objects.values().get(pk=pk)
    assert finish(one, [pk], "failed") == []
    assert Job.objects.values().get(pk=pk) == before


@pytest.mark.parametrize("kind", BACK)
def test_a_job_that_was_asked_to_stop_does_not_go_back(one: Connection, kind: str) -> None:
    (pk,) = running(one)
    assert cancel(one, [pk]) == 1
    assert finish(one, [pk], kind) == [pk]
    assert job(pk).status == "cancelled"


# -- one outcome at a time, with errors

FINISH_ONE = "CALL _pgqueue_finish_one(%s, %s, %s)"


@pytest.mark.parametrize("kind", [*OVER, *BACK])
def test_the_procedure_does_what_the_function_does(one: Connection, kind: str) -> None:
    (pk,) = running(one)
    one.execute(FINISH_ONE, (pk, 1, kind))
    expected = {"retry": "retry", "snooze": "pending", "release": "pending", "unknown": "pending"}
    assert statuses(one) == {pk: expected.get(kind, kind)}


def test_the_procedure_takes_everything_by_name(one: Connection) -> None:
    (pk,) = running(one)
    one.execute(
        "CALL _pgqueue_finish_one(%s, 1, 'failed', p_error => %s, p_fingerprint => 'f', p_started_ago => 2,"
        " p_reason => 'why', p_keep_errors => 1)", (pk, error(1)),
    )  # fmt: skip
    found = job(pk)
    assert (found.status, found.error_fingerprint, found.waiting_reason) == ("failed", "f", "why")
    assert [entry["message"] for entry in found.errors] == ["1"]


def test_the_procedure_says_what_is_wrong_by_its_code(one: Connection) -> None:
    waiting, mine = add(one, 2, priority=0)
    one.execute("UPDATE pgqueue_job_live SET run_after = '2090-01-01 UTC' WHERE id = %s", (waiting,))
    claim(one)
    before = list(Job.objects.order_by("pk").values())
    for pk, lease, state, text in (
        (999_999, 1, "23Q01", "there is no live job 999999"),
        (mine, 2, "23Q02", f"job {mine} is leased to another claim"),
        (mine, None, "23Q02", f"job {mine} is leased to another claim"),
        (waiting, 1, "23Q03", f"job {waiting} is pending, not running"),
    ):
        with pytest.raises(psycopg.IntegrityError, match=text) as caught:
            one.execute(FINISH_ONE, (pk, lease, "done"))
        assert caught.value.sqlstate == state
        assert caught.value.diag.message_hint
    assert list(Job.objects.order_by("pk").values()) == before


def test_a_job_that_is_over_is_no_live_job(one: Connection) -> None:
    (pk,) = running(one)
    assert finish(one, [pk]) == [pk]
    with pytest.raises(psycopg.IntegrityError, match="It is over, or its lease was lost") as caught:
        one.execute(FINISH_ONE, (pk, 1, "done"))
    assert caught.value.sqlstate == "23Q01"


@pytest.mark.parametrize("kind", ["", "finished", "running", "DONE", None])
def test_the_procedure_refuses_an_outcome_that_there_is_not(one: Connection, kind: str | None) -> None:
    (pk,) = running(one)
    with pytest.raises(psycopg.DataError, match="is not one of done, failed, cancelled, retry, snooze"):
        one.execute(FINISH_ONE, (pk, 1, kind))


def test_django_sees_an_integrity_error_and_the_effects_roll_back(one: Connection) -> None:
    with connection.cursor() as cursor, pytest.raises(IntegrityError), transaction.atomic():
        cursor.execute("SELECT pgqueue_enqueue('a.b'); CALL _pgqueue_finish_one(999999, 1, 'done')")
    assert not Job.objects.exists()
