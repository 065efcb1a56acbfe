from __future__ import annotations

from typing import Any

import pytest
from django.db import DataError, ProgrammingError, connection, transaction

from django_pgqueue.models import Job

pytestmark = pytest.mark.django_db


def sql(query: str, *parameters: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(query, parameters or None)
        row = cursor.fetchone() if cursor.description else None
    return row and row[0]


def enqueued(arguments: str) -> Job:
    return Job.objects.get(pk=sql(f"SELECT pgqueue_enqueue({arguments})"))


def test_a_path_is_enough() -> None:
    job = enqueued("'shop.tasks.send'")
    assert (job.task_path, job.args, job.kwargs, job.metadata) == ("shop.tasks.send", [], {}, {})
    assert (job.status, job.queue_name, job.priority, job.run_after) == (
        "pending",
        "default",
        0,
        job.enqueued_at,
    )
    # The worker that claims it fills these in from the task.
    assert (job.max_attempts, job.timeout, job.on_lost, job.expires_at) == (None, None, None, None)


def test_everything_by_name() -> None:
    job = enqueued(
        "'a.b', '[1, \"x\"]'::jsonb, kwargs => '{\"k\": null}', queue_name => 'mail', priority => 5,"
        " run_after => '2060-01-02 03:04 UTC', expires_at => '2060-01-03 UTC', max_attempts => 2,"
        " timeout => 30, on_lost => 'fail', metadata => '{\"m\": 1}',"
        " options => '{\"max_json_bytes\": 100}'"
    )
    assert (job.args, job.kwargs, job.metadata) == ([1, "x"], {"k": None}, {"m": 1})
    assert (job.queue_name, job.priority, job.max_attempts, job.timeout, job.on_lost) == (
        "mail",
        5,
        2,
        30,
        "fail",
    )
    assert job.run_after.isoformat() == "2060-01-02T03:04:00+00:00"
    assert job.expires_at is not None
    assert job.expires_at.isoformat() == "2060-01-03T00:00:00+00:00"


def test_a_trigger_enqueues_and_a_rollback_takes_it_away() -> None:
    sql(
        "CREATE FUNCTION app_entry_added() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " PERFORM pgqueue_enqueue('app.tasks.added', jsonb_build_array(NEW.id), queue_name => 'mail');"
        " RETURN NEW; END $$"
    )
    sql("CREATE TRIGGER added AFTER INSERT ON app_entry FOR EACH ROW EXECUTE FUNCTION app_entry_added()")
    row = sql("INSERT INTO app_entry (key, note) VALUES ('a', '') RETURNING id")
    assert Job.objects.get().args == [row]
    with transaction.atomic():
        sql("INSERT INTO app_entry (key, note) VALUES ('b', '')")
        transaction.set_rollback(True)
    assert Job.objects.count() == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("''", "task_path '' is not the dotted path of a task"),
        ("NULL", "task_path NULL is not the dotted path"),
        ("'send'", "'send' is not the dotted path"),
        ("'a b.c'", "is not the dotted path"),
        ("'a..b'", "is not the dotted path"),
        ("'a.b\n'", "is not the dotted path"),
        ("'a.1b'", "is not the dotted path"),
        ("'a.' || repeat('b', 254)", "is not the dotted path"),
        ("'a.b', '{}'", "args must be a JSON array"),
        ("'a.b', NULL", "args must be a JSON array"),
        ("'a.b', '[]', '[]'", "kwargs must be a JSON object"),
        ("'a.b', '[]', NULL", "kwargs must be a JSON object"),
        ("'a.b', metadata => '1'", "metadata must be a JSON object"),
        ("'a.b', queue_name => ''", "queue_name '' must be 1 to 100 letters, digits"),
        ("'a.b', queue_name => 'a b'", "queue_name 'a b' must be"),
        ("'a.b', queue_name => 'ä'", "queue_name 'ä' must be"),
        ("'a.b', queue_name => 'a/b'", "queue_name 'a/b' must be"),
        ("'a.b', queue_name => 'a' || chr(10)", "must be 1 to 100 letters"),
        ("'a.b', queue_name => repeat('a', 101)", "must be 1 to 100 letters"),
        ("'a.b', priority => 101", "priority 101 must be from -100 to 100"),
        ("'a.b', priority => -101", "priority -101 must be from -100 to 100"),
        ("'a.b', run_after => now() + interval '101 years'", "is more than 100 years ahead"),
        ("'a.b', run_after => 'infinity'", "run_after infinity is more than 100 years ahead"),
        ("'a.b', run_after => '-infinity'", "or before the year 1"),
        ("'a.b', run_after => '0002-01-01 BC'", "or before the year 1"),
        ("'a.b', expires_at => now() - interval '1 second'", "is in the past"),
        ("'a.b', expires_at => 'infinity'", "expires_at infinity is more than 200 years ahead"),
        ("'a.b', max_attempts => 0", "max_attempts 0 must be at least 1"),
        ("'a.b', timeout => 0", "timeout 0 must be at least 1 second"),
        ("'a.b', timeout => -5", "timeout -5 must be at least 1 second"),
        ("'a.b', on_lost => 'maybe'", "on_lost 'maybe' must be 'rerun' or 'fail'"),
        (
            "'a.b', jsonb_build_array(repeat('x', 1048577))",
            r"take \d+ bytes as JSON, but the limit is 1048576",
        ),
        (
            "'a.b', '[1234]', options => '{\"max_json_bytes\": 9}'",
            "take 10 bytes as JSON, but the limit is 9",
        ),
        ("'a.b', options => '{\"color\": 1}'", "unknown option color"),
    ],
)
def test_what_is_wrong_is_said(arguments: str, message: str) -> None:
    with pytest.raises(DataError, match=f"(?s)pgqueue: .*{message}"), transaction.atomic():
        sql(f"SELECT pgqueue_enqueue({arguments})")
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        "'a.b', '[1]', options => '{\"max_json_bytes\": 7}'",
        "'a.b', priority => 100",
        "'a.b', priority => -100",
        "'a.b', queue_name => repeat('a', 100)",
        "'a.b', queue_name => 'A-z_0.9'",
        "'a._private'",
        "'a.' || repeat('b', 253)",
        "'a.b', run_after => now() + interval '99 years'",
        "'a.b', options => NULL",
        "'a.b', options => '{}'",
    ],
)
def test_what_is_just_right_is_taken(arguments: str) -> None:
    assert enqueued(arguments).status == "pending"


