"""A role for workers: it runs everything that workers run, and owns nothing."""

from __future__ import annotations

import json
import signal
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from django_pgqueue import enqueue
from django_pgqueue.checks.database import database_problems
from django_pgqueue.models import Job
from tests.app import step_tasks, worker_tasks as tasks
from tests.app.models import Entry
from tests.receipts.models import Order, Receipt, Reminder
from tests.support import databases as databases_module
from tests.support.commands import Start, forks, over, start, with_database  # noqa: F401 - the fixtures
from tests.support.factories import WorkerFactory
from tests.support.figures import fresh_ring
from tests.support.jobs import over as add_over, rotate, value
from tests.support.sessions import Connect
from tests.support.workers import fresh, run_due

from .conftest import PASSWORD, Login, Roles, changed, outcomes

#: The first makes triggers on a table, which only its owner may do: migrations call it. The other
#: sets a sequence.
BY_OWNERS = {"_pgqueue_attach_payload", "_pgqueue_name_shard"}


def test_every_function_runs(installed: Roles, login: Login, transactional_db: None) -> None:
    """The functions come from the catalogs, so that a new one needs a decision."""
    found = outcomes(login(installed.runner), enqueue(tasks.noop).pk)
    assert {name for name, outcome in found.items() if outcome == "42501"} == BY_OWNERS


def test_it_empties_history_without_the_right_to(installed: Roles, login: Login, connect: Connect) -> None:
    owner, runner = connect(autocommit=True), login(installed.runner)
    with fresh_ring(owner):
        old = add_over(owner, 2, "8 days", 3)
        assert rotate(runner) == "emptied shelf 2"
        assert not Job.objects.filter(pk__in=old).exists()


def test_workers_that_died_with_the_server_are_found_by_an_assumed_role(
    installed: Roles, connect: Connect
) -> None:
    """The role does not see when its own session began."""
    one = connect(autocommit=True)
    WorkerFactory.create(id=7)
    one.execute("UPDATE pgqueue_worker SET heartbeat_at = pg_postmaster_start_time() - interval '10 s'")
    one.execute(f"SET ROLE {installed.runner}")
    assert value(one, "SELECT count(backend_start) FROM pg_stat_get_activity(pg_backend_pid())") == 0
    assert value(one, "SELECT dead FROM _pgqueue_recover_dead(0.1, 0.5, 3, 100, 20)") == 1


def test_it_writes_what_the_code_declares(installed: Roles, login: Login, transactional_db: None) -> None:
    worker, web = login(installed.runner), login(installed.web)
    row = json.dumps([{"task_path": "a.declared", "queue_name": "mail", "priority": 3, "metadata": {}}])
    assert value(worker, "SELECT _pgqueue_declare_tasks(%s::jsonb)", row) == 1
    assert value(worker, "SELECT _pgqueue_declare_tasks(%s::jsonb)", row) == 0
    job = value(web, "SELECT pgqueue_enqueue('a.declared')")
    assert Job.objects.get(pk=job).queue_name == "mail", "a role that may only enqueue follows it, too"
    worker.execute("DELETE FROM pgqueue_task WHERE task_path = 'a.declared'")


