"""What a running job does now: its stack, from whatever it runs in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.db.transaction import TransactionManagementError
from django.test import Client
from django.urls import reverse

from django_pgqueue import Job, enqueue
from django_pgqueue.models import JobStack
from django_pgqueue.postgres import session as sessions
from django_pgqueue.worker.producer import connection as producer_connection, inbox
from tests.app import process_tasks
from tests.app.worker_tasks import DEADLINE, gate, held
from tests.support.jobs import sql
from tests.support.sessions import Connect
from tests.support.wording import shown
from tests.support.workers import fresh, until, working

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def waiting(*names: str, task: Any = process_tasks.waits) -> Iterator[Any]:
    """Yield jobs that run and wait, until the end of the block."""
    with working(threads=len(names)), held(*names, task=task) as jobs:
        yield jobs


def functions(stack: str) -> list[str]:
    """Return the functions of a stack, the outermost first."""
    return [line.rpartition(" in ")[2] for line in stack.splitlines() if line.startswith("  File ")]


def call_worker(job: Job) -> None:
    """Let the worker look at a job."""
    sql("SELECT pg_notify(_pgqueue_channel(), %s)", f"stack {job.pk}")


@pytest.mark.parametrize(("task", "first"), [
    (process_tasks.waits, ["waits", "pieces", "innermost", "wait"]),
    (process_tasks.waits_with_timeout, ["waits_with_timeout", "pieces", "innermost", "wait"]),
    (process_tasks.waits_async, ["waits_async", "outer", "numbers", "sleep"]),
    (process_tasks.computes_async, ["computes_async", "innermost", "wait"]),
], ids=["sync", "with a timeout", "async, while it waits", "async, while it computes"])  # fmt: skip
def test_the_frames_of_the_task_and_no_others_without_values(task: Any, first: list[str]) -> None:
    with waiting("a", task=task) as job:
        until(lambda: first[-1] in functions(job.stack()))
        stack = job.stack()
    assert functions(stack)[: len(first)] == first
    assert "innermost(name)" in stack or "await asyncio.sleep(0.05)" in stack  # the lines of the code
    assert "the value of" not in stack


def test_an_isolated_job_is_shown_from_its_process() -> None:
    job = enqueue(process_tasks.sleeps_long)
    sql("UPDATE pgqueue_job_live SET crash_count = 1 WHERE id = %s", job.pk)
    with working():
        until(lambda: Job.objects.filter(pk=job.pk, status="running").exists())
        stack = until(lambda: job.stack(DEADLINE))
        job.cancel()
    assert functions(stack) == ["sleeps_long"]


def test_a_worker_without_notifications_finds_the_request(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.PGQUEUE = {**settings.PGQUEUE, "POLL_INTERVAL": 0.2}

    def connect_pooled(alias: str) -> sessions.Session:
        session = sessions.connect(alias)
        session.pooled = True
        return session

    monkeypatch.setattr(producer_connection, "connect", connect_pooled)
    with waiting("a") as job:
        assert "innermost" in job.stack(DEADLINE)


def test_a_request_that_is_locked_does_not_hold_up_the_worker(connect: Connect) -> None:
    """Race: someone has asked, and asks again in a transaction that stays open."""
    asker = connect()
    with waiting("a", "b") as (job, other):
        JobStack.objects.create(job_id=job.pk, lease=fresh(job).lease or 0)
        asker.execute("SELECT FROM pgqueue_stack FOR UPDATE")
        call_worker(job)
        assert "innermost" in other.stack(DEADLINE)
        asker.rollback()
        assert "innermost" in job.stack(DEADLINE)


def test_the_request_of_an_earlier_attempt_is_not_answered_by_this_one() -> None:
    with waiting("a", "b") as (job, other):
        JobStack.objects.create(job_id=job.pk, lease=1)
        call_worker(job)
        assert other.stack(DEADLINE)  # so the worker has looked
    assert JobStack.objects.get(pk=job.pk).taken_at is None


@pytest.mark.parametrize(("ask", "error", "words"), [
    (lambda job: job.stack(), ValueError, "does not run"),
    (lambda job: transaction.atomic(job.stack)(), TransactionManagementError, "outside of atomic"),
    (lambda job: call_command("pgqueue", "stack", str(job.pk)), CommandError, "does not run"),
    (lambda job: call_command("pgqueue", "stack", "1000000"), CommandError, "There is no job 1000000."),
], ids=["pending", "in a transaction", "command", "no such job"])  # fmt: skip
def test_what_cannot_be_shown(ask: Callable[[Job], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        ask(enqueue(process_tasks.waits, "a"))


def test_a_worker_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "write_stacks", lambda session, jobs: None)
    with waiting("a") as job, pytest.raises(TimeoutError, match=r"has not answered within 0\.1 s"):
        job.stack(0.1)


def test_the_command_shows_it_and_stacks_of_yesterday_are_deleted() -> None:
    JobStack.objects.create(job_id=5, lease=1)
    sql("UPDATE pgqueue_stack SET requested_at = now() - interval '25 hours'")
    out = StringIO()
    with waiting("a") as job:
        call_command("pgqueue", "stack", str(job.pk), stdout=out)
    assert functions(out.getvalue())[:3] == ["waits", "pieces", "innermost"]
    assert list(JobStack.objects.values_list("pk", flat=True)) == [job.pk]


def test_a_job_whose_process_is_replaced_keeps_the_stack_of_that_moment(settings: Any) -> None:
    settings.PGQUEUE = {**settings.PGQUEUE, "TIMEOUT_GRACE": 0.0}
    job = enqueue(process_tasks.waits_with_timeout, "a")
    Job.objects.update(timeout=1, max_attempts=1)
    with working():
        until(lambda: fresh(job).is_finished)
        gate("a").set()
    (error,) = fresh(job).errors
    assert "its process was replaced" in error["message"]
    assert functions(error["traceback"])[:3] == ["waits_with_timeout", "pieces", "innermost"]


def test_the_page_of_the_job_shows_it(admin_client: Client) -> None:
    with waiting("a") as job:
        page = reverse("admin:django_pgqueue_job_change", args=[job.pk])
        assert "Show the stack" in admin_client.get(page).content.decode()
        answer = admin_client.post(reverse("admin:django_pgqueue_job_stack", args=[job.pk]))
        assert answer["Location"] == f"{page}#pgqueue-stack"
        seen = until(lambda: shown(admin_client.get(page).content).partition("the innermost call last.")[2])
        assert ", in waits return sum(pieces(name)) File " in seen
        JobStack.objects.update(taken_at=None, lines="")
        assert "The worker has not answered yet." in shown(admin_client.get(page).content)
        JobStack.objects.update(lease=1)
        assert "The worker has not answered yet." not in shown(admin_client.get(page).content)
    assert "Show the stack" not in admin_client.get(page).content.decode()
    late = admin_client.post(reverse("admin:django_pgqueue_job_stack", args=[job.pk]), follow=True)
    assert "The job does not run any more." in late.content.decode()


def test_in_a_request_that_is_one_transaction_it_is_only_requested(admin_client: Client) -> None:
    with waiting("a") as job:
        with transaction.atomic():
            admin_client.post(reverse("admin:django_pgqueue_job_stack", args=[job.pk]))
            assert JobStack.objects.get().taken_at is None
        until(lambda: JobStack.objects.get().taken_at)
