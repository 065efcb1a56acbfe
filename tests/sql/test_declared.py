"""SQL follows the policy that the code declares: the table pgqueue_task."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DataError, IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_pgqueue import Concurrency, RateLimit, Unique, enqueue, task
from django_pgqueue.checks.payloads import check_declared_tasks
from django_pgqueue.maintenance.payloads import synchronize_tasks
from django_pgqueue.models import DeclaredTask, Job
from django_pgqueue.models.queue import UniqueWindow
from tests.support.jobs import sql

pytestmark = pytest.mark.django_db

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


def test_the_issue_a_job_from_sql_goes_to_the_queue_that_its_task_declares() -> None:
    job = by_sql("send_receipt", ", '[1]'")
    assert (job.queue_name, job.priority, job.metadata) == ("mail", 7, {"kind": "receipt"})
    assert (job.max_attempts, job.timeout, job.on_lost) == (3, 60, "fail")
    assert job.expires_at is not None
    assert job.expires_at - job.run_after == timedelta(hours=1)


@pytest.mark.parametrize("name", ["send_receipt", "one_limit", "named_limit", "single"])
def test_a_job_from_sql_is_the_job_that_python_would_enqueue(name: str) -> None:
    columns = (
        "queue_name", "priority", "metadata", "max_attempts", "timeout", "on_lost", "limit_key", "group_key",
        "unique_key", "unique_scope",
    )  # fmt: skip
    declared: Any = getattr(tasks, name)
    python = enqueue(declared, 1) if name == "send_receipt" else enqueue(declared)
    wanted = Job.objects.filter(pk=python.pk).values(*columns).get()
    Job.objects.filter(pk=python.pk).update(unique_key=None, unique_scope=None)
    UniqueWindow.objects.all().delete()
    assert Job.objects.filter(pk=by_sql(name).pk).values(*columns).get() == wanted


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


def test_fixed_keys_are_filled_in() -> None:
    assert by_sql("one_limit").limit_key == f"{PATH}.one_limit"
    assert by_sql("named_limit").limit_key == "api"
    assert by_sql("named_limit", limit_key="7").limit_key == "api/7"
    assert by_sql("single").unique_key == f"{PATH}.single"
    with pytest.raises(IntegrityError), transaction.atomic():  # on_conflict="raise"
        by_sql("single")


def test_a_key_is_the_part_after_the_name_of_the_limit() -> None:
    job = by_sql("keyed", ", '[\"a\"]'", limit_key="a", group_key="g-a")
    python = enqueue(keyed, "a")
    assert (job.limit_key, job.group_key) == (python.limit_key, python.group_key) == ("tenants/a", "g-a")
    said = refusal("keyed", limit_key="tenants/a", group_key="g-a")
    assert "begins with the name of the limit" in said.message_primary
    assert said.message_hint.endswith("after the slash: a")


def test_a_task_that_is_not_in_the_table_has_its_path_as_limit() -> None:
    job = by_sql("unknown", limit_key="7")
    assert (job.limit_key, job.queue_name, job.priority) == (f"{PATH}.unknown/7", "default", 0)
    assert (job.metadata, job.max_attempts, job.on_lost) == ({}, None, None)


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


def test_nothing_has_changed_is_one_query() -> None:
    with CaptureQueriesContext(connection) as queries:
        synchronize_tasks("default")
    assert len(queries) == 1


def test_a_migrate_writes_the_table() -> None:
    DeclaredTask.objects.all().delete()
    call_command("migrate", verbosity=0)
    assert DeclaredTask.objects.get(pk=f"{PATH}.send_receipt").queue_name == "mail"


def test_a_task_that_this_version_does_not_know_keeps_its_row() -> None:
    DeclaredTask.objects.create(task_path="later.tasks.new", queue_name="later", priority=1)
    DeclaredTask.objects.filter(pk=f"{PATH}.single").delete()
    synchronize_tasks("default")
    assert DeclaredTask.objects.get(pk="later.tasks.new").queue_name == "later"
    assert DeclaredTask.objects.filter(pk=f"{PATH}.single").exists()


def test_a_check_tells_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["manage.py", "check"])

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


def test_new_options_count_from_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = replace(send_receipt, queue_name="bulk")
    assert by_sql("send_receipt").queue_name == "mail"
    monkeypatch.setattr(tasks, "send_receipt", newer)
    synchronize_tasks("default")
    assert by_sql("send_receipt").queue_name == "bulk"


def test_python_does_not_read_the_table() -> None:
    sql("ALTER TABLE pgqueue_task RENAME TO pgqueue_away")
    assert enqueue(send_receipt, 1).queue_name == "mail"
