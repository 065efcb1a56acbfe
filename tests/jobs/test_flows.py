"""Jobs that wait for jobs and batches: what starts them, and what becomes of them if a parent fails."""

from __future__ import annotations

import json
from datetime import timedelta

import psycopg
import pytest

from django_pgqueue.models import Edge, Job, JobBatch, Queue, Tally
from tests.support.jobs import (  # fmt: skip
    add,
    add_in_one,
    after,
    batch_call,
    cancel,
    claim,
    close,
    counts,
    edges,
    edit,
    finish,
    maintenance,
    members,
    open_batch,
    outcome,
    reason,
    retry,
    status,
    value,
)
from tests.support.limits import set_limit
from tests.support.sessions import Connect, Connection

pytestmark = pytest.mark.django_db(transaction=True)

POLICIES = ["hold", "cancel", "run"]


def end(one: Connection, *jobs: int, kind: str = "done") -> None:
    """Let jobs run, and end."""
    one.execute(
        "UPDATE pgqueue_job_live SET status = 'running', lease = 1, attempts = attempts + 1"
        " WHERE id = ANY (%s)",
        (list(jobs),),
    )
    assert finish(one, jobs, kind) == sorted(jobs)


@pytest.mark.promise("after")
def test_a_job_starts_when_all_of_its_parents_are_done(one: Connection) -> None:
    parents = add(one, 3)
    child = after(one, [*parents, parents[0]])
    assert reason(one, child) == "waits for jobs {}, {}, {}".format(*parents)
    end(one, parents[1])
    end(one, parents[0])
    assert status(one, child) == "blocked"
    end(one, parents[2])
    assert (status(one, child), reason(one, child), edges(one)) == ("pending", "", [])
    assert Job.objects.get(pk=child).parent_ids == parents
    assert [row.id for row in claim(one)] == [child]
    late = after(one, parents)
    assert (status(one, late), edges(one)) == ("pending", []), "there is nothing to wait for"
    assert Job.objects.get(pk=late).parent_ids == parents


def test_what_a_job_waits_for(one: Connection) -> None:
    batch, _ = open_batch(one, 1)
    jobs = add(one, 7)
    assert reason(one, after(one, jobs[:1])) == f"waits for job {jobs[0]}"
    child = after(one, [*jobs, batch], "run")
    names = ", ".join(map(str, jobs[:5]))
    assert reason(one, child) == f"waits for jobs {names} and 2 more, and waits for jobs of batch {batch}"
    claim(one, 1)
    rows = one.execute("SELECT * FROM pgqueue_parents(%s)", (child,)).fetchall()
    assert sorted(rows)[0] == (batch, True, "", "running", "run")
    assert (jobs[0], False, "tests.app.tasks.noop", "pending", "run") in rows
    assert Edge.objects.get(parent_id=batch, child_id=child).if_failed == "run"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["failed", "cancelled"])
@pytest.mark.parametrize("if_failed", POLICIES)
@pytest.mark.parametrize("of", ["job", "batch"])
@pytest.mark.promise("if-failed")
def test_what_becomes_of_a_child_if_its_parent_does_not_succeed(
    one: Connection, when: str, kind: str, if_failed: str, of: str
) -> None:
    """It does not matter if the parent ends before or after the enqueue."""
    parent, (job,) = open_batch(one, 1)
    if of == "job":
        parent = job
    if when == "before":
        end(one, job, kind=kind)
    child = after(one, [parent], if_failed)
    grandchild = after(one, [child])
    if when == "after":
        end(one, job, kind=kind)
    held = (if_failed, kind) == ("hold", "failed")
    then = "pending" if if_failed == "run" else "blocked" if held else "cancelled"
    assert status(one, child) == then
    assert status(one, grandchild) == ("cancelled" if then == "cancelled" else "blocked")
    if then == "blocked":
        assert retry(one, [job]) == 1
        assert status(one, child) == "blocked"
        end(one, job)
        assert status(one, child) == "pending"
    assert maintenance(one) == (0, 0)


