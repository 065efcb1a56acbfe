"""A waiting job is edited while a worker claims it, or while somebody cancels it."""

from __future__ import annotations

import pytest

from tests.support.jobs import Range, add, cancel, claim, edit, finish, live, statuses, value
from tests.support.sessions import Connect, start

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.promise("edit-waiting")
def test_an_edit_that_comes_while_a_job_is_claimed_changes_nothing(connect: Connect) -> None:
    claimer, other = connect(), connect(autocommit=True)
    (job,) = add(other)
    assert [row.id for row in claim(claimer)] == [job]
    edited = start(other, edit, [job], priority=5, queue_name="slow").blocked()
    claimer.commit()
    assert edited.result() == 0
    assert live(other) == {job: "running"}
    assert value(other, "SELECT priority || queue_name FROM pgqueue_job WHERE id = %s", job) == "0default"


@pytest.mark.promise("edit-seen")
def test_a_claim_skips_a_job_that_is_being_edited_and_finds_it_afterwards(connect: Connect) -> None:
    editor, claimer = connect(), connect(autocommit=True)
    (job,) = add(claimer)
    assert edit(editor, [job], queue_name="slow") == 1
    assert claim(claimer) == []
    editor.commit()
    assert claim(claimer) == []
    assert [row.id for row in claim(claimer, ranges=[Range("slow")])] == [job]


def test_an_edit_that_comes_while_a_job_is_cancelled_changes_nothing(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    (job,) = add(other)
    assert cancel(one, [job]) == 1
    edited = start(other, edit, [job], priority=5).blocked()
    one.commit()
    assert edited.result() == 0
    assert statuses(other) == {job: "cancelled"}


def test_a_cancel_that_comes_while_a_job_is_edited_takes_it_out_of_its_new_queue(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    (job,) = add(other)
    assert edit(one, [job], queue_name="slow") == 1
    cancelled = start(other, cancel, [job]).blocked()
    one.commit()
    assert cancelled.result() == 1
    assert statuses(other) == {job: "cancelled"}
    assert value(other, "SELECT queue_name FROM pgqueue_job WHERE id = %s", job) == "slow"


def test_an_edit_that_comes_while_a_job_goes_back_changes_it(connect: Connect) -> None:
    one, other = connect(), connect(autocommit=True)
    (job,) = add(other)
    claim(other)
    assert finish(one, [job], "retry") == [job]
    edited = start(other, edit, [job], priority=5).blocked()
    one.commit()
    assert edited.result() == 1
    assert [row.id for row in claim(other, lease=2, ranges=[Range(priority=5)])] == [job]


def test_a_due_job_becomes_due_at_the_moment_when_its_lock_is_granted(connect: Connect) -> None:
    """The time of an edit that has waited is not that of its beginning, which may be below the marks."""
    holder, other = connect(), connect(autocommit=True)
    (job,) = add(other)
    holder.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", (job,))
    edited = start(other, edit, [job], queue_name="slow").blocked()
    granted = value(holder, "SELECT clock_timestamp()")
    holder.commit()
    assert edited.result() == 1
    assert value(other, "SELECT run_after > %s FROM pgqueue_job_live WHERE id = %s", granted, job)


def test_edits_of_several_jobs_never_deadlock(connect: Connect) -> None:
    holder, one, other = connect(), connect(autocommit=True), connect(autocommit=True)
    jobs = add(holder, 20)
    holder.commit()
    # Both wait for the first job while they hold none of the others.
    holder.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", (jobs[0],))
    edited = start(one, edit, jobs[::-1], priority=5).blocked()
    cancelled = start(other, cancel, jobs[7:] + jobs[:7]).blocked()
    holder.rollback()
    assert (edited.result(), cancelled.result()) == (20, 20)
