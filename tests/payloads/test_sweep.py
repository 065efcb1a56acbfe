"""The retention of payloads: rows whose job is no longer kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_pgqueue.maintenance import rounds
from django_pgqueue.models import DeclaredTask, Job
from django_pgqueue.testing import run_jobs, run_maintenance, travel
from tests.receipts.models import Charge, Order, Receipt, Reminder
from tests.receipts.tasks import send
from tests.support.factories import QueueFactory
from tests.support.jobs import fetch, next_id, sql

pytestmark = pytest.mark.django_db


def forget(*keys: int) -> None:
    """Delete jobs, as retention does."""
    sql("DELETE FROM pgqueue_job WHERE id = ANY (%s)", list(keys))
    sql("SELECT _pgqueue_note_gone(%s, %s)", min(keys), max(keys))


def restore(order: Order, *keys: int) -> None:
    """Insert rows without triggers, as restores and replication do."""
    sql("SET LOCAL session_replication_role = replica")
    for key in keys:
        sql("INSERT INTO receipts_receipt VALUES (%s, 'a@b.c', %s)", key, order.pk)
    sql("SET LOCAL session_replication_role = origin")


def noted() -> list[int]:
    return [key for (key,) in fetch("SELECT job_id FROM pgqueue_stray ORDER BY job_id")]


def rows(order: Order, count: int, model: Any = Receipt) -> list[int]:
    made = model.objects.bulk_create([model(order=order, email="a@b.c") for _ in range(count)])
    return [row.pk for row in made]


def sweep(limit: int) -> tuple[int, list[str] | None]:
    [(swept, problems)] = fetch("SELECT swept, problems FROM _pgqueue_sweep_payloads(%s)", limit)
    return swept, problems


def left(model: Any = Receipt) -> list[int]:
    return [*model.objects.order_by("pk").values_list("pk", flat=True)]


def test_rows_without_a_job_go_page_by_page(order: Order) -> None:
    keys = rows(order, 7)
    forget(*keys[:5])
    assert sweep(3) == (3, None)
    assert DeclaredTask.objects.get(model="receipts.Receipt").swept_to == keys[2]
    assert sweep(3) == (2, None)
    assert left() == keys[5:]
    assert sweep(3) == (0, None)  # the last page
    assert DeclaredTask.objects.get(model="receipts.Receipt").swept_to == 0
    forget(keys[5])
    assert sweep(3) == (1, None)


def test_upkeep_deletes_what_retention_has_left(order: Order) -> None:
    gone, later = rows(order, 2)
    run_jobs(limit=1)
    run_maintenance()
    assert left() == [gone, later]
    travel(days=400)
    run_maintenance()
    assert left() == [later]
    assert [*Job.objects.values_list("pk", flat=True)] == [later]


def test_kept_rows_stay_if_any_path_of_the_task_keeps_them(order: Order) -> None:
    keys = rows(order, 2, Charge)
    forget(*keys)
    assert sweep(10) == (0, None)
    assert left(Charge) == keys
    row = DeclaredTask.objects.get(model="receipts.Receipt")
    row.pk, row.keeps = "tests.receipts.tasks.a_new_path", True
    row.save(force_insert=True)
    forget(*rows(order, 2))
    assert sweep(10) == (0, None)
    DeclaredTask.objects.filter(pk=row.pk).update(keeps=False)
    assert sweep(10) == (2, None)


def test_rows_that_others_reference_stay_and_stop_nobody(
    order: Order, caplog: pytest.LogCaptureFixture
) -> None:
    reminders, receipts = rows(order, 2, Reminder), rows(order, 2)
    forget(*reminders, *receipts)
    sql("CREATE TABLE attached (receipt bigint REFERENCES receipts_receipt DEFERRABLE INITIALLY DEFERRED)")
    sql("INSERT INTO attached VALUES (%s)", receipts[0])
    swept, problems = sweep(10)
    assert (swept, left(), left(Reminder)) == (2, receipts, [])
    assert problems is not None
    assert problems[0].startswith("receipts.Receipt: ")
    assert "violates foreign key constraint" in problems[0]
    for _ in range(2):
        run_maintenance()
    assert caplog.text.count("rows whose jobs are no longer kept cannot be deleted: receipts.Receipt") == 1
    sql("DELETE FROM attached")
    assert sweep(10) == (2, None)


def test_a_table_that_was_dropped_is_left_out(order: Order) -> None:
    sql("DROP TABLE receipts_reminder")
    forget(*rows(order, 1))
    assert sweep(10) == (1, None)
    assert send.payload is Receipt


def test_rows_that_never_had_a_job_stay_and_are_reported(
    order: Order, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_said", set())
    (before,) = rows(order, 1)
    restore(order, *(keys := [next_id(), next_id()]))
    (after,) = rows(order, 1)
    run_maintenance()
    assert left() == [before, *keys, after]
    run_jobs()
    travel(days=400)  # the jobs around them are gone, and their rows, too
    for _ in range(2):
        run_maintenance()
    assert left() == keys == noted()
    assert caplog.text.count("rows of receipts.Receipt have no job and never had one") == 1


def test_rows_that_were_restored_without_any_job_stay_and_what_is_no_stray_anymore_is_forgotten(
    order: Order,
) -> None:
    keys = [next_id() for _ in range(5)]
    restore(order, *keys)
    for _ in range(3):
        assert sweep(2) == (0, None)
    assert left() == noted() == keys
    sql("INSERT INTO pgqueue_job (id, task_path) VALUES (%s, %s)", keys[0], send.module_path)
    Receipt.objects.filter(pk=keys[4]).delete()
    assert sweep(10) == (0, None)
    assert noted() == keys[1:4]
    forget(keys[0])
    assert sweep(10) == (1, None)  # it once had a job
    Receipt.objects.all().delete()
    sweep(10)
    assert noted() == []


def test_where_finished_jobs_are_not_kept_a_row_goes_with_its_job(order: Order) -> None:
    """They leave no trace, so rows without a job count as theirs, but for strays that are known."""
    restore(order, stray := next_id())
    sweep(10)
    QueueFactory.create(name="mail", retention=timedelta(0))
    rows(order, 1)
    run_jobs()
    assert not Job.objects.exists()
    assert sweep(10) == (1, None)
    assert left() == [stray]