@pytest.mark.parametrize("kept", [True, False])
def test_a_failed_parent_that_is_not_kept_cannot_be_retried(one: Connection, kept: bool) -> None:
    Queue.objects.create(name="short", failed_retention=timedelta(days=1) if kept else timedelta(0))
    job, other = add(one, 2, queue_name="short")
    batch, _ = open_batch(one, is_open=True)
    (member,) = add(one, queue_name="short", options=json.dumps({"batch": batch}))
    close(one, batch)
    children = after(one, [job]), after(one, [batch]), after(one, [other], "run")
    end(one, job, member, other, kind="failed")
    held = "blocked" if kept else "cancelled"
    assert status(one, *children) == f"{held} {held} pending"
    assert maintenance(one) == (0, 0)


def test_what_holds_is_cancelled_when_retention_deletes_the_failed_parent(one: Connection) -> None:
    job, other = add(one, 2)
    child = after(one, [job, other])
    end(one, job, kind="failed")
    one.execute("SET session_replication_role = replica")  # a guard refuses to change a finished job
    one.execute("UPDATE pgqueue_job_kept SET finished_at = finished_at - interval '31 days'")
    one.execute("SET session_replication_role = origin")
    assert value(one, "SELECT _pgqueue_sweep(100)") == 1
    assert status(one, job, child) == "gone cancelled"
    assert reason(one, child) == f"job {job}, after which it was enqueued, failed"


def test_an_old_batch_is_deleted_with_what_still_holds(one: Connection) -> None:
    batch, jobs = open_batch(one, 2)
    child = after(one, [batch])
    end(one, *jobs, kind="failed")
    sweep = "SELECT _pgqueue_sweep_batches(100)"
    assert value(one, sweep) == 0
    one.execute("UPDATE pgqueue_batch SET finished_at = finished_at - interval '31 days'")
    retry(one, jobs[:1])
    assert value(one, sweep) == 0, "a member lives"
    end(one, *jobs[:1])
    one.execute("UPDATE pgqueue_batch SET finished_at = finished_at - interval '31 days'")
    assert value(one, sweep) == 1
    assert (status(one, child), edges(one)) == ("cancelled", [])
    assert not JobBatch.objects.exists()
    assert not Tally.objects.exists()
    assert retry(one, jobs[1:]) == 1
    end(one, *jobs[1:])
    assert not Tally.objects.exists()


@pytest.mark.promise("cancel-goes-on")
def test_cancels_cascade_through_levels_and_batches(one: Connection) -> None:
    (first,) = add(one)
    second = after(one, [first])
    batch, _ = open_batch(one, is_open=True)
    member = after(one, [second], batch=batch)
    close(one, batch)
    last, always = after(one, [batch]), after(one, [batch], "run")
    assert cancel(one, [first]) == 1
    assert status(one, second, member, last, always) == "cancelled cancelled cancelled pending"
    assert outcome(one, batch) == "cancelled"
    assert reason(one, second) == f"job {first}, after which it was enqueued, was cancelled"
    assert reason(one, last) == f"batch {batch}, after which it was enqueued, was cancelled"


def test_two_hundred_levels(one: Connection) -> None:
    jobs = add_in_one(one, [{}, *({"after_items": [place]} for place in range(1, 200))])
    assert cancel(one, jobs[:1]) == 1
    assert value(one, "SELECT count(*) FROM pgqueue_job WHERE status = 'cancelled'") == 200


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(("kind", "then"), [("done", "pending"), ("failed", "cancelled")])
def test_of_many_children_some_are_left_to_upkeep(one: Connection, kind: str, then: str, kept: bool) -> None:
    """A parent without history has not been deleted by hand, although maintenance comes late."""
    if not kept:
        Queue.objects.create(name="short", retention=timedelta(0), failed_retention=timedelta(0))
    (job,) = add(one, queue_name="short")
    add_in_one(one, [{"after": [job], "if_failed": "cancel"}] * 1200)
    end(one, job, kind=kind)
    children = Job.objects.exclude(pk=job)
    assert children.filter(status=then).count() == 1000
    while maintenance(one) != (0, 0):
        pass
    assert children.filter(status=then).count() == 1200
    reason = f"job {job}, after which it was enqueued, failed" if kind == "failed" else ""
    assert set(children.values_list("waiting_reason", flat=True)) == {reason}
    assert edges(one) == []


