"""``pgqueue_progress``, for workers in other languages, and the rows that the table refuses."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DataError, IntegrityError, connection, transaction

from django_pgqueue import enqueue
from django_pgqueue.models import JobProgress
from tests.app.tasks import noop
from tests.support.workers import fresh

pytestmark = pytest.mark.django_db


def running() -> Any:
    job = enqueue(noop)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgqueue_job_live SET status = 'running', lease = 7 WHERE id = %s", [job.pk])
    return job


def report(*values: Any) -> Any:
    with connection.cursor() as cursor, transaction.atomic():
        cursor.execute(f"SELECT pgqueue_progress({', '.join(['%s'] * len(values))})", values)
        return cursor.fetchone()[0]


def test_a_running_job_reports() -> None:
    job = running()
    assert report(job.pk, 40, 100, "reading") is True
    assert fresh(job).progress == (40, 100, "reading")
    assert report(job.pk, 41.5) is True
    assert (fresh(job).progress, fresh(job).marks) == ((41.5, None, ""), 8)
    assert report(job.pk, 42, None, "x" * 500, 7) is True
    assert fresh(job).progress == (42, None, "x" * 200)


@pytest.mark.promise("progress-lease")
def test_another_lease_and_a_job_that_does_not_run_change_nothing() -> None:
    job = running()
    assert report(job.pk, 1, 2, "", 8) is False
    assert report(enqueue(noop).pk, 1) is False
    assert report(job.pk + 1_000_000, 1) is False
    assert not JobProgress.objects.exists()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((None,), "done must be a number from 0 to 2.53, not NULL"),
        ((-1,), "done must be a number from 0 to 2.53, not -1"),
        (("NaN",), "not NaN"),
        (("Infinity",), "not Infinity"),
        ((1, -1), "total must be a number from 0 to 2.53, or NULL, not -1"),
        ((1, "NaN"), "total must be"),
    ],
)
def test_bad_numbers_are_refused(values: tuple[Any, ...], words: str) -> None:
    with pytest.raises(DataError, match=f"pgqueue: progress: .*{words}"):
        report(running().pk, *values)


@pytest.mark.parametrize("values", [{"done": -1}, {"done": float("nan")}, {"done": 1, "total": float("inf")}])
def test_the_table_refuses_them_too(values: dict[str, float]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        JobProgress.objects.create(job=running(), **values)


def test_the_table_is_set_up_for_churn() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE oid = 'pgqueue_progress'::regclass")
        settings = dict(option.split("=") for option in cursor.fetchone()[0])
    assert settings["fillfactor"] == "50"
    assert settings["autovacuum_vacuum_scale_factor"] == "0"
