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


def now(job: Any) -> Any:
    return Job.objects.using("default").get(pk=job.pk)


def running() -> Any:
    job = enqueue(noop.using())
    connections["default"].ensure_connection()
    support.claim(connections["default"].connection)
    return Job.objects.get(pk=job.pk)


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "cancel": (read, cancel, lambda job: job.status == "cancelled"),
    "acancel": (read, lambda job: run(acancel(job)), lambda job: job.status == "cancelled"),
    "retry": (lambda: read(failed=True), retry, lambda job: job.status == "pending"),
    "run_now": (
        lambda: read(run_after=timezone.now() + HOUR),
        run_now,
        lambda job: job.run_after <= timezone.now(),
    ),
    "edit": (read, lambda job: edit(job, priority=7), lambda job: job.priority == 7),
    "extend": (running, lambda job: extend(job, 60), lambda job: job.status == "running"),
    "event": (read, lambda job: send_event(job, "paid", 5), lambda job: job.marks),
    "a queryset": (
        read,
        lambda job: Job.objects.filter(pk=job.pk).cancel(),
        lambda job: job.status == "cancelled",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.usefixtures("_replica")
@pytest.mark.promise("replica")
def test_a_job_read_from_a_replica_is_changed_on_the_primary(what: str) -> None:
    make, change, has_changed = CHANGES[what]
    job = make()
    assert change(job)
    assert has_changed(now(job))


@pytest.mark.usefixtures("_replica")
@pytest.mark.promise("replica")
def test_a_worker_read_from_a_replica_is_drained_on_the_primary() -> None:
    WorkerFactory.create()
    assert drain_worker(Worker.objects.get())
    assert Worker.objects.using("default").get().drain == "replace"


@pytest.mark.usefixtures("_replica")
def test_a_call_can_wait_for_a_job_and_a_batch_read_from_a_replica() -> None:
    parent = read()
    with Batch("import") as batch:
        batch.add([noop.bind()])
        row = JobBatch.objects.using("default").get()
    row = JobBatch.objects.get(pk=row.pk)
    child = enqueue(mail.using(after=[parent, row]), 1)
    assert child.parent_ids == [parent.pk, row.pk]


@pytest.mark.usefixtures("_replica")
def test_a_call_can_join_a_batch_read_from_a_replica() -> None:
    Batch.open("import")
    assert enqueue(noop.using(batch=JobBatch.objects.get())).batch_id


@pytest.mark.usefixtures("_replica")
def test_what_helps_names_the_job_as_the_primary_does() -> None:
    reason = why(read(failed=True))
    assert reason.database == "default"
    assert "replica" not in reason.fix


@pytest.mark.usefixtures("_replica")
def test_a_job_read_from_a_replica_is_joined_on_the_primary() -> None:
    job = read()
    run_jobs()
    job.join(timeout=5)
    assert (job.status, job._state.db) == ("done", "default")


@pytest.mark.usefixtures("_replica")
def test_the_shell_runs_a_job_read_from_a_replica() -> None:
    assert run_here(read()) == 3


@pytest.mark.usefixtures("_replica")
@pytest.mark.promise("replica")
def test_a_schedule_read_from_a_replica_is_saved_on_the_primary() -> None:
    ScheduleFactory.create(name="nightly", priority=1)
    schedule = Schedule.objects.get()
    schedule.priority = 9
    schedule.save()
    assert Schedule.objects.using("default").get().priority == 9


@pytest.mark.usefixtures("_replica")
def test_a_result_is_read_with_the_id_of_the_primary() -> None:
    result = noop.enqueue()
    assert result.id.isdigit()
    assert default_backend().get_result(result.id).id == result.id


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