def test_a_chain_in_one_statement(one: Connection) -> None:
    (outside,) = add(one)
    chain = add_in_one(
        one, [{"after": [outside]}, {"after_items": [1]}, {"after_items": [1, 2], "if_failed": "run"}, {}]
    )
    assert status(one, *chain) == "blocked blocked blocked pending"
    assert Job.objects.get(pk=chain[2]).parent_ids == chain[:2]
    for job, then in [(outside, "pending blocked blocked"), (chain[0], "done pending blocked"),
                      (chain[1], "done done pending")]:  # fmt: skip
        end(one, job)
        assert status(one, *chain[:3]) == then


def test_a_batch_of_a_call_takes_the_place_of_that_of_the_statement(one: Connection) -> None:
    (batch, _), (other, _) = open_batch(one, is_open=True), open_batch(one, is_open=True)
    add_in_one(one, [{}, {"batch": other}], batch)
    assert (counts(one, batch)[0], counts(one, other)[0]) == (1, 1)


def test_a_batch(one: Connection) -> None:
    batch, jobs = open_batch(one, 3)
    callback, always = after(one, [batch]), after(one, [batch], "run")
    end(one, *jobs[:2])
    end(one, jobs[2], kind="failed")
    assert (outcome(one, batch), counts(one, batch)) == ("failed", (3, 0, 2, 1, 0))
    assert status(one, callback, always) == "blocked pending"
    end(one, always)
    assert batch_call(one, "retry", batch) == 1
    assert (outcome(one, batch), counts(one, batch)) == ("", (3, 1, 2, 0, 0))
    end(one, jobs[2])
    assert (outcome(one, batch), counts(one, batch)) == ("done", (3, 0, 3, 0, 0))
    assert status(one, callback, always) == "pending done", "it runs once"
    assert JobBatch.objects.get().is_finished


@pytest.mark.parametrize("count", [0, 1])
def test_a_batch_ends_when_it_is_closed(one: Connection, count: int) -> None:
    batch, jobs = open_batch(one, count, is_open=True)
    callback = after(one, [batch])
    if jobs:
        end(one, *jobs)
    assert maintenance(one) == (0, 0)
    assert (outcome(one, batch), status(one, callback)) == ("", "blocked")
    assert (close(one, batch), close(one, batch)) == (True, False)
    assert (outcome(one, batch), status(one, callback)) == ("done", "pending")


def test_a_batch_is_cancelled(one: Connection) -> None:
    batch, jobs = open_batch(one, 3, is_open=True)
    callback = after(one, [batch])
    claim(one, 1)
    assert batch_call(one, "cancel", batch) == 3
    assert status(one, *jobs, callback) == "running cancelled cancelled blocked"
    finish(one, jobs[:1], "failed")
    assert (outcome(one, batch), counts(one, batch)) == ("cancelled", (3, 0, 0, 1, 2))
    assert status(one, callback) == "cancelled"
    assert batch_call(one, "cancel", batch) == 0
    assert batch_call(one, "retry", batch) == 1
    assert outcome(one, batch) == ""


@pytest.mark.parametrize("deleted", [3, 1])
@pytest.mark.parametrize("how", ["DELETE FROM pgqueue_job WHERE id = ANY (%s)", "by the ORM"])
@pytest.mark.promise("deleted-is-cancelled")
def test_a_batch_of_which_members_were_deleted_by_hand_is_cancelled(
    one: Connection, deleted: int, how: str
) -> None:
    batch, jobs = open_batch(one, 3)
    children = [after(one, [batch], policy) for policy in POLICIES]
    if how == "by the ORM":
        rows = Job.objects.filter(pk__in=jobs[:deleted])
        rows._raw_delete(rows.db)  # delete() itself is refused
    else:
        one.execute(how, (jobs[:deleted],))
    assert outcome(one, batch) == ""
    if deleted < 3:
        end(one, *jobs[deleted:])
    else:
        assert maintenance(one) == (1, 0)
    assert (outcome(one, batch), counts(one, batch)) == ("cancelled", (3, 0, 3 - deleted, 0, deleted))
    assert status(one, *children) == "cancelled cancelled pending"
    assert reason(one, children[0]) == f"batch {batch}, after which it was enqueued, was cancelled"


