"""The tables and functions of the queue: what they have, refuse, and say about themselves."""

from __future__ import annotations

import itertools
import re

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, models, transaction

from django_pgqueue.models import Job, JobStat, LiveJob, Queue, QueueStatus, Worker
from django_pgqueue.models.job import Status
from tests.support.databases import definition
from tests.support.jobs import fetch, sql

LEAVES = ["pgqueue_job_live", *(f"pgqueue_job_past_{shelf}" for shelf in range(1, 9)), "pgqueue_job_kept"]
FIELDS = [field for field in Job._meta.concrete_fields if not field.generated]
COLUMNS = {field.column for field in FIELDS}


@pytest.mark.django_db
def test_the_table_of_statuses_and_its_functions_say_what_the_enumeration_says() -> None:
    table = {row.status: (row.is_claimable, row.is_terminal) for row in QueueStatus.objects.all()}
    assert table == {status.value: (status.is_claimable, status.is_terminal) for status in Job.Status}
    assert Job.Status is Status
    assert dict(Job.Status.choices).keys() == table.keys()
    both = "SELECT pgqueue_status_is_claimable(%s), pgqueue_status_is_terminal(status => %s)"
    for status in (*table, "", "Done", "no such status", None):
        assert fetch(both, status, status) == [table.get(str(status), (None, None))]
    volatile = "SELECT provolatile::text FROM pg_proc WHERE proname LIKE 'pgqueue_status_is_%'"
    assert fetch(volatile) == [("s",)] * 2


@pytest.mark.django_db
@pytest.mark.parametrize("table", ["pgqueue_job", *LEAVES])
def test_the_model_has_the_columns_of_the_table(table: str) -> None:
    found = fetch(
        "SELECT attname, format_type(atttypid, atttypmod), NOT attnotnull FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''", table,
    )  # fmt: skip

    def column_type(field: models.Field[object, object]) -> str:
        name = str(field.rel_db_type(connection) if field.primary_key else field.db_type(connection))
        return re.sub("^varchar", "character varying", name)

    for model in (Job, LiveJob):  # in another order: that of the table saves WAL
        fields = [field for field in model._meta.concrete_fields if not field.generated]
        expected = [(field.column, column_type(field), field.null) for field in fields]
        assert sorted(found) == sorted(expected)


@pytest.mark.django_db
@pytest.mark.parametrize("model", [Job, LiveJob])
def test_what_the_model_gives_by_default_is_what_the_table_gives(model: type[Job]) -> None:
    # Inserted by Django without a value for any column with a default, and by plain SQL.
    ours = Job.objects.create(task_path="a.b")
    ours.refresh_from_db()
    theirs = Job.objects.get(pk=sql("INSERT INTO pgqueue_job (task_path) VALUES ('a.b') RETURNING id"))
    names = [field.name for field in Job._meta.concrete_fields]
    differing = {name for name in names if getattr(ours, name) != getattr(theirs, name)}
    assert differing == {"id", "run_after", "enqueued_at"}
    assert model._meta.get_field("shelf").db_default is not None


def columns_between(text: str, start: str, end: str) -> list[str]:
    """Return the items of a list of columns or expressions between two markers."""
    assert start in text, start
    body = text.split(start, 1)[1].split(end, 1)[0]
    return re.findall(r"\b[a-z_]+\b", body)


# The columns to which a transition assigns new values. Every other column must be copied by name.
SET_BY = {
    "_pgqueue_end_jobs": {"steps", "shelf", "status", "waiting_reason", "finished_at", "duration"},
    "_pgqueue_drop": {"steps", "shelf", "status", "cancel_requested_at", "finished_at", "waiting_reason"},
    "pgqueue_retry": {
        "shelf", "status", "run_after", "forgiven_attempts", "expires_at", "crash_count", "lost_in_a_row",
        "worker", "lease", "deadline", "cancel_requested_at", "waiting_reason", "finished_at", "duration",
        "result", "wait_position", "steps",
    },
}  # fmt: skip
# The columns among them with values of the last attempt, which a retry resets to the table's defaults.
RESET_BY_RETRY = SET_BY["pgqueue_retry"] - {"status", "run_after", "forgiven_attempts", "wait_position"}


@pytest.mark.parametrize("name", SET_BY)
def test_every_column_is_named_by_each_function_that_moves_a_job(name: str) -> None:
    text = definition(name)
    target = "INSERT INTO pgqueue_job_live (" if name == "pgqueue_retry" else "INSERT INTO pgqueue_job ("
    inserted = columns_between(text, target, ")")
    assert len(inserted) == len(set(inserted))
    assert set(inserted) == (COLUMNS - RESET_BY_RETRY if name == "pgqueue_retry" else COLUMNS)
    carried = set(re.findall(r"\bgone\.([a-z_]+)", text.split(target, 1)[1]))
    assert COLUMNS - SET_BY[name] <= carried


@pytest.mark.django_db
def test_every_index_and_constraint_of_ours_has_our_name() -> None:
    found = fetch(
        "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class ON pg_class.oid = indrelid"
        " WHERE relname LIKE 'pgqueue%'"
    )
    names = {name for (name,) in found}
    assert len(names) > 20
    assert {name for name in names if not str(name).startswith("pgqueue_")} == set()
    assert {"pgqueue_job_claim", "pgqueue_job_running", "pgqueue_job_kept_sweep"} <= names
    assert [index.name for model in (Job, Queue, Worker, JobStat) for index in model._meta.indexes] == []


