"""Calls from async code, under ASGI, with a router that reads from a replica, and without time zones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.core.handlers.asgi import ASGIHandler
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone

import django_pgqueue as ours
from django_pgqueue import (
    Batch,
    Snooze,
    cancel,
    current_job,
    edit,
    enqueue,
    extend,
    retry,
    task,
    why,
)
from django_pgqueue.admin.jobs.search import names_database_of
from django_pgqueue.compat import InvalidTask
from django_pgqueue.exceptions import moment
from django_pgqueue.maintenance.schedules import synchronize
from django_pgqueue.models import Job, JobBatch, Pause, Schedule, Worker
from django_pgqueue.models.changes import arun_now, run_now
from django_pgqueue.postgres import aliases
from django_pgqueue.shell import run_here
from django_pgqueue.tasks.routing import default_backend
from django_pgqueue.testing import assert_enqueued, dummy_jobs, run_jobs
from tests.app.models import Entry
from tests.app.tasks import mail, noop
from tests.support import jobs as support
from tests.support.databases import alias
from tests.support.factories import JobFactory, ScheduleFactory, WorkerFactory
from tests.support.sessions import Connect
from tests.support.waiting import DEADLINE, run, until
from tests.support.workers import fresh

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


# -- none of them blocks the event loop while the database makes it wait


TABLES = "pgqueue_job, pgqueue_worker, pgqueue_limit, pgqueue_pause"
LOCKED = "SELECT count(*) FROM pg_locks WHERE NOT granted"
SHORT = 5.0  # seconds


#: What is called, with a job and a result.
CALLS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "aenqueue": lambda given: ours.aenqueue(noop),
    "aenqueue_many": lambda given: ours.aenqueue_many([noop.bind()]),
    "acancel": lambda given: ours.acancel(given.job),
    "aretry": lambda given: ours.aretry(given.job),
    "arun_now": lambda given: arun_now(given.job),
    "aedit": lambda given: ours.aedit(given.job, priority=1),
    "awhy": lambda given: ours.awhy(given.job),
    "aextend": lambda given: ours.aextend(given.job, 60),
    "apause": lambda given: ours.apause(queue="some"),
    "aresume": lambda given: ours.aresume(queue="some"),
    "aset_limit": lambda given: ours.aset_limit(name="some", concurrency=2),
    "areset_limit": lambda given: ours.areset_limit(name="other"),
    "aon_shards": lambda given: ours.aon_shards(ours.reset_limit, name="other"),
    "asend_event": lambda given: ours.asend_event(given.job, "approved"),
    "adrain_worker": lambda given: ours.adrain_worker(7),
    "achain": lambda given: ours.achain([noop.bind(), noop.bind()]),
    "Task.aenqueue": lambda given: noop.aenqueue(),
    "Task.aget_result": lambda given: noop.aget_result(given.result.id),
    "TaskResult.arefresh": lambda given: given.result.arefresh(),
    "QuerySet.acancel": lambda given: Job.objects.filter(pk=given.job.pk).acancel(),
    "QuerySet.aretry": lambda given: Job.objects.filter(pk=given.job.pk).aretry(),
    "QuerySet.aedit": lambda given: Job.objects.filter(pk=given.job.pk).aedit(priority=2),
    "QuerySet.arun_now": lambda given: Job.objects.filter(pk=given.job.pk).arun_now(),
    "QuerySet.aextend": lambda given: Job.objects.filter(pk=given.job.pk).aextend(60),
    "Job.aretry": lambda given: given.job.aretry(),
    "RateLimiter.atake": lambda given: ours.RateLimiter("some").atake(),
    "RateLimiter.aseconds_until": lambda given: ours.RateLimiter("some").aseconds_until(),
}


def test_every_public_coroutine_function_is_here() -> None:
    public = {name for name in ours.__all__ if iscoroutinefunction(getattr(ours, name))}
    assert public <= set(CALLS)


def test_the_loop_goes_on_while_a_call_waits_for_the_database(connect: Connect) -> None:
    ours.set_limit(name="some", rate_limit=ours.RateLimit(100, per=timedelta(seconds=1)))
    given = SimpleNamespace(job=enqueue(noop), result=noop.enqueue())
    observer, holder = connect(autocommit=True), connect()
    answered: list[str] = []

    def waits() -> bool:
        row = observer.execute(LOCKED).fetchone()
        return row is not None and row[0] > 0

    async def answer(name: str) -> None:
        answered.append(name)

    def let_go_when_the_loop_answers(name: str, loop: asyncio.AbstractEventLoop) -> None:
        try:
            until(waits, seconds=SHORT, what=f"{name} waits for the lock")
            asyncio.run_coroutine_threadsafe(answer(name), loop).result(SHORT)
        finally:
            holder.rollback()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as threads:
            for name, call in CALLS.items():
                holder.execute(f"LOCK TABLE {TABLES} IN ACCESS EXCLUSIVE MODE")
                watch = threads.submit(let_go_when_the_loop_answers, name, loop)
                await call(given)
                watch.result(SHORT)

    run(main())
    assert answered == list(CALLS)


# -- a router that reads from a replica: what was read there is changed, waited for and named on the primary


HOUR = timedelta(hours=1)


class PrimaryAndReplica:
    """The router of Django's documentation. It ignores the row, and returns one alias for all models."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "replica"

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "default"


