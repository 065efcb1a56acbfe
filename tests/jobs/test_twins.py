"""Jobs that go back to waiting and find another one with their unique key in their place."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from django.db import OperationalError, transaction

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.jobs.finish import Outcome, finish_statement
from django_pgqueue.models import Job
from django_pgqueue.worker.isolation import CRASHED_SQL
from tests.app.unique_tasks import index
from tests.support.jobs import add, cancel, claim, finish, live, sql, statuses, value
from tests.support.sessions import Connect, Connection

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("settled_server")]

KEYED = json.dumps({"unique_key": "k"})
LIVE = json.dumps({"unique_key": "k", "unique_scope": "live"})


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


def report(one: Connection, *outcomes: Outcome) -> tuple[list[int], list[int] | None]:
    row = one.execute(*finish_statement(list(outcomes))).fetchone()
    assert row is not None
    return sorted(row[0]), row[1]


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
    accepted, cancelled = report(one, *(Outcome(job, 1, kind, **given) for job in (runs, plain)))
    assert accepted == ([plain] if status == "running" else [runs, plain])
    assert cancelled == ([runs] if status == "cancelled" != kind else None)
    found = Job.objects.get(pk=runs)
    assert (found.status, found.waiting_reason) == (status, reason.format(twin=waits))
    assert (found.unique_key, found.finished_at is None) == ("k", status in ("running", "retry"))
    if status != "running":
        assert [entry["class"] for entry in found.errors] == (["E"] if error else [])
        assert (found.error_fingerprint == "f") == (error is not None)
    assert Job.objects.get(pk=plain).waiting_reason == "why", "others go back"


def test_scope_live_meets_nobody(one: Connection) -> None:
    (job,) = add(one, options=LIVE)
    claim(one)
    assert add(one, options=LIVE) == [job]
    assert finish(one, [job], "retry") == [job]
    assert live(one) == {job: "retry"}


def test_of_two_that_go_back_together_the_first_waits(one: Connection) -> None:
    first, second = pair(one)
    claim(one)
    assert live(one) == {first: "running", second: "running"}
    assert report(one, Outcome(second, 1, "retry"), Outcome(first, 1, "snooze", started=0.0)) == (
        [first, second],
        [second],
    )
    assert live(one) == {first: "pending"}
    assert (
        Job.objects.get(pk=second).waiting_reason
        == f"job {first} with the same unique key waits in its place"
    )


def recover(one: Connection, begun: str = "'{}'") -> tuple[int, list[dict[str, Any]]]:
    row = one.execute(
        f"SELECT * FROM _pgqueue_recover(ARRAY[1]::bigint[], {begun}, NULL, true, 'lost', 3, 100, 20)"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


@pytest.mark.promise("unique-meets-twin")
def test_recovery_ends_a_job_that_meets_its_twin_and_says_so(one: Connection) -> None:
    runs, waits = pair(one)
    (plain,) = add(one)
    begin(one, plain)
    jobs, notable = recover(one)
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
