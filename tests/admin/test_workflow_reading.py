"""Which jobs and batches belong to the workflow of a job."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_pgqueue.admin import workflow as reading
from django_pgqueue.admin.workflow import LIVE, Limits, Workflow, read
from django_pgqueue.models import Job, JobBatch, Tally
from tests.support.factories import JobFactory

pytestmark = pytest.mark.django_db


def job(*parents: int, **values: Any) -> int:
    """Insert a job that waits for others, without the edges. Its parents are not marked."""
    status = (
        {}
        if {"done", "failed", "running"} & values.keys()
        else {"status": "blocked" if parents else "pending"}
    )
    key: int = JobFactory.create(parent_ids=sorted(parents) or None, **{**status, **values}).pk
    return key


def batch(name: str = "import", **counts: int) -> int:
    """Insert a batch with these members, which retention has dropped."""
    made = JobBatch.objects.create(name=name)
    Tally.objects.create(batch_id=made.pk, slot=0, added=sum(counts.values()), **counts)
    return made.pk


def around(here: int, **limits: Any) -> Workflow:
    return read("default", here, Limits(**limits))


def kinds(workflow: Workflow) -> dict[Any, str]:
    return {key: node.kind for key, node in workflow.nodes.items()}


def test_a_job_of_its_own_is_alone() -> None:
    here, _other = job(), job()
    workflow = around(here)
    assert kinds(workflow) == {here: "job"}
    assert (workflow.arrows, workflow.problem, workflow.is_finished) == ({}, "", False)


@pytest.mark.promise("graph-complete")
def test_the_whole_workflow_is_found_from_each_of_its_jobs() -> None:
    """A diamond, with jobs on each shelf."""
    first = job(done=True, marks=2)
    left, right = job(first, failed=True, marks=2), job(first, running=True, marks=2)
    last = job(left, right)
    arrows = {(first, left), (first, right), (left, last), (right, last)}
    for here in (first, left, right, last):
        workflow = around(here)
        assert workflow.arrows == dict.fromkeys(arrows, "after")
        assert [workflow.nodes[key].state for key in (first, left, right, last)] == [
            "done", "failed", "running", "blocked",
        ]  # fmt: skip


def test_a_workflow_that_was_enqueued_with_sql_is_found() -> None:
    """With the marks and reasons that the functions write."""

    def enqueue(**options: Any) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pgqueue_enqueue('a.b', options => %s::jsonb)", [json.dumps(options)])
            return int(cursor.fetchone()[0])

    with connection.cursor() as cursor:
        cursor.execute("SELECT pgqueue_open_batch('import')")
        (group,) = cursor.fetchone()
    first = enqueue()
    members = [enqueue(batch=group, after=[first]), enqueue(batch=group)]
    last = enqueue(after=[group])
    for here in (first, members[0], group, last):
        workflow = around(here)
        assert workflow.arrows == {
            (first, members[0]): "after", (members[0], group): "member",
            (members[1], group): "member", (group, last): "after",
        }  # fmt: skip
        assert workflow.nodes[group].counts == {"pending": 1, "blocked": 1}
        assert workflow.nodes[last].note == f"waits for jobs of batch {group}"
        assert not workflow.is_finished


def test_the_numbers_of_a_batch_are_those_of_its_tally_and_of_its_live_members() -> None:
    """Retention has dropped some of the members."""
    group = batch(done=899, failed=11)
    for values in ({"done": True}, {"failed": True}, {"running": True}, {}, {}):
        job(batch_id=group, **values)
    assert around(group).nodes[group].counts == {"done": 900, "failed": 12, "running": 1, "pending": 2}


def test_a_parent_that_is_no_longer_kept_is_shown_as_such() -> None:
    gone = job()
    Job.objects.filter(pk=gone)._raw_delete("default")
    here = job(gone)
    workflow = around(here)
    assert kinds(workflow) == {here: "job", gone: "gone"}
    assert workflow.arrows == {(gone, here): "after"}


def test_a_child_of_a_job_that_was_over_before_is_found_without_a_mark() -> None:
    over = job(done=True, marks=0)
    child = job(over)
    assert set(around(over).nodes) == {over, child}


def test_a_circle_ends() -> None:
    """A member of an open batch may be told to wait for what waits for the batch."""
    group = batch()
    callback = job(group, marks=2)
    member = job(callback, batch_id=group)
    workflow = around(callback)
    assert set(workflow.arrows) == {(group, callback), (callback, member), (member, group)}


@pytest.mark.promise("graph-complete")
def test_no_more_jobs_are_read_than_permitted() -> None:
    here = job(marks=2)
    for _each in range(9):
        job(here, id=here - 10**6 + _each)
    workflow = around(here, jobs=4)
    assert len(workflow.nodes) == 4
    assert here in workflow.nodes
    assert "Only 4 jobs" in workflow.problem
    assert around(here, jobs=10).problem == ""


def test_the_members_of_a_large_batch_are_counted_all_the_same() -> None:
    group = batch(done=2)
    for _each in range(8):
        job(batch_id=group)
    workflow = around(group, jobs=5)
    assert len(workflow.nodes) == 5 + 1
    assert workflow.nodes[group].counts == Counter({LIVE: 8, "done": 2})
    assert workflow.problem


def test_parents_beyond_the_limit_are_not_called_dropped() -> None:
    chain = [job()]
    for _each in range(5):
        chain.append(job(chain[-1]))
    workflow = around(chain[-1], steps=1)
    assert set(kinds(workflow).values()) == {"job"}
    assert len(workflow.nodes) == 2
    assert workflow.problem
    many = job(*[job() for _each in range(5)])
    assert set(kinds(around(many, jobs=3)).values()) == {"job"}


def test_there_is_one_statement_for_each_step() -> None:
    here = job(marks=2)
    for _each in range(4):
        child = job(here, marks=2)
        for _more in range(2):
            job(child)
    with CaptureQueriesContext(connection) as queries:
        assert len(around(here).nodes) == 13
    read_jobs = [each["sql"] for each in queries if "task_path" in each["sql"]]
    assert len(read_jobs) == 4  # the job, its children, theirs, and those of nobody
    assert len(queries) == len(read_jobs) + 5  # a savepoint and its rollback, and the settings


@pytest.mark.parametrize("slow", ["_STEPS", "_BATCHES"])
@pytest.mark.promise("graph-complete")
def test_what_was_read_until_the_time_was_up_is_shown(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement for the members, or that for the batches, takes longer than permitted."""
    group = batch()
    here = job(batch_id=group)
    if slow == "_STEPS":
        monkeypatch.setitem(reading._STEPS, "batches", "pg_sleep(20) IS NULL OR " + reading._STEPS["batches"])
    else:
        monkeypatch.setattr(reading, slow, reading._BATCHES.replace("WHERE", "WHERE pg_sleep(20) IS NULL OR"))
    workflow = around(group, seconds=0.05)
    assert (here in workflow.nodes) == (slow == "_BATCHES")
    assert "too long" in workflow.problem
    assert Job.objects.count() == 1  # the connection is usable


def test_the_settings_of_the_reading_end_with_it() -> None:
    around(job())
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('enable_seqscan'), current_setting('statement_timeout')")
        assert cursor.fetchone() == ("on", "0")
