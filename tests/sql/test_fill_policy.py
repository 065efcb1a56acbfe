from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_pgqueue.models import Job
from tests.support.jobs import add, claim
from tests.support.sessions import Connection

pytestmark = pytest.mark.django_db(transaction=True)


def fill(one: Connection, job: int, *policy: Any, lease: int = 1) -> list[int]:
    """The policy is max_attempts, timeout, on_lost, expires_after."""
    types = ("bigint", "bigint", "integer", "integer", "text", "float")
    query = f"SELECT _pgqueue_fill_policy({', '.join(f'%s::{name}[]' for name in types)})"
    return [row[0] for row in one.execute(query, ([job], [lease], *([value] for value in policy))).fetchall()]


def test_what_plain_sql_left_open_is_filled_in(one: Connection) -> None:
    (job,) = add(one, task_path="a.b")
    claim(one)
    assert fill(one, job, 5, 30, "fail", 7200.0) == []
    found = Job.objects.get(pk=job)
    assert (found.max_attempts, found.timeout, found.on_lost) == (5, 30, "fail")
    assert found.expires_at == found.run_after + timedelta(hours=2)
    assert found.last_attempted_at is not None
    assert found.deadline == found.last_attempted_at + timedelta(seconds=30)


def test_what_was_given_stays(one: Connection) -> None:
    (job,) = add(one, max_attempts=2, timeout=10, on_lost="rerun", expires_at="2090-01-01 UTC")
    claim(one)
    before = Job.objects.values().get(pk=job)
    assert fill(one, job, 5, 30, "fail", 7200.0) == []
    assert Job.objects.values().get(pk=job) == before


def test_a_job_that_is_too_old_by_it_is_named(one: Connection) -> None:
    (job,) = add(one, task_path="a.b")
    one.execute("UPDATE pgqueue_job_live SET enqueued_at = '2020-01-01 UTC', run_after = '2020-01-02 UTC'")
    claim(one)
    assert fill(one, job, 5, None, "rerun", 3600.0) == [job]


def test_the_job_of_another_claim_is_left_alone(one: Connection) -> None:
    (job,) = add(one, task_path="a.b")
    claim(one, lease=2)
    assert fill(one, job, 5, 30, "fail", 0.0, lease=1) == []
    assert Job.objects.get(pk=job).max_attempts is None
