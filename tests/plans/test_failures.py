"""The jobs of a group of failures are found by their index, among many jobs that failed in other ways."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from pytest_django import DjangoDbBlocker

from django_pgqueue.admin.failures import jobs_of
from django_pgqueue.admin.jobs.filters import on_shelves
from django_pgqueue.admin.jobs.search import search
from django_pgqueue.models import Job
from tests.support.plans import fill, reads
from tests.support.sessions import Connection, open_raw

from .statements import LIVE

pytestmark = pytest.mark.django_db

MANY = 20_000


@pytest.fixture(scope="module")
def one(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Connection]:
    """A tenth of the waiting jobs has failed before. Half of the failed jobs are of one group."""
    with django_db_blocker.unblock():
        raw = open_raw()
    now = "clock_timestamp()"
    with raw:
        fill(raw, LIVE, MANY, status="CASE WHEN n % 10 = 0 THEN 'retry' ELSE 'pending' END",
             error_fingerprint="CASE WHEN n % 10 = 0 THEN 'f' || n % 1000 ELSE '' END")  # fmt: skip
        fill(raw, "pgqueue_job_kept", MANY, shelf="9", status="'failed'", finished_at=now,
             error_fingerprint="CASE WHEN n % 2 = 0 THEN 'common' ELSE 'f' || n % 1000 END")  # fmt: skip
        fill(raw, "pgqueue_job_past_1", MANY, shelf="1", status="'done'", finished_at=now)
        yield raw
        raw.execute("TRUNCATE pgqueue_job")


@pytest.mark.parametrize("status", ["", "failed", "retry"])
@pytest.mark.parametrize("fingerprint", ["f10", "f11", "common", "none"])
def test_a_page_of_the_list_reads_the_jobs_that_it_shows(
    one: Connection, status: str, fingerprint: str
) -> None:
    jobs = search(on_shelves(status, Job.objects.all()), f"fingerprint:{fingerprint}", "", full=True)
    page = (jobs.filter(status=status) if status else jobs).order_by("-pk").values_list("pk", flat=True)
    with reads(connected()) as counts:
        found = list(page[:101])
    assert len(found) == {"f10": 20, "f11": 20, "common": 101}.get(fingerprint, 0) * (
        status in ("", "retry" if fingerprint == "f10" else "failed")
    )
    assert counts.of("pgqueue_job") <= 3 * 101, counts


def test_counts_of_jobs_read_what_they_count(one: Connection) -> None:
    with reads(connected()) as counts:
        found = jobs_of("default", "f10")
    assert (found["live"], found["failed"]) == ("20 jobs wait for another attempt or run", "")
    assert counts.of("pgqueue_job") <= 3 * 20, counts


def connected() -> Connection:
    """Django's own connection."""
    connection.ensure_connection()
    raw: Connection = connection.connection
    return raw
