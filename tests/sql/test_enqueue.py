"""Functions that users call in SQL: what ``pgqueue_enqueue`` stores and refuses, its context, progress, the
policy that a worker fills in, and the one that the code declares.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError, IntegrityError, transaction
from django.db.models import F
from pytest_django import DjangoAssertNumQueries

from django_pgqueue import Concurrency, RateLimit, Unique, enqueue, task
from django_pgqueue.checks.payloads import check_declared_tasks
from django_pgqueue.maintenance.payloads import synchronize_tasks
from django_pgqueue.models import DeclaredTask, Job, JobProgress
from django_pgqueue.models.queue import UniqueWindow
from tests.app.tasks import noop
from tests.support.jobs import add, claim, sql
from tests.support.sessions import Connection
from tests.support.workers import fresh

pytestmark = pytest.mark.django_db


def enqueued(arguments: str) -> Job:
    return Job.objects.get(pk=sql(f"SELECT pgqueue_enqueue({arguments})"))


def test_a_path_is_enough() -> None:
    job = enqueued("'shop.tasks.send'")
    assert (job.task_path, job.args, job.kwargs, job.metadata) == ("shop.tasks.send", [], {}, {})
    assert (job.status, job.queue_name, job.priority) == ("pending", "default", 0)
    assert job.run_after == job.enqueued_at
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
    assert (job.queue_name, job.priority, job.max_attempts) == ("mail", 5, 2)
    assert (job.timeout, job.on_lost) == (30, "fail")
    assert job.run_after.isoformat() == "2060-01-02T03:04:00+00:00"
    assert job.expires_at is not None
    assert job.expires_at.isoformat() == "2060-01-03T00:00:00+00:00"


def refused(query: str, *parameters: Any) -> str:
    """Return what the error of a statement says."""
    with pytest.raises(DataError) as caught, transaction.atomic():
        sql(query, *parameters)
    diagnostics: Any = caught.value.__cause__.diag  # type: ignore[union-attr]
    return f"{diagnostics.sqlstate} {diagnostics.message_primary}"


BAD = r"""
''
NULL
'send'
'a b.c'
'a..b'
E'a.b\n'
'a.1b'
'a.' || repeat('b', 254)
'a.b', '{}'
'a.b', NULL
'a.b', '[]', '[]'
'a.b', '[]', NULL
'a.b', metadata => '1'
'a.b', queue_name => ''
'a.b', queue_name => 'a b'
'a.b', queue_name => 'ä'
'a.b', queue_name => 'a/b'
'a.b', queue_name => 'a' || chr(10)
'a.b', queue_name => repeat('a', 101)
'a.b', priority => 101
'a.b', priority => -101
'a.b', run_after => '2200-01-01 UTC'
'a.b', run_after => 'infinity'
'a.b', run_after => '-infinity'
'a.b', run_after => '0002-01-01 BC'
'a.b', expires_at => now() - interval '1 second'
'a.b', expires_at => 'infinity'
'a.b', max_attempts => 0
'a.b', timeout => 0
'a.b', timeout => -5
'a.b', on_lost => 'maybe'
'a.b', jsonb_build_array(repeat('x', 1048577))
'a.b', '[1234]', options => '{"max_json_bytes": 9}'
'a.b', options => '{"color": 1}'
"""
BAD_CONTEXTS: list[Any] = [
    [], {"lang": "de"}, {"language": 5}, {"language": "../de"}, {"trace": "00-"},
    {"trace": {"traceparent": None}}, {"user": None}, {"vars": [1]}, {"vars": {"a.b": "x" * 17_000}},
]  # fmt: skip


def test_what_is_wrong_is_said(wording: Any) -> None:
    said = [refused(f"SELECT pgqueue_enqueue({arguments})") for arguments in BAD.strip().splitlines()]
    for context in BAD_CONTEXTS:
        options = json.dumps({"context": context})
        said.append(refused("SELECT pgqueue_enqueue('a.b', options => %s)", options))
    assert not Job.objects.exists()
    assert "\n".join(said) == wording


@pytest.mark.parametrize("arguments", [
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
])  # fmt: skip
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
    names = ["pgqueue_cancel", "pgqueue_enqueue", "pgqueue_retry"]
    query = "SELECT array_agg(proname::text ORDER BY proname) FROM pg_proc WHERE proname = ANY (%s)"
    assert sql(query, names) == names


# -- context

TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


def with_options(options: dict[str, Any]) -> Job:
    return Job.objects.get(pk=sql("SELECT pgqueue_enqueue('a.b', options => %s)", json.dumps(options)))


@pytest.mark.parametrize("more", [{}, {"group_key": "g"}, {"unique_key": "k"}, {"limit_key": "a/b"}])
def test_it_is_stored_with_all_other_options(more: dict[str, str]) -> None:
    context = {"trace": TRACE, "language": "pt-br", "user": "u-5", "vars": {"a.b": None}}
    job = with_options({"context": context, **more})
    assert (job.context, job.traceparent, job.user_id) == (context, TRACE["traceparent"], "u-5")


def test_a_worker_in_another_language_gets_it() -> None:
    with_options({"context": {"trace": TRACE}})
    worker = sql("SELECT pgqueue_register_worker('go-1', '{}')")
    assert sql("SELECT context FROM pgqueue_claim('{}', 1, %s)", worker) == json.dumps({"trace": TRACE})


# -- progress


def running() -> Any:
    job = enqueue(noop)
    sql("UPDATE pgqueue_job_live SET status = 'running', lease = 7 WHERE id = %s", job.pk)
    return job


def report(*values: Any) -> Any:
    return sql(f"SELECT pgqueue_progress({', '.join(['%s'] * len(values))})", *values)


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


def test_bad_numbers_are_refused(wording: Any) -> None:
    job = running().pk
    bad: list[Any] = [(None,), (-1,), ("NaN",), ("Infinity",), (1, -1), (1, "NaN")]
    said = [refused(f"SELECT pgqueue_progress(%s{', %s' * len(values)})", job, *values) for values in bad]
    assert "\n".join(said) == wording


@pytest.mark.parametrize("values", [{"done": -1}, {"done": float("nan")}, {"done": 1, "total": float("inf")}])
def test_the_table_refuses_them_too(values: dict[str, float]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        JobProgress.objects.create(job=running(), **values)


# -- the policy that a worker fills in


def fill(one: Connection, job: int, lease: int = 1) -> list[int]:
    """Fill in the policy: max_attempts, timeout, on_lost, expires_after."""
    policy = (5, 30, "fail", 7200.0)
    types = ("bigint", "bigint", "integer", "integer", "text", "float")
    query = f"SELECT _pgqueue_fill_policy({', '.join(f'%s::{name}[]' for name in types)})"
    return [row[0] for row in one.execute(query, ([job], [lease], *([value] for value in policy))).fetchall()]


def test_what_plain_sql_left_open_is_filled_in(one: Connection) -> None:
    (job,) = add(one, task_path="a.b")
    claim(one)
    fill(one, job, lease=2)
    assert Job.objects.get(pk=job).max_attempts is None, "the job of another claim"
    assert fill(one, job) == []
    found = Job.objects.get(pk=job)
    assert (found.max_attempts, found.timeout, found.on_lost) == (5, 30, "fail")
    assert found.expires_at == found.run_after + timedelta(hours=2)
    assert found.last_attempted_at is not None
    assert found.deadline == found.last_attempted_at + timedelta(seconds=30)


def test_what_was_given_stays(one: Connection) -> None:
    (job,) = add(one, max_attempts=2, timeout=10, on_lost="rerun", expires_at="2090-01-01 UTC")
    claim(one)
    before = Job.objects.values().get(pk=job)
    assert fill(one, job) == []
    assert Job.objects.values().get(pk=job) == before


# --- SQL follows the policy that the code declares: the table pgqueue_task


PATH = __name__
tasks = sys.modules[__name__]


# With a policy and without keys; limits for all jobs, and under a name; keys that are fixed, and computed.


@task(
    queue_name="mail",
    priority=7,
    max_attempts=3,
    timeout=60,
    expires_after=timedelta(hours=1),
    on_lost="fail",
    metadata={"kind": "receipt"},
)
def send_receipt(order_id: int) -> None: ...


@task(concurrency=2)
def one_limit() -> None: ...


@task(rate_limit=RateLimit(5, per=60, key=(), name="api"))
def named_limit() -> None: ...


@task(concurrency=Concurrency(1, key="tenant", name="tenants"), group=lambda tenant: f"g-{tenant}")
def keyed(tenant: str) -> None: ...


@task(unique=Unique(key=(), scope="live", window=60, on_conflict="raise"))
def single() -> None: ...


@task(unique=Unique(key="number", on_conflict="earliest"))
def numbered(number: int) -> None: ...


@pytest.fixture(autouse=True)
def declared() -> None:
    synchronize_tasks("default")


def by_sql(name: str, more: str = "", **options: Any) -> Job:
    given = f", options => '{json.dumps(options)}'" if options else ""
    return Job.objects.get(pk=sql(f"SELECT pgqueue_enqueue('{PATH}.{name}'{more}{given})"))


def refusal(name: str, **options: Any) -> Any:
    with pytest.raises(DataError) as caught, transaction.atomic():
        by_sql(name, **options)
    error: Any = caught.value.__cause__
    assert error.sqlstate == "22023"
    return error.diag


@pytest.mark.parametrize("name", ["send_receipt", "one_limit", "named_limit", "single"])
def test_a_job_from_sql_is_the_job_that_python_would_enqueue(name: str) -> None:
    columns = (
        "queue_name", "priority", "metadata", "max_attempts", "timeout", "on_lost", "limit_key", "group_key",
        "unique_key", "unique_scope",
    )  # fmt: skip
    stored = Job.objects.annotate(lifetime=F("expires_at") - F("run_after")).values(*columns, "lifetime")
    declared: Any = getattr(tasks, name)
    python = enqueue(declared, 1) if name == "send_receipt" else enqueue(declared)
    wanted = stored.get(pk=python.pk)
    Job.objects.filter(pk=python.pk).update(unique_key=None, unique_scope=None)
    UniqueWindow.objects.all().delete()
    assert stored.get(pk=by_sql(name).pk) == wanted


def test_what_the_caller_says_wins() -> None:
    job = by_sql(
        "send_receipt",
        ", queue_name => 'other', priority => 0, metadata => '{}', max_attempts => 9, timeout => 5,"
        " on_lost => 'rerun', expires_at => now() + interval '1 day'",
    )
    assert (job.queue_name, job.priority, job.metadata) == ("other", 0, {})
    assert (job.max_attempts, job.timeout, job.on_lost) == (9, 5, "rerun")
    assert job.expires_at is not None
    assert job.expires_at - job.run_after > timedelta(hours=23)


def test_a_key_is_the_part_after_the_name_of_the_limit() -> None:
    job = by_sql("keyed", ", '[\"a\"]'", limit_key="a", group_key="g-a")
    python = enqueue(keyed, "a")
    assert (job.limit_key, job.group_key) == (python.limit_key, python.group_key) == ("tenants/a", "g-a")
    assert by_sql("named_limit", limit_key="7").limit_key == "api/7"
    said = refusal("keyed", limit_key="tenants/a", group_key="g-a")
    assert "begins with the name of the limit" in said.message_primary
    assert said.message_hint.endswith("after the slash: a")


@pytest.mark.parametrize(("name", "given", "missing"), [
    ("keyed", {"group_key": "a"}, "limit_key"), ("keyed", {"limit_key": "a"}, "group_key"),
    ("numbered", {}, "unique_key"),
])  # fmt: skip
def test_a_key_that_only_the_code_can_compute_must_be_given(
    name: str, given: dict[str, str], missing: str
) -> None:
    said = refusal(name, **given)
    assert said.message_primary.startswith(f"pgqueue: the option {missing} is missing, which {PATH}.{name}")
    assert f"""options => '{{"{missing}": ...}}'""" in said.message_hint


def test_null_is_no_key() -> None:
    job = by_sql("keyed", limit_key=None, group_key=None)
    assert (job.limit_key, job.group_key) == (None, None)
    assert by_sql("one_limit", limit_key=None).limit_key is None
    assert [by_sql("numbered", unique_key=None).unique_key for _ in range(2)] == [None, None]
    assert by_sql("single", unique_key=None).unique_key is None


def test_a_unique_key_follows_the_rules_of_the_task() -> None:
    first = by_sql("numbered", ", '[1]', run_after => now() + interval '1 hour'", unique_key="n/1")
    again = by_sql("numbered", ", '[1]'", unique_key="n/1")
    assert again.pk == first.pk
    assert again.run_after < first.run_after, "on_conflict='earliest'"
    assert by_sql("numbered", ", '[2]'", unique_key="n/2", unique_scope="live").unique_scope == "live"
    by_sql("single")
    with pytest.raises(IntegrityError), transaction.atomic():  # on_conflict="raise"
        by_sql("single")


def test_a_check_tells_what_differs(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    monkeypatch.setattr("sys.argv", ["manage.py", "check"])
    with django_assert_num_queries(1):  # nothing does, so nothing is locked
        synchronize_tasks("default")

    def found() -> list[Any]:
        return [each for each in check_declared_tasks(None, ["default"]) if each.id == "pgqueue.W010"]

    assert found() == []
    DeclaredTask.objects.filter(pk=f"{PATH}.send_receipt").update(queue_name="old", priority=1)
    DeclaredTask.objects.filter(pk=f"{PATH}.single").delete()
    (warning,) = found()
    assert f"{PATH}.send_receipt (queue_name, priority), {PATH}.single (is missing)." in warning.msg
    assert "manage.py migrate --database default" in warning.hint
    monkeypatch.setattr("sys.argv", ["manage.py", "migrate"])
    assert found() == [], "the command mends it"


def test_python_does_not_read_the_table() -> None:
    sql("ALTER TABLE pgqueue_task RENAME TO pgqueue_away")
    assert enqueue(send_receipt, 1).queue_name == "mail"
