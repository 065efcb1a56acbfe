"""Cancel, retry, run_now, edit and extend: what each does to a job in each state, and how jobs are given."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import pytest
from django.db import DataError, connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgqueue import cancel, edit, enqueue, enqueue_many, extend, retry
from django_pgqueue.compat import BaseTaskBackend
from django_pgqueue.exceptions import WrongBackend
from django_pgqueue.models import Job, Queue
from django_pgqueue.models.changes import run_now
from tests.app.tasks import elsewhere, noop
from tests.support import jobs as support
from tests.support.factories import JobFactory
from tests.support.sessions import Connection
from tests.support.wording import refusals
from tests.support.workers import fresh

pytestmark = pytest.mark.django_db

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
OURS = {"BACKEND": "django_pgqueue.backend.PgQueueBackend"}
#: By what was before, and what stays whatever becomes of a job.
LEFT = {"crash_count": 2, "waiting_reason": "why"}
STAYS = {"tenant": "acme", "group_key": "acme:g", "searched": ["order_id=17"]}


def row_of(job: Job) -> dict[str, Any]:
    return dict(Job.objects.using(job._state.db).values().get(pk=job.pk))


def changed(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return the names of the columns that differ."""
    return " ".join(sorted(name for name in before if before[name] != after[name]))


# -- each change, to a job of each state

STATES: dict[str, dict[str, Any]] = {
    "due": {"run_after": datetime.fromisoformat("2020-01-01T00:00Z")},
    "scheduled": {"scheduled": True, "expires_at": timezone.now() + DAY},
    "retrying": {"retrying": True},
    "blocked": {"blocked": True},
    "paused": {"blocked": True, "scheduled": True, "waiting_reason": "paused by ann"},
    "running": {"running": True, "deadline": timezone.now()},
    "asked to stop": {"running": True, "deadline": timezone.now(), "cancel_requested_at": timezone.now()},
    "done": {"done": True, "duration": 2.5},
    "failed": {
        "failed": True,
        "duration": 2.5,
        "deadline": timezone.now(),
        "expires_at": timezone.now() + DAY,
        "lease": 5,
    },
    "cancelled": {"cancelled": True, "cancel_requested_at": timezone.now()},
}


class Change(NamedTuple):
    """A call that changes jobs."""

    function: Callable[..., int]
    given: dict[str, Any]


CHANGES = {
    "cancel": Change(cancel, {}),
    "retry": Change(retry, {}),
    "retry, done too": Change(retry, {"done": True}),
    "run_now": Change(run_now, {}),
    "edit": Change(edit, {"priority": 5, "run_after": HOUR, "queue_name": "slow"}),
    "extend": Change(extend, {"duration": HOUR}),
}


def by_sql(change: Change, jobs: list[Job]) -> int:
    given = "".join(f", {name} => %s" for name in change.given)
    if change.given.get("run_after"):
        given = given.replace("run_after", "delay")
    query = f"SELECT cardinality(pgqueue_{change.function.__name__}(%s{given}))"
    return int(support.sql(query, [job.pk for job in jobs], *change.given.values()))


def call(function: Callable[..., Any], change: Change, *jobs: Any) -> Any:
    if change.function is extend:  # whose duration has no name
        return function(*jobs, *change.given.values())
    return function(*jobs, **change.given)


def by_function(change: Change, jobs: list[Job]) -> int:
    return int(call(change.function, change, jobs))


def by_queryset(change: Change, jobs: list[Job]) -> int:
    rows = Job.objects.filter(pk__in=[job.pk for job in jobs])
    return int(call(getattr(rows, change.function.__name__), change))


def by_methods(change: Change, jobs: list[Job]) -> int:
    return sum(call(getattr(job, change.function.__name__), change) for job in jobs)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.promise("cancel", case="cancel")
@pytest.mark.promise("edit-all-or-none", case="edit")
@pytest.mark.promise("edit-waiting", case="edit")
@pytest.mark.promise("retry-done", case="retry")
@pytest.mark.promise("run-now", case="run_now")
def test_what_a_change_does_to_a_job(name: str, wording: Any) -> None:
    """The status then, and which columns change, for each state that it changes: the same at each level."""
    for level in (by_sql, by_function, by_queryset, by_methods):
        with transaction.atomic():
            found = changes(CHANGES[name], level)
            transaction.set_rollback(True)
        assert found == wording(name="each level")


def changes(change: Change, level: Callable[..., int]) -> dict[str, str]:
    jobs = {
        state: JobFactory.create(**{**LEFT, **STAYS, "unique_key": state, **traits})
        for state, traits in STATES.items()
    }
    before = {state: row_of(job) for state, job in jobs.items()}
    count = level(change, list(jobs.values()))
    after = {state: row_of(job) for state, job in jobs.items()}
    found = {
        state: f"{row['status']}: {changed(before[state], row)}"
        for state, row in after.items()
        if row != before[state]
    }
    assert count == len(found)
    assert all(row["waiting_reason"] in ("", before[state]["waiting_reason"]) for state, row in after.items())
    return found


