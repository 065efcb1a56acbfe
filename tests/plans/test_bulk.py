"""A chunk of an action on many jobs reads its own jobs, wherever the walk is, and however many there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection as of_django
from django.db import transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import DjangoDbBlocker

from django_pgqueue.admin import effects
from django_pgqueue.admin.bulk_walk import Place, take
from django_pgqueue.admin.selection import Bounds, affected
from django_pgqueue.models import Job
from tests.support.plans import fill, reads
from tests.support.sessions import Connection, open_raw

from .statements import LIVE

pytestmark = pytest.mark.django_db

MANY = 50_000
SIZE = 500
KEPT = "pgqueue_job_kept"


@pytest.fixture(scope="module")
def filled(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Connection]:
    """Jobs that wait, and failed ones: of ten tasks in turn, and in two queues."""
    columns: dict[str, Any] = {"task_path": "'shop.tasks.t' || n % 10", "queue_name": "'q' || n % 2"}
    with django_db_blocker.unblock():
        connection = open_raw()
    with connection:
        fill(connection, LIVE, MANY, id="n", **columns)
        fill(connection, KEPT, MANY, id=f"{MANY} + n", shelf="9", status="'failed'",
             finished_at="clock_timestamp()", **columns)  # fmt: skip
        yield connection
        connection.execute("TRUNCATE pgqueue_job")


@pytest.mark.parametrize(
    ("filters", "share"), [({}, 1), ({"queue_name": "q1"}, 2), ({"task_path": "shop.tasks.t3"}, 10)]
)
@pytest.mark.parametrize("part", [0, 1])
def test_a_chunk_reads_its_own_jobs(
    filled: Connection, part: int, filters: dict[str, str], share: int
) -> None:
    limits = Bounds(timezone.now().isoformat(), newest=2 * MANY)
    parts = affected(Job.objects.filter(**filters), limits, effects.RETRY[:5])
    after = part * MANY + MANY // 2
    with transaction.atomic(), CaptureQueriesContext(of_django) as captured:
        chunk = take(parts, Place(part, after), SIZE, lambda jobs: jobs.count())
        transaction.set_rollback(True)  # and with it the locks
    assert chunk is not None
    assert (chunk.place.part, chunk.changed) == (part, SIZE)
    assert chunk.place.after <= after + share * SIZE
    found, changed = (entry["sql"] for entry in captured)
    for sql, most in ((found, 2 * share * SIZE), (changed, 2 * SIZE)):
        with reads(filled) as counts:
            filled.execute(sql)
        assert counts.of("pgqueue_job") <= most + 100, (sql, counts)
