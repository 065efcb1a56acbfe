"""A task is paused and resumed while workers claim its jobs and put them aside."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.jobs import cancel, finish, live, running, value
from tests.support.sessions import Connect, Connection, behind

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


def is_due(connection: Connection, job: int) -> bool:
    return bool(
        value(connection, "SELECT run_after <= clock_timestamp() FROM pgqueue_job_live WHERE id = %s", job)
    )


@pytest.mark.promise("resume-strands-nothing")
@pytest.mark.parametrize("is_resumed", [True, False])
def test_a_worker_that_has_not_heard_of_the_end_of_a_pause_does_not_strand_its_job(
    other: Connection, is_resumed: bool
) -> None:
    pause(other, "clock_timestamp() + interval '1 hour'")
    (job,) = running(other)
    if is_resumed:
        assert resume(other)
        assert unpause(other) == 0
    else:
        other.execute("UPDATE pgqueue_pause SET until = clock_timestamp()")
    assert put_aside(other, [job]) == [job]
    assert live(other) == {job: "pending"}
    assert is_due(other, job)
    assert value(other, "SELECT waiting_reason FROM pgqueue_job WHERE id = %s", job) == ""


def test_a_resume_waits_for_a_job_that_is_being_put_aside_and_then_it_continues(
    one: Connection, other: Connection
) -> None:
    pause(other)
    (job,) = running(one)
    assert put_aside(one, [job]) == [job]
    assert behind(one, other, resume)
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
def test_the_end_of_a_pause_passes_while_a_job_is_put_aside(one: Connection, other: Connection) -> None:
    """Whoever lets jobs continue leaves the pause alone that such a report holds, and comes again."""
    pause(other, "clock_timestamp() + interval '1 hour'")
    (job,) = running(one)
    assert put_aside(one, [job]) == [job]
    # The end is not part of the key, so this does not wait for the report.
    other.execute("UPDATE pgqueue_pause SET until = clock_timestamp()")
    assert unpause(other) == 0
    assert value(other, "SELECT count(*) FROM pgqueue_pause") == 1
    one.commit()
    assert unpause(other) == 1
    assert live(other) == {job: "pending"}
    assert value(other, "SELECT count(*) FROM pgqueue_pause") == 0


@pytest.mark.promise("resume-strands-nothing")
def test_a_task_that_is_resumed_and_paused_again_keeps_its_jobs_until_the_last_resume(
    one: Connection, other: Connection
) -> None:
    pause(other)
    (job,) = running(one)
    assert put_aside(one, [job]) == [job]
    one.commit()
    assert resume(other)
    pause(other)
    assert unpause(other) == 0
    assert live(other) == {job: "blocked"}
    assert resume(other)
    assert unpause(other) == 1


def test_a_job_that_somebody_has_locked_continues_with_the_next_batch(
    one: Connection, other: Connection
) -> None:
    pause(other)
    jobs = running(other, 2)
    put_aside(other, jobs)
    assert resume(other)
    assert cancel(one, jobs[:1]) == 1
    assert unpause(other) == 1
    one.rollback()
    assert unpause(other) == 1
    assert set(live(other).values()) == {"pending"}