@pytest.mark.django_db
def test_the_leaves_are_ten_and_what_changes_often_is_set_up_for_churn() -> None:
    found = fetch("SELECT relid::regclass::text FROM pg_partition_tree('pgqueue_job') WHERE isleaf")
    assert sorted(str(name) for (name,) in found) == sorted(LEAVES)
    query = "SELECT reloptions FROM pg_class WHERE oid = %s::regclass"
    for table, fill in (("pgqueue_progress", "50"), ("pgqueue_job_live", "70")):
        settings = dict(option.split("=") for option in sql(query, table))
        assert (settings["fillfactor"], settings["autovacuum_vacuum_scale_factor"]) == (fill, "0")
    assert int(settings["autovacuum_vacuum_threshold"]) <= 10_000
    assert settings["autovacuum_vacuum_cost_delay"] == "0"


@pytest.mark.django_db
@pytest.mark.parametrize(("columns", "values"), [
    ("shelf, status", "0, 'done'"),
    ("shelf, status, finished_at", "1, 'pending', now()"),
    ("shelf, status", "1, 'done'"),
    ("shelf, status", "9, 'failed'"),
    ("shelf, status, finished_at", "9, 'running', now()"),
    ("shelf, status, finished_at", "10, 'done', now()"),
    ("priority", "101"),
    ("priority", "-101"),
    ("run_after", "'infinity'"),
    ("run_after", "'-infinity'"),
    ("run_after", "'10000-01-01 UTC'"),
    ("queue_name", "''"),
])  # fmt: skip
def test_rows_that_no_leaf_should_hold_are_refused(columns: str, values: str) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        fetch(f"INSERT INTO pgqueue_job (task_path, {columns}) VALUES ('a.b', {values})")


@pytest.mark.django_db
def test_nothing_has_a_foreign_key_to_jobs_or_statuses() -> None:
    assert fetch(
        "SELECT conname FROM pg_constraint WHERE contype = 'f'"
        " AND confrelid::regclass::text LIKE 'pgqueue%' AND conrelid <> 'pgqueue_schedule_run'::regclass"
    ) == []  # fmt: skip


def test_the_live_leaf_is_no_model_of_the_project() -> None:
    assert LiveJob not in apps.get_models(include_auto_created=True)


@pytest.mark.django_db
def test_database_tools_show_what_each_function_and_table_is_for() -> None:
    """And the names and comments of those that may change say so."""
    described: dict[str, str | None] = dict(
        fetch(
            "SELECT proname::text, obj_description(oid, 'pg_proc') FROM pg_proc WHERE proname ~ '^_?pgqueue_'"
            " UNION ALL SELECT relname, obj_description(oid, 'pg_class') FROM pg_class"
            " WHERE relname LIKE 'pgqueue%' AND relkind IN ('r', 'p') AND NOT relispartition"
        )
    )
    undescribed = {name for name, words in described.items() if not words}
    assert undescribed <= {
        model._meta.db_table for model in apps.get_app_config("django_pgqueue").get_models()
    }
    internal = {name for name, words in described.items() if (words or "").startswith("Internal. ")}
    assert {name for name in described if name.startswith("_")} <= internal
    assert {"pgqueue_ring", "pgqueue_duty", "pgqueue_edge", "pgqueue_step"} <= internal
    assert (described["pgqueue_cancel"] or "").startswith("Cancel jobs: ")


REPORT = "_pgqueue_append(errors, result, 20), _pgqueue_fingerprint(task_path, result) FROM pgqueue_job_live"
ENQUEUE = (
    "_pgqueue_problem(path, '[]', '{}', '{}', queue, number, due, due, number, number, queue, number)"
    " FROM (VALUES ('a.b', 'mail', 1, now())) AS given (path, queue, number, due) WHERE number < random()"
)


@pytest.mark.django_db
@pytest.mark.parametrize(("query", "part"), [(REPORT, "jsonb_build_array"), (ENQUEUE, "")])
def test_what_runs_for_each_job_is_inlined(query: str, part: str) -> None:
    """A call for each row costs more than the insert."""
    plan = " ".join(line for (line,) in fetch(f"EXPLAIN VERBOSE SELECT {query}"))
    assert part in plan
    assert "_pgqueue_" not in plan


# -- the guard: what an update by hand may change

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
    query = "INSERT INTO pgqueue_job (shelf, status, task_path, finished_at)"
    return int(sql(f"{query} VALUES (%s, %s, 'a.b', {finished}) RETURNING id", shelf, status))


@pytest.mark.django_db
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


@pytest.mark.django_db
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
    with pytest.raises(IntegrityError, match="cannot change from") as caught, transaction.atomic():
        job.update(**change)
    assert job.values().get() == before
    refusal = caught.value.__cause__.diag  # type: ignore[union-attr]
    assert (refusal.sqlstate, refusal.constraint_name) == ("23514", "pgqueue_job_transition")
    assert "cancel()" in refusal.message_hint
    assert "pgqueue_retry(ARRAY[id])" in refusal.message_hint


@pytest.mark.django_db
def test_columns_that_are_no_state_may_be_edited_while_a_job_waits() -> None:
    job = Job.objects.filter(pk=job_in("pending"))
    assert job.update(priority=50, queue_name="slow", args=[1]) == 1
