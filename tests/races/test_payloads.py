"""Races of payloads: the deletion of a row, the sweep, and the declaration of a task."""

from __future__ import annotations

import json

import pytest

from django_pgqueue.maintenance.payloads import synchronize_tasks
from tests.receipts.models import Order, Receipt
from tests.support.jobs import Range, cancel, claim, finish, retry, statuses, value
from tests.support.sessions import Connect, Connection, behind, start

pytestmark = pytest.mark.django_db(transaction=True)

SEND = "tests.receipts.tasks.send"
INSERT = "INSERT INTO receipts_receipt (order_id, email) VALUES (%s, 'a@b.c') RETURNING job_id"


@pytest.fixture
def row() -> int:
    """The key of a row whose job waits."""
    return int(Receipt.objects.create(order=Order.objects.create(), email="a@b.c").pk)


def delete(connection: Connection, key: int) -> None:
    connection.execute("DELETE FROM receipts_receipt WHERE job_id = %s", (key,))


def take(connection: Connection) -> list[int]:
    return [claimed.id for claimed in claim(connection, ranges=[Range("mail", 5)])]


@pytest.mark.promise("payload-deleted")
def test_a_claim_that_comes_first_is_asked_to_stop(one: Connection, other: Connection, row: int) -> None:
    """The deletion waits for the claim, and does not cancel a job that runs."""
    assert take(one) == [row]
    behind(one, other, delete, row)
    assert statuses(other) == {row: "running"}
    assert value(other, "SELECT cancel_requested_at IS NOT NULL FROM pgqueue_job_live") is True
    assert finish(one, [row]) == [row]


def sweep(connection: Connection) -> int:
    return int(value(connection, "SELECT swept FROM _pgqueue_sweep_payloads(1000)"))


@pytest.mark.promise("payload-kept")
def test_the_sweep_finds_a_job_that_a_retry_brings_back(one: Connection, other: Connection, row: int) -> None:
    """The retry moves the job while the sweep waits for a leaf of history. Two looks, into the live leaf and
    then into history, would miss it in both.
    """
    cancel(one, [row])
    one.commit()
    one.execute("LOCK TABLE pgqueue_job_past_1 IN ACCESS EXCLUSIVE MODE")
    sweeping = start(other, sweep).blocked()
    assert retry(one, [row]) == 1
    one.commit()
    assert sweeping.result() == 0
    assert value(other, "SELECT count(*) FROM receipts_receipt") == 1
    assert statuses(other) == {row: "pending"}


@pytest.mark.promise("payload-kept")
def test_a_job_that_goes_during_the_sweep_takes_its_row_with_it(
    one: Connection, other: Connection, row: int
) -> None:
    """The sweep sees no job, and only then which jobs are gone. The other way around, the row would be a
    stray for ever.
    """
    cancel(one, [row])
    one.commit()
    one.execute("TRUNCATE pgqueue_job_past_1")
    sweeping = start(other, sweep).blocked()
    one.execute("SELECT _pgqueue_note_gone(%s, %s)", (row, row))
    one.commit()
    assert sweeping.result() == 1
    assert value(other, "SELECT count(*) FROM pgqueue_stray") == 0


def test_two_sweeps_do_not_wait_for_each_other(one: Connection, other: Connection, row: int) -> None:
    one.execute("DELETE FROM pgqueue_job_live")
    one.execute("SELECT _pgqueue_note_gone(%s, %s)", (row, row))
    one.commit()
    assert sweep(one) == 1
    assert sweep(other) == 0
    one.commit()
    assert value(other, "SELECT count(*) FROM receipts_receipt") == 0


def test_an_insert_while_the_declaration_changes_gets_the_committed_one(
    one: Connection, other: Connection
) -> None:
    order = Order.objects.create()
    one.execute("UPDATE pgqueue_task SET queue_name = 'new' WHERE task_path = %s", (SEND,))
    key = value(other, INSERT, order.pk)  # it neither waits nor sees what is not committed
    one.commit()
    assert value(other, "SELECT queue_name FROM pgqueue_job_live WHERE id = %s", key) == "mail"
    synchronize_tasks("default")
    assert value(other, "SELECT queue_name FROM pgqueue_task WHERE task_path = %s", SEND) == "mail"


def test_two_versions_of_the_code_write_one_after_the_other(connect: Connect) -> None:
    """An older version starts while a newer one writes: it waits, writes all of its rows, and then both are
    quiet. The task that only the newer one knows keeps its row.
    """
    newer, older, reader = connect(), connect(autocommit=True), connect(autocommit=True)
    columns = "to_jsonb(kind) || jsonb_build_object('relation', kind.relation::oid)"
    now = value(reader, f"SELECT jsonb_agg({columns}) FROM pgqueue_task AS kind")
    new = [{**row, "priority": 99} for row in now] + [{**now[0], "task_path": "a.new"}]
    query = "SELECT _pgqueue_declare_tasks(%s::jsonb)"
    assert value(newer, query, json.dumps(new)) == len(new)
    old = [{**row, "queue_name": "old"} for row in reversed(now)]
    waiting = start(older, value, query, json.dumps(old)).blocked()
    seen = "SELECT DISTINCT queue_name <> 'old', priority FROM pgqueue_task WHERE task_path <> 'a.new'"
    assert (True, 99) not in reader.execute(seen).fetchall(), "an enqueue waits for nobody"
    newer.commit()
    assert waiting.result() == len(old)
    whole = f"SELECT jsonb_agg({columns} - 'swept_to' ORDER BY task_path) FROM pgqueue_task AS kind"
    stored = {row["task_path"]: row for row in value(reader, whole)}
    assert "a.new" in stored
    wanted = {row["task_path"]: {**row, "swept_to": None} for row in old}
    assert {path: {**stored[path], "swept_to": None} for path in wanted} == wanted, "not a mixture of both"
    with reader.transaction():
        reader.execute("DELETE FROM pgqueue_task WHERE task_path = 'a.new'")
    synchronize_tasks("default")


def test_a_sweep_and_a_declaration_are_no_deadlock(one: Connection, other: Connection, row: int) -> None:
    """A sweep locks the row of a task, and then writes to the table."""
    one.execute("SELECT FROM pgqueue_task WHERE task_path = %s FOR NO KEY UPDATE", (SEND,))
    columns = "to_jsonb(kind) || jsonb_build_object('relation', kind.relation::oid, 'priority', 9)"
    query = f"SELECT _pgqueue_declare_tasks((SELECT jsonb_agg({columns}) FROM pgqueue_task AS kind))"
    waiting = start(other, value, query).blocked()
    one.execute("UPDATE pgqueue_task SET swept_to = 1 WHERE task_path = %s", (SEND,))
    one.commit()
    assert waiting.result() > 0
    assert value(other, "SELECT swept_to FROM pgqueue_task WHERE task_path = %s", SEND) == 1
    other.execute("UPDATE pgqueue_task SET swept_to = 0")
    synchronize_tasks("default")
