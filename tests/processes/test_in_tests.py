"""``call_command("runqueueworker", burst=True)`` in a test: the worker processes work on the test's database.

As in every project while its tests run, the settings that the processes read name another database.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from django.test import TestCase

from django_pgqueue import enqueue
from django_pgqueue.models import Job, Worker
from tests.app import process_tasks
from tests.app import worker_tasks as tasks
from tests.support.commands import Command
from tests.support.databases import alias, fresh_database, migrate, roles
from tests.support.factories import JobFactory
from tests.support.sessions import open_raw
from tests.support.workers import fresh

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGCHLD)


def burst(**options: Any) -> None:
    call_command("runqueueworker", burst=True, **options)


def test_database() -> str:
    return str(connection.settings_dict["NAME"])


test_database.__test__ = False  # type: ignore[attr-defined]


@pytest.fixture
def real_database(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The database that the settings name for the started processes. A job waits in it."""
    with fresh_database() as name:
        with alias("real", NAME=name) as real:
            migrate(real)
            enqueue(tasks.noop.using(database=real))
        url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}")
        monkeypatch.setenv("DATABASE_URL", url.geturl())
        yield name


def open_files() -> int:
    """Number of open descriptors, without those that only wait for the garbage collector."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def result_of(job: Job) -> Any:
    found = fresh(job)
    assert found.status == "done", found.errors
    return found.result


def jobs_and_workers(database: str) -> tuple[list[str], int]:
    """Return the statuses of all jobs in a database, and how many workers have ever registered there."""
    with (
        open_raw() as own,
        psycopg.connect(own.info.dsn, dbname=database, password=own.info.password) as there,
    ):
        statuses = [status for (status,) in there.execute("SELECT status FROM pgqueue_job")]
        row = there.execute("SELECT count(*) FROM pgqueue_worker").fetchone()
    assert row is not None
    return statuses, row[0]


def test_a_burst_runs_the_jobs_of_the_test_database_and_none_of_the_real_one(real_database: str) -> None:
    handlers = [signal.getsignal(number) for number in HANDLED]
    job = enqueue(process_tasks.where_it_runs, "no secret")
    with connection.cursor() as cursor:
        cursor.execute("SET application_name TO 'the test'")
    files = open_files()
    burst(processes=2)
    assert jobs_and_workers(real_database) == (["pending"], 0)
    assert result_of(job)["database"] == test_database()
    assert [signal.getsignal(number) for number in HANDLED] == handlers
    assert open_files() <= files
    with connection.cursor() as cursor:  # the same session
        cursor.execute("SHOW application_name")
        assert cursor.fetchone() == ("the test",)
    burst()


def test_the_process_of_an_isolated_job_works_there_too(real_database: str) -> None:
    job = JobFactory.create(
        task_path=process_tasks.where_it_runs.module_path, args=["no secret"], crash_count=1
    )
    burst()
    result = result_of(job)
    assert result["database"] == test_database()
    assert result["pid"] not in Worker.objects.values_list("pid", flat=True), "it ran in the worker"
    assert jobs_and_workers(real_database) == (["pending"], 0)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("crash_count", [0, 1], ids=["worker", "isolated"])
def test_mail_goes_nowhere_as_in_the_test_itself(crash_count: int) -> None:
    job = JobFactory.create(task_path=process_tasks.send_mail.module_path, args=[], crash_count=crash_count)
    burst()
    assert result_of(job) == 1


@pytest.mark.parametrize("crash_count", [0, 1], ids=["worker", "isolated"])
def test_a_changed_password_is_handed_over_and_no_other_user_sees_it(
    real_database: str, crash_count: int
) -> None:
    secret = "not-for-everybody"
    job = JobFactory.create(
        task_path=process_tasks.where_it_runs.module_path, args=[secret], crash_count=crash_count
    )
    settings = connections.settings["default"]
    before = {name: settings[name] for name in ("USER", "PASSWORD")}
    with roles("tester") as (role,):
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER ROLE \"{role}\" LOGIN PASSWORD '{secret}'")
            cursor.execute(f'GRANT "{settings["USER"]}" TO "{role}"')
        settings.update(USER=role, PASSWORD=secret)
        try:
            burst()
        finally:
            settings.update(before)
    result = result_of(job)
    assert (result["database"], result["user"]) == (test_database(), role)
    assert result["told by"] == []


def test_a_value_that_cannot_travel_is_refused_if_it_was_changed(real_database: str) -> None:
    options = connections.settings["default"]["OPTIONS"]
    options["context"] = object()
    job = enqueue(tasks.noop)
    try:
        with pytest.raises(CommandError, match=r"\['OPTIONS'\] was changed .* cannot be sent to worker proc"):
            burst()
    finally:
        del options["context"]
    assert fresh(job).status == "pending"
    assert jobs_and_workers(real_database) == (["pending"], 0)


class InTestCase(TestCase):
    """The connection is in a transaction, so no process could see the test's jobs."""

    def test_the_command_is_refused_and_the_connection_works_afterwards(self) -> None:
        job = enqueue(tasks.noop)
        with pytest.raises(CommandError, match=r"run_jobs\(\) of .*testing.*TransactionTestCase"):
            burst()
        assert Job.objects.get().pk == job.pk
        assert fresh(job).status == "pending"
        assert not Worker.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_inside_a_transaction_the_command_is_refused() -> None:
    with transaction.atomic():
        job = enqueue(tasks.noop)
        with pytest.raises(CommandError, match=r"outside of transaction\.atomic"):
            burst()
    assert fresh(job).status == "pending"


BEFORE_SETUP = """
import sys
from tests.processes.settings import *
if "django_pgqueue.worker" in sys.orig_argv:
    DATABASES["default"]["NAME"] = {name!r}
"""


def test_a_database_that_was_changed_before_setup_is_noticed_by_the_processes(
    start: Callable[..., Command], real_database: str, tmp_path: Path
) -> None:
    """Such a change cannot be seen in the supervisor, because its settings may have had this value."""
    (tmp_path / "changed.py").write_text(BEFORE_SETUP.format(name=real_database))
    job = enqueue(tasks.noop)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    command = start("--burst", env={"PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "changed"})
    assert command.wait() == 1
    assert f"the supervisor uses the database '{test_database()}', but the settings" in command.log
    assert fresh(job).status == "pending"
    assert jobs_and_workers(real_database) == (["pending"], 0)