@pytest.fixture(params=["of one address", "of another address"])
def _replica(
    request: pytest.FixtureRequest, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Let everything be read through an alias that refuses to write. A standby has an address of its own."""
    if request.param == "of another address":
        monkeypatch.setattr(aliases, "_place", lambda name: (name,))
    with alias("replica", OPTIONS={"options": "-c default_transaction_read_only=on"}):
        settings.DATABASE_ROUTERS = [PrimaryAndReplica()]
        yield


def read(**fields: Any) -> Any:
    job = JobFactory.create(**{"task": "tests.app.tasks.mail", "args": [3], **fields})
    found = Job.objects.get(pk=job.pk)
    assert found._state.db == "replica"
    return found


def now(row: Any) -> Any:
    return type(row).objects.using("default").get(pk=row.pk)


def drains() -> bool:
    worker = Worker.objects.get()
    return ours.drain_worker(worker) and bool(now(worker).drain == "replace")


def extends() -> bool:
    job = enqueue(noop.using())
    connections["default"].ensure_connection()
    support.claim(connections["default"].connection)
    return extend(Job.objects.get(pk=job.pk), 60) == 1


def saves_a_schedule() -> bool:
    ScheduleFactory.create(name="nightly", priority=1)
    schedule = Schedule.objects.get()
    schedule.priority = 9
    schedule.save()
    return bool(now(schedule).priority == 9)


def joins() -> bool:
    job = read()
    run_jobs()
    job.join(timeout=5)
    return (job.status, job._state.db) == ("done", "default")


def waits() -> bool:
    parent = read()
    with Batch("import") as batch:
        batch.add([noop.bind()])
    row = JobBatch.objects.get(pk=batch.id)
    return bool(enqueue(mail.using(after=[parent, row]), 1).parent_ids == [parent.pk, row.pk])


def joins_a_batch() -> bool:
    Batch.open("import")
    return bool(enqueue(noop.using(batch=JobBatch.objects.get())).batch_id)


def tells_what_helps() -> bool:
    reason = why(read(failed=True))
    return reason.database == "default" and "replica" not in reason.fix


def reads_a_result() -> bool:
    result = noop.enqueue()
    return result.id.isdigit() and default_backend().get_result(result.id).id == result.id


def changes(change: Callable[[Any], Any], holds: Callable[[Any], Any], **fields: Any) -> Callable[[], bool]:
    def call() -> bool:
        job = read(**fields)
        return bool(change(job)) and bool(holds(now(job)))

    return call


ON_THE_PRIMARY: dict[str, Callable[[], bool]] = {
    "cancel": changes(cancel, lambda job: job.status == "cancelled"),
    "acancel": changes(lambda job: run(ours.acancel(job)), lambda job: job.status == "cancelled"),
    "a queryset": changes(
        lambda job: Job.objects.filter(pk=job.pk).cancel(), lambda job: job.status == "cancelled"
    ),
    "retry": changes(retry, lambda job: job.status == "pending", failed=True),
    "run_now": changes(run_now, lambda job: job.run_after <= timezone.now(), scheduled=True),
    "edit": changes(lambda job: edit(job, priority=7), lambda job: job.priority == 7),
    "extend": extends,
    "event": changes(lambda job: ours.send_event(job, "paid", 5), lambda job: job.marks),
    "drain": drains,
    "a schedule": saves_a_schedule,
    "join": joins,
    "after": waits,
    "batch": joins_a_batch,
    "why": tells_what_helps,
    "a result": reads_a_result,
    "the shell": lambda: run_here(read()) == 3,
}


@pytest.mark.parametrize("name", ON_THE_PRIMARY)
@pytest.mark.usefixtures("_replica")
@pytest.mark.promise("replica")
def test_what_is_read_from_a_replica_is_changed_on_the_primary(name: str) -> None:
    WorkerFactory.create()
    assert ON_THE_PRIMARY[name]()


@pytest.mark.usefixtures("_replica")
def test_a_job_in_a_database_of_its_own_is_changed_there() -> None:
    """The router knows nothing of it, and names the primary, where another job has the number."""
    job = enqueue(noop.using(database="other"))
    with transaction.atomic():
        JobFactory.create(pk=job.pk)
    found = Job.objects.using("other").get(pk=job.pk)
    assert cancel(found) == 1
    assert now(job).status == "pending"
    assert why(found).database == "other"
    with pytest.raises(InvalidTask, match="in the database 'other', but this call goes to 'default'"):
        enqueue(noop.using(after=found))


def test_two_aliases_of_one_database_are_one(settings: Any) -> None:
    with alias("direct"):
        parent = enqueue(noop.using(database="direct"))
        assert enqueue(noop.using(after=parent)).parent_ids == [parent.pk]


def test_an_id_with_the_alias_of_the_primary_is_found_among_jobs_of_the_replica(settings: Any) -> None:
    with alias("primary"), alias("replica"):
        settings.DATABASE_ROUTERS = [PrimaryAndReplica()]
        assert [names_database_of(name, Job.objects.all()) for name in ("primary", "other")] == [True, False]
        others = Job.objects.using("other")
        assert [names_database_of(name, others) for name in ("primary", "other")] == [False, True]


def test_a_worker_of_another_alias_has_the_schedules_of_its_database(settings: Any) -> None:
    settings.PGQUEUE = {"SCHEDULES": {"hourly": {"task": "tests.app.tasks.noop", "every": HOUR}}}
    with alias("direct"):
        synchronize("direct")
        assert Schedule.objects.filter(name="hourly").exists()  # beside those that other tests declare


# -- ``USE_TZ = False``: naive times are accepted as Django does, and mean TIME_ZONE


SEEN: list[Any] = []


@task
def naps() -> None:
    SEEN.append(current_job().enqueued_at <= timezone.now())
    raise Snooze(until=timezone.now() + HOUR)


@pytest.fixture
def _without_zones(settings: Any) -> None:
    settings.USE_TZ = False
    settings.TIME_ZONE = "America/New_York"


def in_an_hour(found: datetime) -> bool:
    return abs(found - timezone.now() - HOUR) < timedelta(minutes=1)


@pytest.mark.usefixtures("_without_zones")
def test_a_job_runs_is_moved_and_snoozes_until_a_naive_time() -> None:
    later, moved, snoozed = enqueue(noop.using(run_after=timezone.now() + HOUR)), enqueue(noop), enqueue(naps)
    assert_enqueued(noop, run_after=timezone.now() + HOUR)
    assert edit(moved, run_after=timezone.now() + HOUR) == 1
    run_jobs()
    assert all(in_an_hour(fresh(job).run_after) for job in (later, moved, snoozed))
    assert SEEN.pop(), "a running job has naive times"


@pytest.mark.usefixtures("_without_zones")
def test_a_pause_ends_at_a_naive_time() -> None:
    found = ours.pause(queue="mail", until=timezone.now() + HOUR)
    assert found.until is not None
    assert in_an_hour(found.until)
    with pytest.raises(ValueError, match="must be in the future"):
        ours.pause(queue="mail", until=timezone.now() - HOUR)
    assert Pause.objects.count() == 1


@pytest.mark.usefixtures("_without_zones")
def test_dummy_jobs_have_naive_times() -> None:
    with dummy_jobs() as jobs:
        enqueue(noop.using(run_after=timezone.now() + HOUR))
        assert in_an_hour(jobs[0].run_after)
        assert jobs[0].enqueued_at <= timezone.now()
        assert_enqueued(noop, run_after=timezone.now() + HOUR, among=jobs)


@pytest.mark.usefixtures("_without_zones")
@pytest.mark.parametrize("time", ["2026-07-01 12:00", "2026-11-01 01:30", "2026-03-08 02:30"])
def test_an_hour_that_comes_twice_or_never_is_that_of_the_server(time: str) -> None:
    seconds = support.sql("SELECT extract(epoch FROM %s::timestamptz)", time)
    assert moment("run_after", datetime.fromisoformat(time)).timestamp() == seconds


# --- Under ASGI, a job commits with the rows of its view, and rolls back with them


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(("status", "count"), [(204, 1), (500, 0)])
@pytest.mark.promise("exists-if-committed")
def test_a_job_commits_or_rolls_back_with_the_rows_of_its_view(
    settings: Any, monkeypatch: pytest.MonkeyPatch, connect: Connect, status: int, count: int, is_async: bool
) -> None:
    observer = connect(autocommit=True)

    def place(request: HttpRequest) -> HttpResponse:
        Entry.objects.create(key="a")
        enqueue(noop)
        assert support.statuses(observer) == {}
        if status == 500:
            raise ValueError
        return HttpResponse(status=204)

    async def view(request: HttpRequest) -> HttpResponse:
        return await sync_to_async(transaction.atomic(place))(request)

    async def get() -> int:
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}
        communicate: Any = ApplicationCommunicator  # it is not typed
        request = communicate(ASGIHandler(), scope)
        await request.send_input({"type": "http.request"})
        found: int = (await request.receive_output(DEADLINE))["status"]
        await request.receive_output(DEADLINE)
        await request.wait(DEADLINE)
        return found

    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", not is_async)
    settings.ROOT_URLCONF = (path("", view if is_async else place),)
    assert run(get()) == status
    assert (Entry.objects.count(), Job.objects.count()) == (count, count)
