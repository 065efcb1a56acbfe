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

from django_pgqueue.admin.bulk import selection
from django_pgqueue.admin.bulk.actions import CANCEL, EDIT, RETRY, Effect
from django_pgqueue.admin.bulk.selection import Shown, affected
from django_pgqueue.jobs.chunks import Cursor, take
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
        # These are older than the newest ones.
        blocked: dict[str, Any] = {"status": "'blocked'", "limit_key": "'k'", "wait_position": "n"}
        fill(connection, LIVE, 20, id="-n", queue_name="'few'")
        fill(connection, LIVE, 20, id="-100 - n", **blocked)
        fill(connection, LIVE, 40, id="-200 - n", status="'running'", worker="7", lease="1")
        yield connection
        connection.execute("TRUNCATE pgqueue_job")


@pytest.mark.parametrize(
    ("filters", "share"), [({}, 1), ({"queue_name": "q1"}, 2), ({"task_path": "shop.tasks.t3"}, 10)]
)
@pytest.mark.parametrize("part", [0, 1])
def test_a_chunk_reads_its_own_jobs(
    filled: Connection, part: int, filters: dict[str, str], share: int
) -> None:
    limits = Shown(as_of=timezone.now().isoformat(), newest=2 * MANY)
    parts = affected(Job.objects.filter(**filters), limits, RETRY[:5])
    after = part * MANY + MANY // 2
    with transaction.atomic(), CaptureQueriesContext(of_django) as captured:
        chunk = take(parts, Cursor(part, after), SIZE, lambda jobs: jobs.count())
        transaction.set_rollback(True)  # and with it the locks
    assert chunk is not None
    assert (chunk.cursor.part, chunk.changed) == (part, SIZE)
    assert chunk.cursor.after <= after + share * SIZE
    found, changed = (entry["sql"] for entry in captured)
    for sql, most in ((found, 2 * share * SIZE), (changed, 2 * SIZE)):
        with reads(filled) as counts:
            filled.execute(sql)
        assert counts.of("pgqueue_job") <= most + 100, (sql, counts)


MOST = 1000


@pytest.mark.parametrize(
    ("filters", "meant", "numbers", "read"),
    [
        ({}, CANCEL, [MOST, 40, 0, MOST], 2 * MOST),
        ({"task_path": "shop.tasks.t3"}, CANCEL[:3], [MOST, 0, 0], 10 * MOST),
        ({"queue_name": "few", "status": "pending"}, EDIT[:1], [20], 0),
        ({"pk__in": []}, CANCEL[:1], [0], 0),
        ({"limit_key": "k", "wait_position__isnull": False, "status": "blocked"}, CANCEL[:1], [20], 0),
    ],
)
def test_a_count_ends_at_its_bound_or_has_an_index(
    filled: Connection,
    monkeypatch: pytest.MonkeyPatch,
    filters: dict[str, Any],
    meant: tuple[Effect, ...],
    numbers: list[int],
    read: int,
) -> None:
    monkeypatch.setattr(selection, "MOST_COUNTED", MOST)
    limits = Shown(as_of=timezone.now().isoformat(), newest=3 * MANY)
    with CaptureQueriesContext(of_django) as captured:
        found = selection.count(Job.objects.filter(**filters), limits, meant)
    assert [tuple(one) for one in found] == [(number, number < MOST) for number in numbers]
    with reads(filled) as counts:
        for entry in captured:
            if "pgqueue_job" in entry["sql"]:
                filled.execute(entry["sql"])
    assert counts.of("pgqueue_job") <= read + 200, counts
