"""Two sessions change the same job at the same moment: which of them wins, and what the job is then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.support.jobs import add, cancel, claim, edit, finish, over, retry, running, statuses, value
from tests.support.sessions import Connect, Connection, behind, start
from tests.support.workers import recover

pytestmark = pytest.mark.django_db(transaction=True)

Verb = Callable[[Connection, int], Any]


# -- what happens to a job; True: it changed


def claims(connection: Connection, job: int) -> bool:
    return [row.id for row in claim(connection)] == [job]


def cancels(connection: Connection, job: int) -> bool:
    return cancel(connection, [job]) == 1


def retries(connection: Connection, job: int) -> bool:
    return retry(connection, [job]) == 1


def edits(connection: Connection, job: int) -> bool:
    return edit(connection, [job], priority=5, queue_name="slow") == 1


def ends(kind: str = "done", **more: Any) -> Verb:
    return lambda connection, job: finish(connection, [job], kind, **more) == [job]


def recovers(connection: Connection, job: int) -> bool:
    return bool(recover(connection))


def runs_elsewhere(connection: Connection, job: int) -> bool:
    """Its worker gives it back, and another one claims it."""
    return finish(connection, [job], "release") == [job] == [row.id for row in claim(connection, lease=2)]


def extends(connection: Connection, job: int) -> bool:
    return bool(value(connection, "SELECT pgqueue_extend(ARRAY[%s::bigint], '1 minute', 1)", job))


def reports_progress(connection: Connection, job: int) -> bool:
    return write(connection, job) == [job]


def records(name: str, *, is_first: bool = True) -> Verb:
    query = "SELECT _pgqueue_record_step(%s, 1, %s, 1, %s, 0.1, NULL, '1')"
    return lambda connection, job: value(connection, query, job, is_first, name)


def looks_for_an_event(connection: Connection, job: int) -> str:
    query = "SELECT concat_ws(' ', CASE WHEN held THEN 'held' END, CASE WHEN ready THEN 'ready' END) FROM"
    return str(value(connection, f"{query} _pgqueue_wait(%s, 1, 'approved', 'event', 3600)", job))


def gets_an_event(connection: Connection, job: int) -> bool | str | None:
    try:
        return bool(value(connection, "SELECT pgqueue_send_event(%s, 'approved', '5')", job))
    except psycopg.IntegrityError as refusal:
        return refusal.sqlstate


sleeps = ends("wait", delay=3600.0, started=0.0, reason="waits for the event approved")
WAITS: tuple[Verb, ...] = ()
RUNS = (claims,)
SEEKS = (claims, looks_for_an_event)

HOLDS = """
    SELECT string_agg(concat_ws(' ',
        status,
        CASE WHEN cancel_requested_at IS NOT NULL THEN 'asked' END,
        CASE WHEN status IN ('pending', 'retry') AND run_after <= clock_timestamp() THEN 'due' END,
        nullif(queue_name, 'default'), nullif(priority, 0),
        (SELECT 'steps ' || count(*) FROM pgqueue_step WHERE job_id = id HAVING count(*) > 0),
        'folded ' || (steps -> 0 ->> 'name'),
        (SELECT 'progress' FROM pgqueue_progress WHERE job_id = id)
    ), ' and ') FROM pgqueue_job WHERE id = %s