# -- what else holds


@pytest.mark.promise("id-stays", "retry")
def test_a_retry_runs_the_same_job_again_with_a_fresh_budget(one: Connection) -> None:
    job = JobFactory.create(failed=True, attempts=3, lease=5, worker=7, cancel_requested_at=timezone.now())
    assert retry(job) == 1
    found = fresh(job)
    assert (found.pk, found.attempts, found.forgiven_attempts, found.crash_count) == (job.pk, 3, 3, 0)
    for name in ("worker", "lease", "deadline", "finished_at", "result", "expires_at", "cancel_requested_at"):
        assert getattr(found, name) is None, name
    assert found.run_after >= job.finished_at  # type: ignore[operator]
    assert retry(job) == 1, "it waits, so it comes first"
    assert support.claim(one)[0].attempts == 4


def test_a_job_that_was_not_kept_cannot_be_retried() -> None:
    Queue.objects.create(name="default", retention=timedelta(0))
    job = enqueue(noop)
    assert cancel(job) == 1
    assert retry(job) == 0


# -- an edit changes what it is given


EDITS: list[tuple[str, dict[str, Any], str]] = [
    ("scheduled", {"priority": 5}, "priority"),
    ("scheduled", {"queue_name": "slow"}, "queue_name"),
    ("scheduled", {"run_after": 2 * HOUR}, "run_after waiting_reason"),
    ("scheduled", {"run_after": timezone.now() - DAY}, "run_after waiting_reason"),
    ("scheduled", {"priority": 3, "queue_name": "default"}, ""),  # it has these
    ("scheduled", {"priority": 0}, "priority"),
    ("due", {"priority": 5}, "priority run_after waiting_reason"),
    ("due", {"queue_name": "slow"}, "queue_name run_after waiting_reason"),
    ("due", {"queue_name": "slow", "run_after": timezone.now() - DAY}, "queue_name run_after waiting_reason"),
    ("due", {"run_after": timezone.now() - HOUR}, ""),
    ("blocked", {"priority": 5, "queue_name": "slow"}, "priority queue_name"),
    ("blocked", {"run_after": HOUR}, "run_after"),
]


@pytest.mark.parametrize(("state", "values", "columns"), EDITS)
def test_an_edit_leaves_the_rest_and_a_due_job_is_due_from_now_on(
    one: Connection, state: str, values: dict[str, Any], columns: str
) -> None:
    job = JobFactory.create(**{**LEFT, "priority": 3, **STATES[state]})
    before = row_of(job)
    now = support.value(one, "SELECT clock_timestamp()")
    assert edit(job, **values) == bool(columns)
    after = row_of(job)
    assert changed(before, after) == columns
    if "run_after" in columns:
        asked = values.get("run_after")
        delay = asked if isinstance(asked, timedelta) else timedelta(0)
        assert now + delay <= after["run_after"] < now + delay + timedelta(seconds=30)


BAD: list[dict[str, Any]] = [
    {}, {"priority": 101}, {"priority": 1.5}, {"queue_name": ""}, {"queue_name": "a b"},
    {"run_after": timedelta(seconds=-1)}, {"run_after": datetime(2030, 1, 1)},  # noqa: DTZ001
    {"run_after": datetime(9000, 1, 1, tzinfo=UTC)}, {"run_after": 5},
]  # fmt: skip
BAD_IN_SQL = [
    "priority => 101", "queue_name => ''", "run_after => 'infinity'", "run_after => '-infinity'",
    "priority => NULL", "run_after => now(), delay => '1 s'", "delay => '-1 s'", "delay => '101 years'",
]  # fmt: skip


@pytest.mark.promise("edit-checked")
def test_bad_values_are_refused(wording: Any) -> None:
    job = JobFactory.create()
    before, said = row_of(job), []
    for values in BAD:
        for change in (job.edit, Job.objects.filter(pk=job.pk).edit, partial(edit, job)):
            with pytest.raises((TypeError, ValueError)) as refused:
                change(**values)
        said.append(str(refused.value))
    for arguments in BAD_IN_SQL:
        with pytest.raises(DataError) as wrong, transaction.atomic():
            support.sql(f"SELECT pgqueue_edit(ARRAY[{job.pk}], {arguments})")
        cause: Any = wrong.value.__cause__
        assert cause.sqlstate == "22023"
        said.append(cause.diag.message_primary)
    assert "\n".join(said) == wording
    assert row_of(job) == before


# -- the jobs that a change is given


