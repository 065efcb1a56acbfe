"""Scheduled jobs have the keys that ``enqueue()`` gives them; what a run does that meets its twin."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from django_pgqueue import BoundTask, JobExists, enqueue
from django_pgqueue.exceptions import InvalidKey
from django_pgqueue.models import Job, Schedule, ScheduleRun
from django_pgqueue.schedules import fire as fire_module
from tests.app import limit_tasks, unique_tasks
from tests.app.tasks import noop
from tests.support.factories import ScheduleFactory
from tests.support.schedules import ago, end, fire, jobs_of, minute, outcomes, overdue, runs_of
from tests.support.sessions import Connection
from tests.support.workers import fresh, run_due

from .conftest import App

pytestmark = pytest.mark.django_db

INDEX = "tests.app.unique_tasks.index"


def keys(job: Job) -> tuple[str | None, ...]:
    return job.unique_key, job.unique_scope, job.limit_key, job.group_key


# -- the same keys as enqueue()


CALLS: list[BoundTask] = [
    unique_tasks.index.bind(7), unique_tasks.index.bind(7, force=True), unique_tasks.sync.bind(1),
    unique_tasks.remind.bind(1), limit_tasks.two.bind("a"), limit_tasks.ship.bind(order_id=3),
    limit_tasks.sync.bind("acme.eu"), limit_tasks.report.bind(region=None), limit_tasks.hourly.bind("a"),
    limit_tasks.quick.bind(5), limit_tasks.serve.bind("acme", 1),
    limit_tasks.by_domain.bind("kim@example.com"), noop.bind(),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call.task.module_path))
def test_a_run_enqueues_as_enqueue_does(one: Connection, call: BoundTask) -> None:
    enqueued = enqueue(call)
    end(one, enqueued.pk)
    one.execute("DELETE FROM pgqueue_window")
    schedule = overdue(task_path=call.task.module_path, args=list(call.args), kwargs=call.kwargs)
    fire(one)
    (scheduled,) = jobs_of(schedule)
    assert keys(scheduled) == keys(enqueued)
    assert (scheduled.args, scheduled.kwargs) == (enqueued.args, enqueued.kwargs)
    assert (scheduled.wait_position is None) == (scheduled.limit_key is None)


@pytest.mark.django_db(transaction=True)
def test_the_limit_holds_for_the_jobs_of_a_schedule(one: Connection) -> None:
    """Four missed runs of a task with one slot: they wait in line."""
    schedule = overdue(ago(minutes=3), task_path="tests.app.limit_tasks.ship", args=[3], catch_up="all")
    fire(one)
    jobs = jobs_of(schedule)
    assert len(jobs) >= 4
    assert {job.limit_key for job in jobs} == {"tests.app.limit_tasks.ship/3"}
    assert [job.status for job in jobs] == ["pending"] + ["blocked"] * (len(jobs) - 1)
    run_due()
    assert {fresh(job).status for job in jobs} == {"done"}


def test_plain_and_unique_jobs_in_one_round(one: Connection) -> None:
    """The outcomes belong to the right runs."""
    enqueue(unique_tasks.index, 7)
    plain = [overdue(name="a"), overdue(name="c")]
    unique = overdue(name="b", task_path=INDEX, args=[7])
    fire(one)
    assert [outcomes(each) for each in plain] == [["enqueued"]] * 2
    assert outcomes(unique) == ["existing"]


# -- who knows the keys


def test_a_schedule_that_was_made_with_sql_gets_its_keys_from_the_round(one: Connection) -> None:
    one.execute(
        "INSERT INTO pgqueue_schedule (name, task_path, args, cron, next_run_at)"
        " VALUES ('sql', %s, '[7]', '* * * * *', %s)",
        (INDEX, minute()),
    )
    fire(one)
    (job,) = jobs_of("sql")
    assert job.unique_key == f"{INDEX}/7"
    policy = Schedule.objects.get().policy
    assert policy is not None
    assert policy["options"]["unique_key"] == job.unique_key


INDEX_8 = "UPDATE pgqueue_schedule SET args = '[8]'"
SYNC = "tests.app.unique_tasks.sync"


@pytest.mark.parametrize(
    ("path", "change", "is_known", "key"),
    [
        (INDEX, INDEX_8, True, f"{INDEX}/8"),
        (SYNC, INDEX_8, False, None),
        (INDEX, "SELECT 1", False, f"{INDEX}/7"),
    ],
    ids=["changed with SQL", "those of other arguments do not apply", "those that are stored"],
)
def test_keys_of_a_round_that_may_belong_to_another_project(
    one: Connection, monkeypatch: pytest.MonkeyPatch, path: str, change: str, is_known: bool, key: str | None
) -> None:
    """A supervisor of another project cannot import the task."""
    if not is_known:
        monkeypatch.setattr(fire_module, "known_policy", lambda *call: None)
    schedule = overdue(task_path=path, args=[7])
    one.execute(change)
    fire(one)
    (job,) = jobs_of(schedule)
    assert (job.queue_name, job.unique_key) == ("mail" if path == SYNC else job.queue_name, key)


def test_a_module_that_cannot_be_imported_stops_no_supervisor(app: App, one: Connection) -> None:
    app.deploy("raise SystemExit")
    one.execute(
        "INSERT INTO pgqueue_schedule (name, task_path, cron, next_run_at)"
        " VALUES ('sql', %s, '* * * * *', %s)",
        (f"{app.module}.report", minute()),
    )
    assert fire(one) == 1
    assert len(jobs_of("sql")) == 1


def test_a_call_that_cannot_be_checked_stops_no_supervisor(
    one: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A router is code of the project, and may raise anything."""
    schedule = overdue(task_path=INDEX, args=[7])
    Schedule.objects.update(policy=None)

    def raises(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("django_pgqueue.schedules.policy.call_options", raises)
    assert fire(one) == 1
    assert jobs_of(schedule)[0].unique_key is None


# -- a run that meets its twin


@pytest.mark.promise("schedule-unique")
def test_a_run_that_meets_its_twin_is_recorded_with_the_twin(one: Connection) -> None:
    twin = enqueue(unique_tasks.index, 7)
    schedule = overdue(task_path=INDEX, args=[7])
    fire(one)
    (run,) = ScheduleRun.objects.all()
    assert (run.outcome, run.job_id) == ("existing", twin.pk)
    assert run.get_outcome_display() == "skipped, because another job had its unique key"
    assert not jobs_of(schedule)
    schedule.refresh_from_db()
    assert schedule.live_jobs == []  # the twin is not a job of this schedule
    assert schedule.last_run_at == run.run_at


def test_replace_gives_the_waiting_twin_to_the_run(one: Connection) -> None:
    twin = enqueue(unique_tasks.render, 7, text="old")
    schedule = overdue(task_path="tests.app.unique_tasks.render", args=[7], overlap="skip")
    fire(one)
    (run,) = ScheduleRun.objects.all()
    assert (run.outcome, run.job_id) == ("replaced", twin.pk)
    (job,) = jobs_of(schedule)
    assert (job.pk, job.kwargs) == (twin.pk, {})
    schedule.refresh_from_db()
    assert schedule.live_jobs == [twin.pk]


@pytest.mark.parametrize("task", [unique_tasks.once, unique_tasks.refresh])
def test_a_run_has_nobody_to_raise_for(one: Connection, task: Any) -> None:
    twin = enqueue(task, "a")
    schedule = overdue(task_path=task.module_path, args=["a"])
    broken: dict[str, str] = {}
    fire(one, broken)
    assert outcomes(schedule) == ["existing"]
    assert not broken
    assert [job.pk for job in Job.objects.all()] == [twin.pk]


def test_missed_runs_of_a_unique_task_become_one_job(one: Connection) -> None:
    schedule = overdue(ago(minutes=3), task_path=INDEX, args=[7], catch_up="all")
    fire(one)
    first, *others = outcomes(schedule)
    assert (first, {*others}) == ("enqueued", {"existing"})
    (job,) = jobs_of(schedule)
    assert {run.job_id for run in ScheduleRun.objects.all()} == {job.pk}


@pytest.mark.django_db(transaction=True)
def test_a_window_counts_from_run_to_run(one: Connection) -> None:
    rarely: dict[str, Any] = {"cron": None, "every": timedelta(days=3660)}
    schedule = overdue(ago(seconds=30), task_path="tests.app.unique_tasks.remind", args=[1], **rarely)
    fire(one)
    (job,) = jobs_of(schedule)
    run_due()
    # No run of the timing itself may lie in this second: it would be fired in place of this one.
    Schedule.objects.update(next_run_at=ago(seconds=1), last_run_at=None)
    fire(one)
    assert outcomes(schedule) == ["enqueued", "existing"]
    assert {run.job_id for run in ScheduleRun.objects.all()} == {job.pk}


@pytest.mark.django_db(transaction=True)
def test_a_waiting_run_that_meets_its_twin_makes_room_for_the_next(one: Connection) -> None:
    schedule = overdue(ago(minutes=3), task_path=INDEX, args=[7], overlap="queue", catch_up="all")
    fire(one)
    Schedule.objects.update(next_run_at=ago(hours=-1))
    run_due()
    enqueue(unique_tasks.index, 7)
    waiting = outcomes(schedule).count("waiting")
    for number in range(1, waiting + 1):
        assert fire(one) == 1
        assert outcomes(schedule).count("existing") == number
    schedule.refresh_from_db()
    assert schedule.waiting == 0


# -- by hand


def test_run_now_returns_the_twin_or_raises_what_enqueue_raises(one: Connection) -> None:
    schedule = ScheduleFactory.create(task_path=INDEX, args=[7])
    job = schedule.enqueue()
    assert (job.enqueue_outcome, job.unique_key) == ("created", f"{INDEX}/7")
    again = schedule.enqueue()
    assert (again.pk, again.enqueue_outcome) == (job.pk, "existing")
    assert outcomes(schedule) == ["manual", "existing"]
    one.execute(INDEX_8)
    assert schedule.enqueue().unique_key == f"{INDEX}/8", "the arguments that SQL has changed"
    once = ScheduleFactory.create(task_path="tests.app.unique_tasks.once", args=["a"])
    job = once.enqueue()
    with pytest.raises(JobExists, match=f"Job {job.pk} has the unique key of the schedule"):
        once.enqueue()


# -- a key that cannot be computed


#: Its key is a callable that raises.
RAISING: dict[str, Any] = {"name": "wrong", "task_path": "tests.app.limit_tasks.sync", "args": [5]}


@pytest.mark.django_db(transaction=True)
def test_a_key_that_cannot_be_computed_fires_nothing_until_it_is_corrected(
    one: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """Without its key, the job would run beside others."""
    wrong, other = overdue(**RAISING), overdue(cron=None, every=timedelta(days=3660))
    broken: dict[str, str] = {}
    with caplog.at_level(logging.ERROR):
        fire(one, broken)
        fire(one, broken)
    (record,) = caplog.records
    assert "schedule 'wrong' does not fire: pgqueue: The callable for the limit key" in record.getMessage()
    assert (len(jobs_of(wrong)), len(jobs_of(other))) == (0, 1)
    with pytest.raises(InvalidKey, match="raised AttributeError"):
        wrong.enqueue()
    one.execute("""UPDATE pgqueue_schedule SET args = '["acme.eu"]' WHERE name = 'wrong'""")
    fire(one, broken)
    assert jobs_of(wrong)[0].limit_key == "tenant/acme"
    assert len(runs_of(wrong)) == 1
