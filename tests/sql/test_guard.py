from __future__ import annotations

import itertools

import pytest
from django.db import IntegrityError, connection, transaction

from django_pgqueue.models import Job

pytestmark = pytest.mark.django_db

LIVE = ["pending", "retry", "running", "blocked"]
OVER = ["done", "failed", "cancelled"]
LEGAL = {
    *((status, status) for status in LIVE),
    ("pending", "retry"), ("pending", "running"), ("pending", "blocked"),
    ("retry", "pending"), ("retry", "running"), ("retry", "blocked"),
    ("running", "pending"), ("running", "retry"), ("running", "blocked"),
    ("blocked", "pending"), ("blocked", "retry"),
}  # fmt: skip


def job_in(status: str) -> int:
    shelf, finished = (0, "NULL") if status in LIVE else (1, "clock_timestamp()")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgqueue_job (shelf, status, task_path, finished_at)"
            f" VALUES (%s, %s, 'a.b', {finished}) RETURNING id", (shelf, status),
        )  # fmt: skip
        (job,) = cursor.fetchone()
    return int(job)


@pytest.mark.parametrize(("old", "new"), list(itertools.product(LIVE + OVER, repeat=2)))
@pytest.mark.promise("only-the-queue-changes-jobs")
def test_an_update_by_hand_makes_legal_transitions_only(old: str, new: str) -> None:
    job = Job.objects.filter(pk=job_in(old))
    if (old, new) in LEGAL:
        assert job.update(status=new) == 1
        return
    with (
        pytest.raises(IntegrityError, match=rf"cannot change from {old} \(shelf \d\) to {new} \(shelf \d\)"),
        transaction.atomic(),
    ):
        job.update(status=new)
    assert job.get().status == old


@pytest.mark.parametrize(("old", "change"), [
    ("pending", {"shelf": 1, "status": "done"}),
    ("running", {"shelf": 9, "status": "failed"}),
    ("done", {"shelf": 2}),
    ("done", {"shelf": 0, "status": "pending"}),
    ("done", {"result": 1}),
    ("failed", {"errors": []}),
    ("pending", {"id": 4_000_000_000}),
    ("running", {"id": 4_000_000_000}),
])  # fmt: skip
def test_rows_do_not_move_by_hand_and_history_does_not_change(old: str, change: dict[str, object]) -> None:
    job = Job.objects.filter(pk=job_in(old))
    before = job.values().get()
    with pytest.raises(IntegrityError, match="cannot change from"), transaction.atomic():
        job.update(**change)
    assert job.values().get() == before


def test_the_refusal_names_a_remedy_and_the_constraint() -> None:
    job = job_in("pending")
    with pytest.raises(IntegrityError) as caught, transaction.atomic():
        Job.objects.filter(pk=job).update(shelf=9, status="failed")
    diagnostics = caught.value.__cause__.diag  # type: ignore[union-attr]
    assert diagnostics.sqlstate == "23514"
    assert diagnostics.constraint_name == "pgqueue_job_transition"
    assert "cancel()" in diagnostics.message_hint
    assert "pgqueue_retry(ARRAY[id])" in diagnostics.message_hint


def test_columns_that_are_no_state_may_be_edited_while_a_job_waits() -> None:
    job = Job.objects.filter(pk=job_in("pending"))
    assert job.update(priority=50, queue_name="slow", args=[1]) == 1