def test_a_member_that_was_deleted_stays_cancelled_when_others_are_retried(one: Connection) -> None:
    batch, jobs = open_batch(one, 2)
    one.execute("DELETE FROM pgqueue_job_live WHERE id = %s", (jobs[0],))
    end(one, jobs[1], kind="failed")
    assert (outcome(one, batch), counts(one, batch)) == ("failed", (2, 0, 0, 1, 1))
    assert batch_call(one, "retry", batch) == 1
    end(one, jobs[1])
    assert (outcome(one, batch), counts(one, batch)) == ("cancelled", (2, 0, 1, 0, 1))


@pytest.mark.parametrize("kind", ["live", "failed", "batch"])
@pytest.mark.parametrize("if_failed", POLICIES)
@pytest.mark.promise("deleted-is-cancelled")
def test_a_parent_that_was_deleted_by_hand_is_one_that_was_cancelled(
    one: Connection, kind: str, if_failed: str
) -> None:
    batch, (job,) = open_batch(one, 1)
    parent = batch if kind == "batch" else job
    child = after(one, [parent], if_failed)
    if kind == "failed" and if_failed == "hold":
        end(one, job, kind="failed")
        assert status(one, child) == "blocked"
    one.execute("DELETE FROM pgqueue_job WHERE id = %s", (parent,))
    one.execute("DELETE FROM pgqueue_batch WHERE id = %s", (parent,))
    maintenance(one)
    if if_failed == "run":
        assert (status(one, child), edges(one)) == ("pending", [])
    else:
        assert (status(one, child), edges(one)) == ("cancelled", [])
        assert reason(one, child) == f"job or batch {parent}, after which it was enqueued, was deleted"


def test_retention_does_not_delete_by_hand(one: Connection) -> None:
    """Members whose history is off, or over, have ended as they have."""
    Queue.objects.create(name="short", retention=timedelta(0))
    batch, jobs = open_batch(one, 2, is_open=True)
    unkept = add(one, 2, queue_name="short", options=json.dumps({"batch": batch}))
    child = after(one, [batch])
    close(one, batch)
    end(one, *jobs, unkept[0])
    for shelf in range(1, 9):
        one.execute(f"TRUNCATE pgqueue_job_past_{shelf}")
    end(one, unkept[1])
    assert (outcome(one, batch), counts(one, batch)) == ("done", (4, 0, 4, 0, 0))
    assert status(one, child) == "pending"


def test_an_edit_of_a_job_that_waits_holds_when_it_may_run(one: Connection) -> None:
    (job,) = add(one)
    child = after(one, [job])
    assert edit(one, [child], priority=7, run_after="2090-01-01 UTC") == 1
    assert (status(one, child), reason(one, child)) == ("blocked", f"waits for job {job}")
    end(one, job)
    row = Job.objects.get(pk=child)
    assert (row.status, row.priority, row.run_after.year) == ("pending", 7, 2090)


def test_a_job_that_was_cancelled_while_it_waited_waits_again_when_it_is_retried(one: Connection) -> None:
    jobs = add(one, 2)
    child = after(one, jobs)
    cancel(one, [child])
    end(one, jobs[0])
    assert retry(one, [child]) == 1
    assert (status(one, child), reason(one, child)) == ("blocked", f"waits for job {jobs[1]}")
    end(one, jobs[1])
    assert status(one, child) == "pending"
    end(one, child, kind="failed")
    assert (retry(one, [child]), status(one, child)) == (1, "pending")


def test_a_child_with_a_concurrency_key_joins_the_line_when_it_may_run(one: Connection) -> None:
    set_limit(one, "tests.app.tasks.noop", 1)
    (job,) = add(one)
    child = after(one, [job], limit_key="key")
    (rival,) = add(one, options='{"limit_key": "key"}')
    assert value(one, "SELECT wait_position FROM pgqueue_job WHERE id = %s", child) is None
    end(one, job)
    assert value(one, "SELECT wait_position FROM pgqueue_job WHERE id = %s", child) > rival
    claim(one)
    assert status(one, rival, child) == "running blocked"
    finish(one, [rival])
    assert status(one, child) == "pending"


