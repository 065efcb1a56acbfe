"""A router that reads from a replica: what was read there is changed, waited for and named on the primary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from django.utils import timezone

from django_pgqueue import Batch, acancel, cancel, drain_worker, edit, enqueue, extend, retry, send_event, why
from django_pgqueue.admin.jobs.search import names_database_of
from django_pgqueue.compat import InvalidTask
from django_pgqueue.maintenance.schedules import synchronize
from django_pgqueue.models import Job, JobBatch, Schedule, Worker
from django_pgqueue.models.changes import run_now
from django_pgqueue.postgres import aliases
from django_pgqueue.shell import run_here
from django_pgqueue.tasks.routing import default_backend
from django_pgqueue.testing import run_jobs
from tests.app.tasks import mail, noop
from tests.support import jobs as support
from tests.support.coroutines import run
from tests.support.databases import alias
from tests.support.factories import JobFactory, ScheduleFactory, WorkerFactory

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

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
    return drain_worker(Worker.objects.get()) and Worker.objects.using("default").get().drain == "replace"


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


CALLS: dict[str, Callable[[], bool]] = {
    "cancel": changes(cancel, lambda job: job.status == "cancelled"),
    "acancel": changes(lambda job: run(acancel(job)), lambda job: job.status == "cancelled"),
    "a queryset": changes(
        lambda job: Job.objects.filter(pk=job.pk).cancel(), lambda job: job.status == "cancelled"
    ),
    "retry": changes(retry, lambda job: job.status == "pending", failed=True),
    "run_now": changes(run_now, lambda job: job.run_after <= timezone.now(), scheduled=True),
    "edit": changes(lambda job: edit(job, priority=7), lambda job: job.priority == 7),
    "extend": extends,
    "event": changes(lambda job: send_event(job, "paid", 5), lambda job: job.marks),
    "drain": drains,
    "a schedule": saves_a_schedule,
    "join": joins,
    "after": waits,
    "batch": joins_a_batch,
    "why": tells_what_helps,
    "a result": reads_a_result,
    "the shell": lambda: run_here(read()) == 3,
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.usefixtures("_replica")
@pytest.mark.promise("replica")
def test_what_is_read_from_a_replica_is_changed_on_the_primary(name: str) -> None:
    WorkerFactory.create()
    assert CALLS[name]()


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