@pytest.mark.parametrize("form", [
    lambda job: job,
    lambda job: job.pk,
    lambda job: str(job.pk),
    lambda job: f"default:{job.pk}",
    lambda job: noop.get_result(str(job.pk)),
    lambda job: Job.objects.filter(pk=job.pk),
    lambda job: Job.objects.filter(pk=job.pk).order_by("-run_after"),
    lambda job: Job.objects.filter(pk=job.pk)[:5],
    lambda job: Job.objects.filter(pk=job.pk).values("status"),
    lambda job: Job.objects.filter(pk=job.pk).union(Job.objects.filter(pk=-1)),
    lambda job: Job.objects.filter(pk=job.pk).exclude(task_path__contains="%"),
])  # fmt: skip
@pytest.mark.parametrize("function", [cancel, retry])
def test_a_job_an_id_or_a_queryset_in_one_statement(
    form: Callable[[Job], Any], function: Callable[..., int]
) -> None:
    job, other = enqueue(noop), enqueue(noop)
    given = form(job)
    with CaptureQueriesContext(connection) as queries:
        assert function(given) == 1
    assert len(queries) == 1
    assert fresh(other).status == "pending"
    assert fresh(job).status == ("cancelled" if function is cancel else "pending")


def test_several_jobs_of_any_form() -> None:
    jobs = enqueue_many(noop.bind(number) for number in range(6))
    some = Job.objects.filter(pk__in=jobs.ids[3:5])
    given: list[Any] = [jobs[0], jobs.ids[1], str(jobs.ids[2]), noop.enqueue(7), some]
    with CaptureQueriesContext(connection) as queries:
        assert cancel(given) == 6
    assert len(queries) == 2  # one for the queryset, one for all the others
    assert retry(jobs) == 6  # the last one waits, and comes first
    assert cancel(iter(jobs.ids)) == 6
    assert cancel([]) == Job.objects.none().cancel() == Job.objects.filter(pk__in=[]).retry() == 0
    assert cancel(999_999) == retry(999_999) == run_now(999_999) == 0


def test_the_methods_of_jobs_and_querysets_change_data() -> None:
    job = JobFactory.create()
    assert job.why().job_id == job.pk
    assert (job.send_event("go", 5), job.send_event("go")) == (True, False)
    names = ["cancel", "retry", "run_now", "edit", "extend"]
    names += [f"a{name}" for name in names]
    of_jobs = product([Job()], [*names, "send_event", "asend_event"])
    for owner, name in (*of_jobs, *product([Job.objects.all()], names)):
        method = getattr(owner, name)
        assert (method.__name__, method.alters_data) == (name, True)
    assert not any(hasattr(Job.objects, name) for name in names), "a manager would mean all jobs there are"


@pytest.mark.django_db(databases=["default", "other"])
def test_the_database_of_the_job_its_id_or_its_queryset() -> None:
    here = enqueue(noop)
    for form in (
        lambda job: job,
        lambda job: f"other:{job.pk}",
        lambda job: Job.objects.using("other").filter(pk=job.pk),
    ):
        there = enqueue(elsewhere, 1)
        assert (edit(form(there), priority=4), cancel(form(there))) == (1, 1)
        assert (row_of(there)["priority"], row_of(there)["status"]) == (4, "cancelled")
        assert retry(form(there)) == 1
    assert cancel(elsewhere.enqueue(1)) == 1
    assert cancel([enqueue(noop), enqueue(elsewhere, 1)]) == 2
    with override_settings(TASKS={"default": {**OURS, "OPTIONS": {"database": "other"}}}):
        there = enqueue(elsewhere, 1)
        assert cancel(there.pk) == 1  # the number of a row, in the database that jobs go to
        assert cancel(f"default:{here.pk}") == 1
        assert retry(str(here.pk)) == 1  # a public id, of `default` if it names no database
    assert fresh(here).status == "pending"


def test_what_is_no_job_is_refused(wording: Any) -> None:
    wrong: dict[type[Exception], list[Any]] = {
        TypeError: [None, True, 1.5, [1, None], b"5", Queue.objects.all()],
        ValueError: ["", "five", -5, 2**63, "nowhere:5"],
    }
    calls: list[Any] = [cancel, retry, run_now]
    for call, (error, several) in product(calls, wrong.items()):
        said = refusals(error, *(partial(call, what) for what in several))
        assert said == wording(name=error.__name__)


def test_a_result_of_another_backend_is_refused(settings: Any) -> None:
    theirs = f"{BaseTaskBackend.__module__.rpartition('.')[0]}.dummy.DummyBackend"
    settings.TASKS = {"default": OURS, "theirs": {"BACKEND": theirs}}
    result = noop.enqueue(1)
    object.__setattr__(result, "backend", "theirs")
    with pytest.raises(WrongBackend, match="'theirs'"):
        cancel(result)