def test_the_end_of_a_pause_does_not_start_a_job_that_waits_for_another(one: Connection) -> None:
    (job,) = add(one)
    child = after(one, [job])
    one.execute("SELECT pgqueue_pause('task', 'tests.app.tasks.noop')")
    one.execute("SELECT pgqueue_resume('task', 'tests.app.tasks.noop')")
    assert value(one, "SELECT _pgqueue_unpause(100)") == 0
    assert status(one, child) == "blocked"


def test_a_job_that_waits_for_another_is_replaced_where_it_is(one: Connection) -> None:
    (parent,) = add(one)
    twin = after(one, [parent], unique_key="k")
    replaced = add(one, options='{"unique_key": "k", "on_conflict": "replace"}', priority=5)
    assert (replaced, status(one, twin), reason(one, twin)) == ([twin], "blocked", f"waits for job {parent}")
    end(one, parent)
    assert status(one, twin) == "pending"


def test_what_does_not_exist_is_refused(one: Connection) -> None:
    for call in (
        lambda: after(one, [999_999]), lambda: members(one, 999_999), lambda: close(one, 999_999),
        lambda: batch_call(one, "cancel", 999_999), lambda: batch_call(one, "retry", 999_999),
        lambda: add_in_one(one, [{}, {"after": [999_999]}]),
    ):  # fmt: skip
        with pytest.raises(psycopg.IntegrityError, match=r"there is no .*batch 999999") as refusal:
            call()
        assert refusal.value.sqlstate == "23Q06"
    assert not Job.objects.exists()
    with pytest.raises(psycopg.IntegrityError, match="item 1: there is no job"):
        add_in_one(one, [{}, {"after": [999_999]}])
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="item 1: after_items must name earlier"):
        add_in_one(one, [{}, {"after_items": [2]}])
    with pytest.raises(psycopg.errors.InvalidParameterValue, match='item 1: tenant "a:b" must be'):
        add_in_one(one, [{}, {"tenant": "a:b"}])


@pytest.mark.promise("batch-finished")
def test_members_of_a_batch_that_is_over_are_refused(one: Connection) -> None:
    batch, _ = open_batch(one)
    with pytest.raises(psycopg.IntegrityError, match=f"batch {batch} is finished") as refusal:
        members(one, batch)
    assert refusal.value.sqlstate == "23Q05"
    assert "It has ended as done at" in str(refusal.value.diag.message_detail)


def test_a_rollback_to_a_savepoint_takes_the_edges_with_it(connect: Connect) -> None:
    one = connect()
    jobs = add(one, 2)
    one.commit()
    one.execute("SAVEPOINT here")
    after(one, jobs[:1])
    one.execute("ROLLBACK TO here")
    child = after(one, jobs[1:])
    one.commit()
    assert edges(one) == [(jobs[1], child)]
    end(one, jobs[1])
    assert status(one, child) == "pending"


@pytest.mark.parametrize(("how", "kind"), [("crash", "failed"), ("cancel", "cancelled"), ("call", "done")])
def test_every_end_of_a_job_is_settled(one: Connection, how: str, kind: str) -> None:
    (job,) = add(one)
    child, always = after(one, [job], "cancel"), after(one, [job], "run")
    claim(one, 1)
    if how == "crash":
        given_back = "ARRAY[%s::bigint], ARRAY[1::bigint], ARRAY[true], ARRAY[false], ARRAY[true]"
        one.execute(f"SELECT _pgqueue_give_back({given_back}, 'lost', NULL, 1, 20)", (job,))
    elif how == "cancel":
        assert cancel(one, [job]) == 1
        finish(one, [job], "retry")
    else:
        one.execute("CALL pgqueue_finish(%s, 1, 'done')", (job,))
    assert status(one, job) == kind
    assert status(one, child, always) == ("pending pending" if kind == "done" else "cancelled pending")


def test_a_job_that_replaces_another_ends_what_waits_for_that(one: Connection) -> None:
    set_limit(one, "tests.app.tasks.noop", 1, "cancel_old")
    (old,) = add(one, options='{"limit_key": "key"}')
    child = after(one, [old])
    add(one, options='{"limit_key": "key"}')
    claim(one)
    assert status(one, old, child) == "cancelled cancelled"
