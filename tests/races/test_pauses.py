"""A task is paused and resumed while workers claim its jobs and put them aside."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.jobs import add, cancel, claim, finish, live, statuses, value
from tests.support.sessions import Connect, Connection, start

pytestmark = pytest.mark.django_db(transaction=True)

TASK = "tests.app.tasks.noop"


def pause(connection: Connection, until: str = "NULL") -> None:
    connection.execute(f"SELECT pgqueue_pause('task', '{TASK}', until => {until})")


def resume(connection: Connection) -> bool:
    return bool(value(connection, f"SELECT pgqueue_resume('task', '{TASK}')"))


def put_aside(connection: Connection, jobs: Sequence[int]) -> list[int]:
    """Report as a worker does that believes that the task is paused."""
    return finish(connection, jobs, "paused", reason="paused")


def unpause(connection: Connection) -> int | None:
    return value(connection, "SELECT _pgqueue_unpause(100)")  # type: ignore[no-any-return]


def running(connection: Connection, count: int = 1) -> list[int]:
    add(connection, count)
    jobs = [row.id for row in claim(connection, count)]
    connection.commit()
    return jobs


def is_due(connection: Connection, job: int) -> bool:
    return bool(
        value(connection, "SELECT run_after <= clock_timestamp() FROM pgqueue_job_live WHERE id = %s", job)
    )


@pytest.mark.promise("resume-strands-nothing")
def test_a_worker_that_has_not_heard_of_the_resume_does_not_strand_its_job(connect: Connect) -> None:
    one = connect(autocommit=True)
    pause(one)
    (job,) = running(one)
    assert resume(one)
    assert unpause(one) == 0
    assert put_aside(one, [job]) == [job]
    assert live(one) == {job: "pending"}
    assert is_due(one, job)
    assert value(one, "SELECT waiting_reason FROM pgqueue_job WHERE id = %s", job) == ""


def test_a_resume_waits_for_a_job_that_is_being_put_aside_and_then_it_continues(connect: Connect) -> None:
    worker, other = connect(), connect(autocommit=True)
    pause(other)
    (job,) = running(worker)
    assert put_aside(worker, [job]) == [job]
    resumed = start(other, resume).blocked()
    worker.commit()
    assert resumed.result()
    assert live(other) == {job: "blocked"}
    assert unpause(other) == 1
    assert live(other) == {job: "pending"}


def test_a_report_during_a_resume_waits_for_nobody_and_strands_nothing(connect: Connect) -> None:
    """It is not known whether the resume commits, so the job is looked at again in a second."""
    for end in ("commit", "rollback"):
        other, worker = connect(), connect(autocommit=True)
        pause(other)
        other.commit()
        (job,) = running(worker)
        assert resume(other)
        assert put_aside(worker, [job]) == [job]
        assert live(worker) == {job: "pending"}
        assert not is_due(worker, job)
        getattr(other, end)()
        assert cancel(worker, [job]) == 1


@pytest.mark.promise("pause-ends")
def test_the_end_of_a_pause_passes_while_a_job_is_put_aside(connect: Connect) -> None:
    """Whoever lets jobs continue leaves the pause alone that such a report holds, and comes again."""
    worker, other = connect(), connect(autocommit=True)
    pause(other, "clock_timestamp() + interval '1 hour'")
    (job,) = running(worker)
    assert put_aside(worker, [job]) == [job]
    # The end is not part of the key, so this does not wait for the report.
    other.execute("UPDATE pgqueue_pause SET until = clock_timestamp()")
    assert unpause(other) == 0
    assert value(other, "SELECT count(*) FROM pgqueue_pause") == 1
    worker.commit()
    assert unpause(other) == 1
    assert live(other) == {job: "pending"}
    assert value(other, "SELECT count(*) FROM pgqueue_pause") == 0


def test_after_the_end_of_a_pause_nothing_is_put_aside(connect: Connect) -> None:
    one = connect(autocommit=True)
    pause(one, "clock_timestamp() + interval '1 hour'")
    (job,) = running(one)
    one.execute("UPDATE pgqueue_pause SET until = clock_timestamp()")
    assert put_aside(one, [job]) == [job]
    assert live(one) == {job: "pending"}


@pytest.mark.promise("resume-strands-nothing")
def test_a_task_that_is_resumed_and_paused_again_keeps_its_jobs_until_the_last_resume(
    connect: Connect,
) -> None:
    worker, other = connect(), connect(autocommit=True)
    pause(other)
    (job,) = running(worker)
    assert put_aside(worker, [job]) == [job]
    worker.commit()
    assert resume(other)
    pause(other)
    assert unpause(other) == 0
    assert live(other) == {job: "blocked"}
    assert resume(other)
    assert unpause(other) == 1


def test_two_sessions_do_not_mix_the_jobs_that_continue(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    pause(other)
    jobs = running(one, 2)
    put_aside(one, jobs)
    one.commit()
    assert resume(other)
    assert unpause(one) == 2
    assert unpause(other) is None
    one.commit()
    assert unpause(other) == 0


def test_a_job_that_somebody_has_locked_continues_with_the_next_batch(connect: Connect) -> None:
    holder, other = connect(), connect(autocommit=True)
    pause(other)
    jobs = running(other, 2)
    put_aside(other, jobs)
    assert resume(other)
    assert cancel(holder, jobs[:1]) == 1
    assert unpause(other) == 1
    holder.rollback()
    assert unpause(other) == 1
    assert set(live(other).values()) == {"pending"}


def test_a_cancel_while_a_job_is_put_aside_ends_it(connect: Connect) -> None:
    worker, other = connect(), connect(autocommit=True)
    pause(other)
    first, second = running(worker, 2)
    assert cancel(other, [first]) == 1
    assert put_aside(worker, [first, second]) == [first, second]
    cancelled = start(other, cancel, [second]).blocked()
    worker.commit()
    assert cancelled.result() == 1
    assert statuses(other) == {first: "cancelled", second: "cancelled"}
    assert value(other, "SELECT max(attempts) FROM pgqueue_job") == 0


def test_a_claim_that_comes_before_the_pause_is_committed_runs_its_job(connect: Connect) -> None:
    pauser, worker = connect(), connect(autocommit=True)
    (job,) = add(worker)
    pause(pauser)
    assert [row.id for row in claim(worker)] == [job]
    pauser.commit()
    assert finish(worker, [job]) == [job]
    assert statuses(worker) == {job: "done"}


def test_two_pauses_of_one_task_at_once_are_one(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    pause(one)
    second = start(other, pause, "clock_timestamp() + interval '1 hour'").blocked()
    one.commit()
    second.result()
    assert value(other, "SELECT count(*) FROM pgqueue_pause") == 1
    assert value(other, "SELECT until IS NOT NULL FROM pgqueue_pause")
