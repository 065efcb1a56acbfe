"""Two sessions that want the same unique key, or a job that goes back while its key is taken."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from time import monotonic
from typing import Any

import psycopg
import pytest

from django_pgqueue.maintenance import rounds
from django_pgqueue.models import Job
from tests.support.databases import definition
from tests.support.factories import WorkerFactory
from tests.support.jobs import add, add_in_one, cancel, claim, finish, live, over, retry, statuses, value
from tests.support.sessions import Connect, Connection, behind, open_raw, start

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("settled_server")]

WAITING = {"unique_key": "k"}
LIVE = {"unique_key": "k", "unique_scope": "live"}
WINDOW = {"unique_key": "k", "unique_window": 3600}
REPLACE = {"unique_key": "k", "on_conflict": "replace"}

TURN = 4711  # the advisory lock of `patient`


def enqueue(connection: Connection, options: dict[str, Any], args: str = "[]") -> tuple[int, str]:
    (job,) = add(connection, options=json.dumps(options), args=args)
    return job, value(connection, "SELECT current_setting('pgqueue.enqueue_outcome')")


def in_one(connection: Connection, options: dict[str, Any], args: str = "[]") -> tuple[int, str]:
    """Enqueue and commit."""
    with connection.transaction():
        return enqueue(connection, options, args)


def enqueue_many(connection: Connection, keys: list[str]) -> list[str]:
    with connection.transaction():
        return add_in_one(connection, [{"unique_key": key} for key in keys], returned="outcomes")


Patient = Callable[[str], AbstractContextManager[Connection]]


@pytest.fixture
def patient(transactional_db: None) -> Iterator[Patient]:
    """Let the look for a twin wait for a lock "before" or "after" it looks, while the lock is held.

    At the end of the test, the functions are as they were.
    """
    text = definition("_pgqueue_twin")
    original = text.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")

    @contextmanager
    def hold(when: str) -> Iterator[Connection]:
        wait = f"PERFORM pg_advisory_xact_lock({TURN});"
        looks = (
            "(SELECT job.id FROM pgqueue_job_live AS job"
            " WHERE job.unique_key = p_key AND job.status <> 'running')"
        )
        body = {
            "before": f"{wait} RETURN {looks};",
            "after": f"twin := {looks}; {wait} RETURN twin;",
            "never": f"RETURN {looks};",
        }[when]
        with open_raw() as holder:
            holder.execute(f"SELECT pg_advisory_lock({TURN})")
            holder.execute("ALTER FUNCTION _pgqueue_finish_keyed SET lock_timeout = '20s'")
            holder.execute(
                "CREATE OR REPLACE FUNCTION _pgqueue_twin(p_key text, p_scope text) RETURNS bigint"
                f" LANGUAGE plpgsql VOLATILE AS $$ DECLARE twin bigint; BEGIN {body} END $$"
            )
            yield holder

    yield hold
    with open_raw() as owner:
        owner.execute("SET search_path = public, pg_temp")  # as when a migration makes it
        owner.execute(original)
        owner.execute("ALTER FUNCTION _pgqueue_finish_keyed SET lock_timeout = '50ms'")


@pytest.mark.parametrize("options", [WAITING, LIVE, WINDOW], ids=["waiting", "live", "window"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.promise("unique", "unique-waits")
def test_the_second_waits_for_the_transaction_of_the_first(
    one: Connection, other: Connection, options: dict[str, Any], end: str
) -> None:
    first, _ = enqueue(one, options)
    job, outcome = behind(one, other, in_one, options, end=end)
    assert (job == first, outcome) == ((True, "existing") if end == "commit" else (False, "created"))
    assert list(live(other)) == [job]


def test_of_two_that_come_after_a_window_one_is_created(one: Connection, other: Connection) -> None:
    before, _ = in_one(other, WINDOW)
    cancel(other, [before])
    other.execute("UPDATE pgqueue_window SET until = clock_timestamp() - interval '1 second'")
    first, outcome = enqueue(one, WINDOW)
    assert outcome == "created"
    second = start(other, in_one, WINDOW).blocked()
    cancel(one, [first])  # only the window is left
    one.commit()
    assert second.result() == (first, "existing")


def test_a_sweep_leaves_a_window_that_is_being_renewed(one: Connection, other: Connection) -> None:
    before, _ = in_one(other, WINDOW)
    cancel(other, [before])
    other.execute("UPDATE pgqueue_window SET until = clock_timestamp() - interval '1 second'")
    first, _ = enqueue(one, WINDOW)
    other.execute("SET lock_timeout = '1s'")

    def sweep() -> Any:
        day = timedelta(days=1)
        parameters = {
            "statistics": day, "runs": day, "groups": 10, "batch": 10, "crash_limit": 3, "keep_errors": 20,
            "received": day,
        }  # fmt: skip
        row = other.execute(rounds._SWEEP_SQL, parameters).fetchone()
        assert row is not None
        return row[0]

    assert sweep() == 0
    one.commit()
    assert in_one(other, WINDOW) == (first, "existing")
    other.execute("UPDATE pgqueue_window SET until = clock_timestamp() - interval '1 second'")
    assert sweep() == 1
    assert value(other, "SELECT count(*) FROM pgqueue_window") == 0


@pytest.mark.parametrize("gone", ["claimed", "cancelled"])
def test_a_twin_that_goes_between_the_insert_and_the_look_frees_the_key(
    connect: Connect, patient: Patient, gone: str
) -> None:
    one, other = connect(autocommit=True), connect(autocommit=True)
    first, _ = in_one(one, WAITING)
    with patient("before") as holder:
        second = start(other, in_one, WAITING).blocked()
        if gone == "claimed":
            assert [row.id for row in claim(one)] == [first]
        else:
            assert cancel(one, [first]) == 1
        holder.execute(f"SELECT pg_advisory_unlock({TURN})")
        job, outcome = second.result()
    assert (job != first, outcome) == (True, "created")
    assert live(one)[job] == "pending"


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, "created"), ({"unique_scope": "live"}, "existing")],
    ids=["waiting", "live"],
)
def test_a_replace_that_meets_a_claim_leaves_the_job_that_runs(
    one: Connection, other: Connection, options: dict[str, Any], expected: str
) -> None:
    first, _ = in_one(other, {**REPLACE, **options}, '["old"]')
    assert [row.id for row in claim(one)] == [first]
    job, outcome = behind(one, other, in_one, {**REPLACE, **options}, '["new"]')
    assert (outcome, job == first) == (expected, expected == "existing")
    assert Job.objects.get(pk=first).args == ["old"]
    assert live(other)[first] == "running"


def test_a_twin_that_starts_between_the_look_and_the_replace_frees_the_key(
    connect: Connect, patient: Patient
) -> None:
    one, other = connect(autocommit=True), connect(autocommit=True)
    first, _ = in_one(one, REPLACE, '["old"]')
    with patient("after") as holder:
        second = start(other, in_one, REPLACE, '["new"]').blocked()
        assert [row.id for row in claim(one)] == [first]
        holder.execute(f"SELECT pg_advisory_unlock({TURN})")
        job, outcome = second.result()
    assert (job != first, outcome) == (True, "created")
    assert Job.objects.get(pk=first).args == ["old"]
    assert Job.objects.get(pk=job).args == ["new"]


@pytest.mark.promise("unique-replace-locks")
def test_a_claim_that_meets_a_replace_leaves_it_until_the_commit(one: Connection, other: Connection) -> None:
    first, _ = in_one(other, REPLACE, '["old"]')
    assert enqueue(one, REPLACE, '["new"]') == (first, "replaced")
    assert claim(other) == []
    one.commit()
    assert [row.id for row in claim(other)] == [first]
    assert Job.objects.get(pk=first).args == ["new"]


def test_a_replace_that_has_waited_is_not_due_in_the_past(one: Connection, other: Connection) -> None:
    """Workers do not expect jobs that become claimable below their marks."""
    first, _ = enqueue(one, REPLACE, '["old"]')
    second = start(other, in_one, REPLACE, '["new"]').blocked()
    moment = value(one, "SELECT clock_timestamp()")
    one.commit()
    assert second.result() == (first, "replaced")
    assert Job.objects.get(pk=first).run_after >= moment


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_an_enqueue_waits_for_a_job_that_is_going_back(one: Connection, other: Connection, end: str) -> None:
    first, _ = in_one(other, WAITING)
    claim(other)
    assert finish(one, [first], "retry") == [first]
    job, outcome = behind(one, other, in_one, WAITING, end=end)
    assert (job == first, outcome) == ((True, "existing") if end == "commit" else (False, "created"))


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_job_that_goes_back_does_not_wait_for_an_open_enqueue(connect: Connect, end: str) -> None:
    one = connect()
    other = connect(autocommit=True, options="-c lock_timeout=0 -c statement_timeout=20s")
    first, _ = in_one(other, WAITING)
    claim(other)
    second, outcome = enqueue(one, WAITING)
    assert outcome == "created"
    with pytest.raises(psycopg.errors.LockNotAvailable):  # the worker reports it again later
        finish(other, [first], "retry")
    assert live(other) == {first: "running"}
    getattr(one, end)()
    assert finish(other, [first], "retry") == [first]
    expected = {first: "cancelled", second: "pending"} if end == "commit" else {first: "retry"}
    assert statuses(other) == expected


def test_a_twin_that_comes_between_the_look_and_the_update_does_not_refuse_the_batch(
    connect: Connect, patient: Patient
) -> None:
    one, other = connect(autocommit=True), connect(autocommit=True)
    first, _ = in_one(one, WAITING)
    (plain,) = add(one)
    claim(one)
    with patient("after") as holder:
        finished = start(other, finish, [first, plain], "retry").blocked()
        # Not with pgqueue_enqueue, which would look for a twin itself.
        second = value(
            one,
            "INSERT INTO pgqueue_job (task_path, unique_key, unique_scope) VALUES ('a.b', 'k', 'waiting')"
            " RETURNING id",
        )
        holder.execute(f"SELECT pg_advisory_unlock({TURN})")
        assert finished.result() == [first, plain]
    assert statuses(one) == {first: "cancelled", plain: "retry", second: "pending"}


def recover(connection: Connection) -> int:
    query = "SELECT jobs FROM _pgqueue_recover(ARRAY[1]::bigint[], NULL, NULL, false, 'lost', 9, 100, 20)"
    return int(value(connection, query))


def test_recovery_leaves_a_job_whose_twin_is_in_an_open_transaction_for_later(connect: Connect) -> None:
    one = connect()
    other = connect(autocommit=True, options="-c lock_timeout=0 -c statement_timeout=20s")
    first, _ = in_one(other, WAITING)
    plain = add(other, 2)
    claim(other)
    WorkerFactory.create(id=1, started_jobs=[first, *plain])
    second, _ = enqueue(one, WAITING)
    assert recover(other) == 2
    assert live(other) == {first: "running", **dict.fromkeys(plain, "pending")}
    assert recover(other) == 0
    one.commit()
    lost = dict(Job.objects.values_list("pk", "lost_in_a_row"))
    assert lost[first] == 0, "not counted until it is requeued"
    assert recover(other) == 1
    assert statuses(other)[first] == "cancelled"
    assert statuses(other)[second] == "pending"


def test_recovery_waits_for_at_most_ten_jobs_in_a_round(
    one: Connection, other: Connection, patient: Patient
) -> None:
    """The supervisor must send heartbeats in the meantime. 60 jobs would take six seconds."""
    keys = [f"k{number}" for number in range(60)]
    enqueue_many(other, keys)
    other.execute("UPDATE pgqueue_job_live SET status = 'running', attempts = 1, worker = 1, lease = 1")
    for key in keys:
        enqueue(one, {"unique_key": key})
    with patient("never"):
        other.execute("ALTER FUNCTION _pgqueue_finish_keyed SET lock_timeout = '100ms'")
        began = monotonic()
        assert recover(other) == 0
        assert 1 <= monotonic() - began < 5
    one.commit()
    assert recover(other) == 60
    assert set(statuses(other).values()) == {"cancelled", "pending"}


@pytest.mark.promise("unique-no-deadlock")
def test_two_bulks_with_the_same_keys_in_opposite_orders_never_deadlock(connect: Connect) -> None:
    """Both hold a key and wait for the one in the middle. In the order given, each would want the other's."""
    holder = connect()
    one, other = connect(autocommit=True), connect(autocommit=True)
    enqueue(holder, {"unique_key": "m"})
    first = start(one, enqueue_many, ["a", "m", "b"]).blocked()
    second = start(other, enqueue_many, ["b", "m", "a"]).blocked()
    holder.rollback()
    assert first.result() == ["created"] * 3
    assert second.result() == ["existing"] * 3
    assert len(live(one)) == 3


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_retry_by_hand_waits_for_an_open_enqueue(one: Connection, other: Connection, end: str) -> None:
    (past,) = over(other, 9, "1 hour", status="failed")
    keyed = value(
        other,
        "INSERT INTO pgqueue_job (shelf, status, task_path, finished_at, unique_key, unique_scope)"
        " VALUES (9, 'failed', 'a.b', clock_timestamp(), 'k', 'live') RETURNING id",
    )
    enqueue(one, LIVE)
    assert behind(one, other, retry, [past, keyed], end=end) == (1 if end == "commit" else 2)
    assert statuses(other)[past] == "pending"
    assert statuses(other)[keyed] == ("failed" if end == "commit" else "pending")


def test_of_two_retries_one_finds_nothing_even_if_the_job_is_over_again(
    one: Connection, other: Connection
) -> None:
    """Without a lock on the row of history, the second would insert the job on a second shelf."""
    (past,) = over(other, 9, "1 hour", status="failed")
    assert retry(one, [past]) == 1
    retried = start(other, retry, [past]).blocked()
    claim(one)
    assert finish(one, [past]) == [past]
    one.commit()
    assert retried.result() == 0
    assert list(Job.objects.values_list("pk", "status")) == [(past, "done")]