@pytest.mark.parametrize("statement", [
    "ALTER TABLE pgqueue_job ADD COLUMN more integer",
    "ALTER TABLE pgqueue_job_live DISABLE TRIGGER ALL",
    "TRUNCATE pgqueue_job_past_1",
    "DROP TABLE pgqueue_job_past_1",
    "CREATE TABLE public.mine (id bigint)",
    "CREATE FUNCTION public.mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "ALTER FUNCTION _pgqueue_rotate() SECURITY INVOKER",
    "DROP FUNCTION _pgqueue_rotate()",
    "SET ROLE postgres",
])  # fmt: skip
@pytest.mark.promise("worker-owns-nothing")
def test_it_owns_nothing(installed: Roles, login: Login, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        login(installed.runner).execute(statement)


def test_a_worker_process_works_with_this_role(
    installed: Roles,
    login: Login,
    connect: Connect,
    start: Start,  # noqa: F811
) -> None:
    owner = connect(autocommit=True)
    # What a project does for its own tables.
    owner.execute(
        f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "{installed.worker}"'
    )
    owner.execute(f'GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO "{installed.worker}"')
    command = start(env=with_database(USER=installed.runner, PASSWORD=PASSWORD))
    command.workers()
    jobs = [
        enqueue(tasks.add, 40, 2), enqueue(tasks.note, "by a role"), enqueue(tasks.fail, "twice"),
        enqueue(tasks.add.using(run_after=timedelta(milliseconds=50)), 1),
    ]  # fmt: skip
    # Its own session wakes it for a job of somebody who may only enqueue.
    query = "SELECT pgqueue_enqueue('tests.app.worker_tasks.add', '[1, 1]', queue_name => 'default')"
    other = value(login(installed.web), query)
    over(*jobs, other)
    statuses = [Job.objects.get(pk=job.pk).status for job in jobs]
    assert statuses == ["done", "done", "failed", "done"], command.log
    assert Job.objects.get(pk=other).result == 2
    assert Entry.objects.get().key == "by a role"
    assert "permission denied" not in command.log
    assert "must be owner" not in command.log
    # What no job depends on is left out if the server refuses it.
    owner.execute(
        "REVOKE ALL ON pgqueue_progress, pgqueue_stat, pgqueue_stat_rollup, pgqueue_failure_note,"
        f' pgqueue_failure_group, pgqueue_failure_count, pgqueue_alert FROM "{installed.worker}"'
    )
    try:
        stray = enqueue(tasks.add.using(run_after=timedelta(hours=1)), 1, 1)
        owner.execute(
            "UPDATE pgqueue_job_live SET status = 'running', attempts = 1, lease = 5, worker = 5,"
            " marks = 8, run_after = now(), last_attempted_at = now() - interval '1 hour' WHERE id = %s",
            [stray.pk],
        )
        told = enqueue(tasks.add.using(run_after=timedelta(milliseconds=50)), 40, 2)
        owner.execute("UPDATE pgqueue_job_live SET marks = 8 WHERE id = %s", [told.pk])  # it had told some
        waits = enqueue(step_tasks.waits_for_entry, "go on")
        command.logged("the server refuses to store the progress of jobs, which is left out")
        Entry.objects.create(key="go on")
        over(told, waits)
        command.logged("the server refuses to store what a sweep sums up and deletes")
        over(stray)  # a job of a worker that is not registered depends on the sweep
        command.send(signal.SIGTERM)
        assert command.wait() == 0, command.log
        assert [Job.objects.get(pk=job.pk).status for job in (told, waits)] == ["done", "failed"]
        assert Job.objects.get(pk=waits.pk).crash_count == 0
        assert "the server refuses to store the statistics of tasks, which is left out" in command.log
        assert command.log.count("the progress of jobs, which is left out") == 1
    finally:
        call_command("pgqueue", "roles", "--apply", *installed.arguments)


@pytest.mark.parametrize("model", [Receipt, Reminder])
def test_a_payload_that_a_policy_hides_fails_the_attempt(
    installed: Roles, connect: Connect, model: Any
) -> None:
    owner = connect(autocommit=True)
    owner.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA public TO "{installed.worker}"')
    job = model.objects.create(order=Order.objects.create(), email="a@b.c").job
    statement = f"ALTER TABLE {model._meta.db_table} %s ROW LEVEL SECURITY"
    # Without a policy, nobody but the owner sees rows.
    with changed(owner, statement % "ENABLE", statement % "DISABLE"):
        with databases_module.database_settings(USER=installed.runner, PASSWORD=PASSWORD):
            connection.close()
            run_due()
            (message,) = database_problems("default")
        connection.close()
        assert database_problems("default") == [], "the owner sees all rows"
    (error,) = fresh(job).errors
    assert "or row-level security hides it from this role" in error["message"]
    assert fresh(job).status in {"retry", "failed"}
    assert (message.id, model._meta.db_table in message.msg) == ("pgqueue.W015", True)
