"""Why a job does not run, asked at the moment when it moves."""

from __future__ import annotations

import pytest

from tests.support.factories import JobFactory
from tests.support.jobs import value
from tests.support.sessions import Connect, start

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.promise("why-one-moment")
def test_all_statements_of_an_answer_see_one_moment(connect: Connect) -> None:
    """Otherwise a job that is retried could be neither in the live leaf nor, a moment later, in history."""
    asking, retrying = connect(autocommit=True), connect()
    job = JobFactory.create(failed=True).pk
    retrying.execute("LOCK TABLE pgqueue_job_live IN ACCESS EXCLUSIVE MODE")
    asked = start(asking, value, "SELECT code FROM pgqueue_why(%s)", job).blocked()
    assert value(retrying, "SELECT pgqueue_retry(ARRAY[%s::bigint])", job) == [job]
    retrying.commit()
    assert asked.result() == "failed"
    assert value(asking, "SELECT code FROM pgqueue_why(%s)", job) == "no_worker"
