"""``call_command("runqueueworker", burst=True)`` in a test: the worker processes work on the test's database.

As in every project while its tests run, the settings that the processes read name another database. Here, it
does not exist, so that a process fails that opens it.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from django.test import TestCase

from django_pgqueue import enqueue
from django_pgqueue.models import Job, Worker
from django_pgqueue.postgres import aliases
from django_pgqueue.worker.supervisor import supervisor
from tests.app import process_tasks, worker_tasks as tasks
from tests.support.commands import with_database
from tests.support.databases import roles
from tests.support.factories import JobFactory
from tests.support.jobs import sql
from tests.support.schedules import jobs_of, outcomes, overdue
from tests.support.workers import fresh

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGCHLD)


def burst(**options: Any) -> None:
    call_command("runqueueworker", burst=True, **options)


def database() -> str:
    return str(connection.settings_dict["NAME"])


@pytest.fixture
def _elsewhere(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of the processes name another database."""
    for name, value in with_database(NAME="real").items():
        monkeypatch.setenv(name, value)


def open_files() -> int:
    """Number of open descriptors, without those that only wait for the garbage collector."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def another_role(password: str) -> Iterator[str]:
    """Change the role of the database in the settings, and its password."""
    settings = connections.settings["default"]
    before = {name: settings[name] for name in ("USER", "PASSWORD")}
    with roles("tester") as (role,):
        sql(f"ALTER ROLE \"{role}\" LOGIN PASSWORD '{password}'")
        sql(f'GRANT "{settings["USER"]}" TO "{role}"')
        settings.update(USER=role, PASSWORD=password)
        try:
            yield role
        finally:
            settings.update(before)


@pytest.mark.usefixtures("_elsewhere")
def test_a_burst_runs_what_is_due_in_the_test_database_with_a_password_that_no_other_user_sees(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It sends no mail, as the test itself, and begins no work of schedules."""
    secret = "not-for-everybody"
    path, schedule = process_tasks.where_it_runs.module_path, overdue()
    # One runs in the worker process, and one in a process of its own.
    jobs = [JobFactory.create(task_path=path, args=[secret], crash_count=count) for count in (0, 1)]
    logged, left = (enqueue(tasks.noop.using(queue_name=name)) for name in ("mail", "left"))
    handlers = [signal.getsignal(number) for number in HANDLED]
    sql("SET application_name TO 'the test'")
    files = open_files()
    with another_role(secret) as role:
        burst(queues=["default", "mail"], verbosity=2)
    assert open_files() <= files
    assert sql("SHOW application_name") == "the test"  # in the same session
    assert [signal.getsignal(number) for number in HANDLED] == handlers
    for job in map(fresh, jobs):
        assert job.status == "done", job.errors
        assert job.result == {"database": database(), "user": role, "told by": [], "mails": 1}
    assert (fresh(left).status, jobs_of(schedule), outcomes(schedule)) == ("pending", [], [])
    assert not Worker.objects.exists()
    said = capfd.readouterr().err
    assert f"job {logged.pk} tests.app.worker_tasks.noop done (queue mail, attempt 1" in said
    assert f"job {jobs[1].pk} has crashed before and runs isolated in process" in said


@pytest.mark.usefixtures("forks_here", "_elsewhere")
def test_a_database_that_was_changed_before_setup_is_noticed_by_the_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a change cannot be seen in the supervisor, because its settings may have had this value."""
    monkeypatch.setattr(aliases, "_remembered", None)
    aliases.remember()
    monkeypatch.setattr(supervisor, "STILLBIRTHS", 1)
    job = enqueue(tasks.noop)
    with pytest.raises(
        CommandError, match=f"uses the database '{database()}', but the settings of .* 'real'"
    ):
        burst()
    assert fresh(job).status == "pending"


@pytest.mark.django_db(transaction=True)
def test_a_value_that_cannot_travel_is_refused_if_it_was_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings["default"]["OPTIONS"], "context", object())
    with pytest.raises(CommandError, match=r"\['OPTIONS'\] was changed .* cannot be sent to worker proc"):
        burst()


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
    with transaction.atomic(), pytest.raises(CommandError, match=r"outside of transaction\.atomic"):
        burst()