def test_a_time_in_the_past_is_now() -> None:
    job = enqueued("'a.b', run_after => '2001-01-01 UTC'")
    assert job.run_after == job.enqueued_at


def test_compressed_columns_are_measured_at_their_full_size() -> None:
    sql("CREATE TEMP TABLE big AS SELECT jsonb_build_array(repeat('x', 3000000)) AS args")
    assert sql("SELECT pg_column_size(args) FROM big") < 1_000_000
    with pytest.raises(DataError, match="take 3000008 bytes"), transaction.atomic():
        sql("SELECT pgqueue_enqueue('a.b', args) FROM big")


def test_the_stable_names_have_one_signature_each() -> None:
    counts = sql(
        "SELECT jsonb_object_agg(proname, count) FROM (SELECT proname, count(*) FROM pg_proc"
        " WHERE proname IN ('pgqueue_enqueue', 'pgqueue_cancel', 'pgqueue_retry') GROUP BY 1) AS found"
    )
    assert '"pgqueue_enqueue": 1' in str(counts)
    assert '"pgqueue_cancel": 1' in str(counts)
    assert '"pgqueue_retry": 1' in str(counts)


def test_an_unknown_name_is_an_error_of_the_server() -> None:
    with pytest.raises(ProgrammingError, match="does not exist"), transaction.atomic():
        sql("SELECT pgqueue_enqueue('a.b', colour => 1)")


def test_cancel_and_retry_by_plain_sql() -> None:
    first, second = enqueued("'a.b'").pk, enqueued("'a.b'").pk
    assert sql("SELECT pgqueue_cancel(ARRAY[%s, %s]::bigint[])", first, second) == [first, second]
    assert sql("SELECT pgqueue_retry(ARRAY[%s::bigint])", first) == [first]
    assert dict(Job.objects.values_list("pk", "status")) == {first: "pending", second: "cancelled"}


def test_the_check_of_a_job_is_inlined() -> None:
    """A call for each row costs more than the insert."""
    with connection.cursor() as cursor:
        cursor.execute(
            "EXPLAIN VERBOSE SELECT _pgqueue_problem("
            "path, '[]', '{}', '{}', queue, number, due, due, number, number, queue, number)"
            " FROM (VALUES ('a.b', 'mail', 1, now())) AS given (path, queue, number, due)"
            " WHERE number < random()"
        )
        plan = " ".join(row[0] for row in cursor.fetchall())
    assert "_pgqueue_problem" not in plan