"""


class Race(NamedTuple):
    """What was before, what the first session does, what the second does, its answer, and what holds then."""

    before: tuple[Verb, ...]
    first: Verb
    second: Verb
    answer: Any
    holds: str
    waits: bool = True  # the second, until the first commits


GONE_BACK = {
    f"a {kind} while the job is asked to stop cancels it": Race(
        RUNS, cancels, ends(kind), True, "cancelled asked"
    )
    for kind in ("retry", "snooze", "release", "unknown", "paused")
} | {
    f"a cancel during a {kind} takes the job out of its queue": Race(
        RUNS, ends(kind), cancels, True, "cancelled asked"
    )
    for kind in ("retry", "snooze", "release", "unknown", "paused")
}  # fmt: skip
RACES = GONE_BACK | {
    # cancel
    "a job that is done while it is asked to stop is done": Race(RUNS, cancels, ends(), True, "done asked"),
    "a cancel while the job becomes done changes nothing": Race(RUNS, ends(), cancels, False, "done"),
    "a cancel while the job is claimed asks it to stop": Race(WAITS, claims, cancels, True, "running asked"),
    "two cancels ask a job once": Race(RUNS, cancels, cancels, False, "running asked"),
    "two cancels end a job once": Race(WAITS, cancels, cancels, False, "cancelled asked"),
    "a cancel of a job that goes to sleep ends it": Race(
        SEEKS, cancels, sleeps, True, "cancelled asked folded approved"
    ),
    "a cancel of a job that waits leaves no progress": Race(
        (claims, reports_progress), ends("snooze", delay=60.0), cancels, True, "cancelled asked"
    ),
    "a claim passes over a job that is being cancelled": Race(
        WAITS, cancels, claims, False, "cancelled asked", waits=False
    ),
    # retry
    "a retry while the job fails brings it back": Race(RUNS, ends("failed"), retries, True, "pending due"),
    "a retry while the job is cancelled brings it back": Race(WAITS, cancels, retries, True, "pending due"),
    "two retries bring a job back once": Race(
        (claims, ends("failed")), retries, retries, False, "pending due"
    ),
    # edit
    "an edit while the job is claimed changes nothing": Race(WAITS, claims, edits, False, "running"),
    "an edit while the job is cancelled changes nothing": Race(
        WAITS, cancels, edits, False, "cancelled asked"
    ),
    "an edit while the job goes back changes it": Race(RUNS, ends("retry"), edits, True, "retry due slow 5"),
    "a cancel while the job is edited takes it out of its new queue": Race(
        WAITS, edits, cancels, True, "cancelled asked slow 5"
    ),
    "a claim passes over a job that is being edited": Race(
        WAITS, edits, claims, False, "pending due slow 5", waits=False
    ),
    # recovery
    "a finish while the job is recovered is refused": Race(RUNS, recovers, ends(), False, "pending due"),
    "a cancel while the job is recovered takes it out of its queue": Race(
        RUNS, recovers, cancels, True, "cancelled asked"
    ),
    "a job that extends itself while it is recovered hears so": Race(
        RUNS, recovers, extends, False, "pending due"
    ),
    "recovery passes by a job that is being finished": Race(
        RUNS, ends(), recovers, False, "done", waits=False
    ),
    "recovery passes by a job that is being cancelled": Race(
        RUNS, cancels, recovers, False, "running asked", waits=False
    ),
    # events
    "an event before the job is asleep makes it due": Race(
        SEEKS, gets_an_event, sleeps, True, "pending due steps 1"
    ),
    "an event while the job goes to sleep makes it due": Race(
        SEEKS, sleeps, gets_an_event, True, "pending due steps 1"
    ),
    "an event while the job looks for it is found": Race(
        RUNS, gets_an_event, looks_for_an_event, "held ready", "running steps 1"
    ),
    "an event does not reach a job that ends": Race(RUNS, ends(), gets_an_event, "23Q01", "done"),
    "an event that is not committed yet is folded when the job ends": Race(
        RUNS, gets_an_event, ends(), True, "done folded approved"
    ),
    # steps
    "recovery waits for a first step that is recorded": Race(
        RUNS, records("a"), ends("release"), True, "pending due steps 1"
    ),
    "recovery waits for a later step that is recorded": Race(
        (claims, records("a")), records("b", is_first=False), ends("release"), True, "pending due steps 2"
    ),
    "a first step is refused when recovery came first": Race(
        RUNS, runs_elsewhere, records("a"), "lost", "running"
    ),
    "a later step is refused when recovery came first": Race(
        RUNS, runs_elsewhere, records("a", is_first=False), "lost", "running"
    ),
    "two steps that end side by side are both recorded": Race(
        RUNS, records("a"), records("b"), "recorded", "running steps 2"
    ),
    "later steps do not wait for each other": Race(
        (claims, records("a")), records("b", is_first=False), records("c", is_first=False), "recorded",
        "running steps 3", waits=False,
    ),
    "progress does not wait for a step that is recorded": Race(
        RUNS, records("a"), reports_progress, False, "running steps 1", waits=False
    ),
    "a step waits for progress that is written": Race(
        (claims, records("a")), reports_progress, records("b", is_first=False), "recorded",
        "running steps 2 progress",
    ),
    # progress
    "progress leaves out a job that ends": Race(RUNS, ends(), reports_progress, False, "done", waits=False),
    "progress that is written again leaves out a job that ends": Race(
        (claims, reports_progress), ends(), reports_progress, False, "done", waits=False
    ),
} | {
    f"a job that is {kind} while its {'first ' * (before is RUNS)}progress is written leaves no row": Race(
        before, reports_progress, ends(kind), True, kind
    )
    for kind in ("done", "failed", "cancelled") for before in (RUNS, (claims, reports_progress))
}  # fmt: skip


@pytest.mark.parametrize("name", RACES)
@pytest.mark.promise("cancel", case="a cancel while the job is claimed asks it to stop")
@pytest.mark.promise("cancel-no-retry")
@pytest.mark.promise("cancel-transaction", case="a claim passes over a job that is being cancelled")
@pytest.mark.promise("completed-once", case="a finish while the job is recovered is refused")
@pytest.mark.promise("edit-waiting", case="an edit while the job is claimed changes nothing")
@pytest.mark.promise("event-not-lost")
@pytest.mark.promise("extend-tells", case="a job that extends itself while it is recovered hears so")
@pytest.mark.promise("progress-gone")
@pytest.mark.promise("step-lease")
def test_two_transitions_of_a_job(one: Connection, other: Connection, name: str) -> None:
    race = RACES[name]
    (job,) = add(other)
    for verb in race.before:
        assert verb(other, job)
    assert race.first(one, job)
    if race.waits:
        assert behind(one, other, race.second, job) == race.answer
    else:
        assert race.second(other, job) == race.answer
        one.commit()
    assert value(other, HOLDS, job) == race.holds


# -- races of several jobs, or with a third step


def test_a_worker_hears_of_a_cancel_that_has_waited_for_its_claim(one: Connection, other: Connection) -> None:
    (job,) = add(other)
    other.execute(f'LISTEN "{value(other, "SELECT _pgqueue_channel()")}"')
    assert claims(one, job)
    assert behind(one, other, cancel, [job]) == 1
    assert [heard.payload for heard in other.notifies(timeout=20, stop_after=1)] == [f"cancel {job}"]


@pytest.mark.parametrize(("verb", "options"), [(finish, {"kind": "retry"}), (edit, {"priority": 5})])
def test_changes_of_several_jobs_never_deadlock(
    connect: Connect, one: Connection, other: Connection, verb: Any, options: dict[str, Any]
) -> None:
    second = connect(autocommit=True)
    jobs = running(one, 20) if verb is finish else add(other, 20)
    # Both wait for the first job while they hold none of the others.
    one.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", (jobs[0],))
    changed = start(second, verb, jobs[::-1], **options).blocked()
    assert behind(one, other, cancel, jobs[7:] + jobs[:7], end="rollback") == 20
    assert changed.result() == (jobs if verb is finish else 20)
    assert set(statuses(other).values()) == {"cancelled"}


def test_a_due_job_becomes_due_at_the_moment_when_its_lock_is_granted(
    one: Connection, other: Connection
) -> None:
    """The time of an edit that has waited is not that of its beginning, which may be below the marks."""
    (job,) = add(other)
    one.execute("SELECT FROM pgqueue_job_live WHERE id = %s FOR UPDATE", (job,))
    edited = start(other, edit, [job], queue_name="slow").blocked()
    granted = value(one, "SELECT clock_timestamp()")
    one.commit()
    assert edited.result() == 1
    assert value(other, "SELECT run_after > %s FROM pgqueue_job_live WHERE id = %s", granted, job)


@pytest.mark.promise("why-one-moment")
def test_all_statements_of_an_answer_see_one_moment(one: Connection, other: Connection) -> None:
    """Otherwise a job that is retried could be neither in the live leaf nor, a moment later, in history."""
    (job,) = over(other, 9, "1 hour", status="failed")
    one.execute("LOCK TABLE pgqueue_job_live IN ACCESS EXCLUSIVE MODE")
    asked = start(other, value, "SELECT code FROM pgqueue_why(%s)", job).blocked()
    assert retry(one, [job]) == 1
    one.commit()
    assert asked.result() == "failed"
    assert value(other, "SELECT code FROM pgqueue_why(%s)", job) == "no_worker"


# -- progress


def write(
    connection: Connection, *jobs: int, lease: int = 1, step: str | None = None, done: float | None = 5
) -> list[int]:
    """Write how far jobs are, as a worker does for all that it runs. Return the jobs whose row it wrote."""
    query = "SELECT _pgqueue_write_progress(%s, %s, %s::text[], %s::double precision[], %s, %s::text[])"
    n = len(jobs)
    columns = list(jobs), [lease] * n, [step] * n, [done] * n, [10.0] * n, ["note"] * n
    return list(value(connection, query, *columns))


def progress(connection: Connection) -> list[tuple[Any, ...]]:
    return connection.execute("SELECT job_id, done FROM pgqueue_progress ORDER BY job_id").fetchall()


def step_of(connection: Connection, job: int) -> Any:
    return value(connection, "SELECT current_step FROM pgqueue_job_live WHERE id = %s", job)


@pytest.mark.promise("progress-lease")
def test_a_write_after_the_lease_was_lost_changes_nothing(one: Connection, other: Connection) -> None:
    (job,) = running(one)
    assert finish(one, [job], "release") == [job]
    assert write(other, job) == []
    one.commit()
    assert write(other, job, step="old") == []
    assert [row.id for row in claim(one, lease=2)] == [job]
    one.commit()
    assert write(other, job, step="old") == []
    assert write(other, job, lease=2, step="new") == [job]
    assert (step_of(other, job), progress(other)) == ("new", [(job, 5.0)])


@pytest.mark.parametrize("written", ["before the commit of the wait", "after it"])
def test_an_older_step_does_not_replace_the_wait_that_the_job_has_reached(
    one: Connection, other: Connection, written: str
) -> None:
    (job,) = running(one)
    assert write(other, job, step="render", done=None) == [job]
    assert looks_for_an_event(one, job) == "held"
    if written == "before the commit of the wait":
        assert write(other, job, step="upload") == []
    one.commit()
    assert write(other, job, step="upload") == [job]
    assert step_of(other, job) == "approved"
    assert sleeps(other, job)
    assert gets_an_event(other, job)
    assert [row.id for row in claim(other, lease=2)] == [job]  # so it was due
    assert write(other, job, lease=2, step="upload") == [job]
    assert step_of(other, job) == "upload"


def test_two_writes_of_the_same_jobs_do_not_wait_for_each_other(one: Connection, other: Connection) -> None:
    jobs = running(one, 3)
    assert sorted(write(one, *jobs[:2])) == jobs[:2]
    assert write(other, *reversed(jobs)) == jobs[2:]
    one.commit()
    assert sorted(write(other, *jobs)) == jobs
