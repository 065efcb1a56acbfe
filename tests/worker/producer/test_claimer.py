"""What a worker finds: by weights and age, in many queues whose jobs are due later, and within limits."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import pytest

from django_pgqueue import RateLimit, enqueue, enqueue_many, set_limit
from django_pgqueue.models import Job, Limit
from django_pgqueue.postgres.session import Session
from django_pgqueue.tasks.task import Task
from django_pgqueue.worker.options import WorkerOptions
from django_pgqueue.worker.producer.claimer import MOST_COMING, Claimer
from tests.app import limit_tasks as limited, worker_tasks as tasks
from tests.app.worker_tasks import noop
from tests.support.factories import JobFactory, ago
from tests.support.jobs import LONG_AGO, add, register, sql_claim, value
from tests.support.plans import CLAIM_INDEX, LIVE, reads
from tests.support.sessions import Connection
from tests.support.workers import done, fresh, over, until, working

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 500


def claimer(session: Session, **options: Any) -> Claimer:
    """One that has searched all queues."""
    found = Claimer(WorkerOptions(**options), worker=1)
    found.search(session)
    return found


def claimed(found: Claimer, session: Session, count: int = 100) -> list[str]:
    return [row.queue_name for row in found.claim(session, count)]


def test_claimed_jobs_start_by_priority_and_time(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever order the server returns the rows that it has updated, here by their ids."""
    late, early = (JobFactory.create(run_after=ago(seconds=seconds)).pk for seconds in (1, 2))
    urgent = JobFactory.create(priority=5).pk
    found, rows = claimer(session), session.rows
    monkeypatch.setattr(session, "rows", lambda *query: sorted(rows(*query)))
    assert [row.id for row in found.claim(session, 3)] == [urgent, early, late]


# -- weights and age


def enqueued(count: int, queue: str, priority: int = 0) -> None:
    enqueue_many(noop.using(queue_name=queue, priority=priority).bind() for _ in range(count))


def test_queues_are_served_as_often_as_their_weights_say(session: Session) -> None:
    queues = ("critical", "default", "low")
    for queue in queues:
        enqueued(10, queue)
    found = claimer(session, queues=queues, weights={"critical": 6, "default": 3})
    assert Counter(name for _ in range(10) for name in claimed(found, session, 1)) == {
        "critical": 6, "default": 3, "low": 1,
    }  # fmt: skip


@pytest.mark.promise("aging")
def test_a_job_that_has_waited_long_comes_before_newer_ones_of_the_next_priority(
    one: Connection, session: Session, settings: Any
) -> None:
    settings.PGQUEUE = {"AGING": timedelta(minutes=1)}
    enqueued(10, "default")
    enqueued(2, "low", -2)
    backdate = f"UPDATE {LIVE} SET run_after = now() - %s * interval '1 s' WHERE queue_name = 'low'"
    one.execute(backdate, (110,))
    assert claimed(claimer(session), session, 2) == ["default"] * 2
    one.execute(backdate, (190,))
    found = claimer(session)
    assert Counter(claimed(found, session, 3)) == {"low": 2, "default": 1}
    assert claimed(found, session) == ["default"] * 7
    # The range is empty, so it has not waited.
    enqueued(2, "low", -2)
    enqueued(2, "default")
    found.search(session)
    assert claimed(found, session, 2) == ["default"] * 2


# -- many queues


@pytest.fixture
def tenants(one: Connection) -> Connection:
    """A queue for each of many customers, with one job that is due in an hour or later."""
    one.execute(
        "INSERT INTO pgqueue_job_live (task_path, max_attempts, on_lost, queue_name, run_after)"
        " SELECT 'tests.tasks.noop', 5, 'rerun', 'tenant' || n,"
        " clock_timestamp() + interval '1 hour' + n * interval '1 s' FROM generate_series(1, %s) AS n",
        (MANY,),
    )
    return one


@pytest.fixture
def found(tenants: Connection, session: Session) -> Claimer:
    return claimer(session)


def test_a_search_through_all_queues_takes_few_steps_and_is_rationed(
    tenants: Connection, session: Session
) -> None:
    with reads(tenants) as counts:
        found = claimer(session)
    assert counts.of(CLAIM_INDEX) <= 1.1 * MANY, counts
    assert len(found._coming) == MOST_COMING
    assert found.rest > 0
    with reads(tenants) as counts:
        due, next_due = found.search(session)
    assert not due
    assert next_due == pytest.approx(3600, abs=60)
    assert counts.of(CLAIM_INDEX) <= 20, counts
    assert found.knows_ranges is False, "a claim would read them all"
    add(tenants, queue_name="tenant77")
    with reads(tenants) as counts:
        assert found.search(session, {"tenant77"})[0] is True, "a notification has named it"
    assert counts.of(CLAIM_INDEX) <= 20, counts
    assert claimed(found, session) == ["tenant77"]


def test_a_job_that_nobody_announced_is_found_when_the_ration_allows_it(
    tenants: Connection, session: Session, found: Claimer
) -> None:
    """While a worker is awake, a job that is enqueued sends no notification. So before it sleeps for long, it
    searches all queues once more."""
    found._next_full_search = monotonic() + 30
    assert found.search(session, asleep=False)[1] == pytest.approx(30, abs=5)
    add(tenants, queue_name="tenant77")
    due, next_due = found.search(session)
    assert not due
    assert next_due == pytest.approx(30, abs=5), "it is still to come"
    found._next_full_search = 0.0
    with reads(tenants) as counts:
        assert found.search(session, asleep=False) == (False, 0.0), "the next one comes at once"
    assert counts.of(CLAIM_INDEX) <= 20, "not before it announces that it sleeps"
    assert found.search(session)[0]
    assert claimed(found, session) == ["tenant77"]
    assert found.search(session)[1] == pytest.approx(3600, abs=60)


def test_jobs_that_come_due_are_found_also_behind_the_next_ones(
    tenants: Connection, session: Session, found: Claimer
) -> None:
    first = min(found._coming, key=found._coming.__getitem__)
    tenants.execute(f"UPDATE {LIVE} SET run_after = now() WHERE queue_name = %s", (first,))
    found._coming[first] = monotonic()
    assert found.search(session)[0]
    assert claimed(found, session) == [first]
    # The last one that it knew of is due: there may be more behind it, whatever the ration says.
    add(tenants, queue_name="tenant77")
    found._coming_until = monotonic()
    assert found.search(session)[0]
    assert claimed(found, session) == ["tenant77"]


@pytest.mark.parametrize("options", [{"queues": ("tenant1", "tenant2")}, {"exclude_queues": ("tenant77",)}])
def test_a_worker_for_some_queues_ignores_a_notification_about_others(
    tenants: Connection, session: Session, options: Any
) -> None:
    add(tenants, queue_name="tenant77")
    assert claimer(session, **options).search(session, {"tenant77"})[0] is False


def test_a_claim_by_sql_passes_them_in_few_steps(tenants: Connection) -> None:
    worker = register(tenants)
    (job,) = add(tenants, queue_name="tenant77")
    with reads(tenants) as counts:
        assert [row.id for row in sql_claim(tenants, worker)] == [job]
    # Before PostgreSQL 16, a table as short as this one is read as a whole, besides.
    passes = 1.2 if tenants.info.server_version >= 160000 else 2.2
    assert counts.of(CLAIM_INDEX) <= passes * MANY, counts


# -- the search against a query that reads everything

EVERYTHING = """
    SELECT DISTINCT ON (queue_name, is_grouped, priority)
        queue_name::text, priority, id, group_key::text, run_after
    FROM pgqueue_job_live
    WHERE status IN ('pending', 'retry') AND (%s::text[] IS NULL OR queue_name = ANY (%s))
        AND queue_name <> ALL (%s)
    ORDER BY queue_name, is_grouped, priority DESC, run_after, id
"""
SEARCH = """
    SELECT queue_name, priority, id, group_key
    FROM _pgqueue_first_due(%s::text[], %s, %s, %s, %s, %s, %s)
"""


@pytest.mark.parametrize("seed", range(2))
def test_a_search_finds_the_first_job_of_every_range(one: Connection, seed: int) -> None:
    dice = random.Random(seed)
    for number in range(dice.choice([3, 40, 300])):
        for _ in range(dice.choice([1, 1, 1, 2, 3])):
            one.execute(
                "INSERT INTO pgqueue_job_live"
                " (task_path, max_attempts, on_lost, queue_name, priority, group_key)"
                " SELECT 'a.b', 5, 'rerun', %s, %s + n %% %s, %s FROM generate_series(1, %s) AS n",
                (
                    f"q{number}", dice.choice([-100, -1, 0, 50]), dice.choice([1, 2, 50]),
                    dice.choice([None, None, "g"]), dice.choice([1, 1, 2, 16, 17, 60]),
                ),
            )  # fmt: skip
    names = [f"q{number}" for number in range(300)]
    for queues, but in ((None, []), (None, ["q0", "q2"]), (["q2", "q1", "gone"], []), (names, []), ([], [])):
        expected = one.execute(EVERYTHING, (queues, queues, but)).fetchall()
        assert (len(expected) > 2) == (queues != [])
        for part in (0, 0.2, 1):
            known = [row for row in expected if dice.random() < part]
            arrays = (
                [name for name, *_ in known], [group is not None for *_, group, _ in known],
                [priority for _, priority, *_ in known], [LONG_AGO] * len(known), [0] * len(known),
            )  # fmt: skip
            found = one.execute(SEARCH, (queues, but, *arrays)).fetchall()
            assert sorted(found, key=str) == sorted((row[:4] for row in expected), key=str), (
                seed,
                queues,
                part,
            )


def test_a_search_looks_above_the_marks_of_known_ranges(one: Connection) -> None:
    first, second = add(one, 2, queue_name="a")
    add(one, 2, queue_name="b", priority=7)
    (other,) = add(one, queue_name="b")
    mark = value(one, f"SELECT run_after FROM {LIVE} WHERE id = %s", first)
    marks = [mark, datetime(2100, 1, 1, tzinfo=UTC)]
    found = one.execute(SEARCH, (None, [], ["a", "b"], [False] * 2, [0, 7], marks, [first, 0])).fetchall()
    assert {job for _, _, job, _ in found} == {second, other}


# --- Limits: what runs at once, in which order, and when a change takes effect


def test_the_limits_that_the_code_declares_are_written_by_a_worker() -> None:
    with working(threads=3):
        jobs = [enqueue(limited.two, f"hold {number}") for number in range(3)]
        tasks.runs("hold 0", "hold 1")
        until(lambda: fresh(jobs[2]).status == "blocked")
        two = Limit.objects.get(name="tests.app.limit_tasks.two")
        assert (two.concurrency, two.declared_concurrency, two.is_overridden) == (2, 2, False)
        set_limit(task=limited.two, concurrency=3)
        tasks.runs("hold 2")
        tasks.release("hold 0", "hold 1", "hold 2")
        over(*jobs)


def test_the_limits_of_a_module_are_written_as_soon_as_a_job_has_imported_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def imported() -> list[Task[..., Any]]:
        return [limited.two] if tasks.gate("hold 0 runs").is_set() else []

    monkeypatch.setattr("django_pgqueue.maintenance.limits.declared_tasks", imported)
    with working(threads=3) as worker:
        first = enqueue(limited.two, "hold 0")
        tasks.runs("hold 0")
        worker.producer._registration._next = float("inf")  # not only when the worker registers again
        second = enqueue(limited.two, "hold 1")
        tasks.runs("hold 1")
        tasks.release("hold 0", "hold 1")
        over(first, second)


@pytest.mark.promise("limit-change")
def test_the_limit_of_a_queue_holds_and_changes_while_it_works() -> None:
    def running() -> int:
        return Job.objects.filter(status="running").count()

    set_limit(queue="default", concurrency=2)
    with working(threads=6):
        jobs = [enqueue(tasks.hold, f"q{number}") for number in range(5)]
        tasks.runs("q0", "q1")
        assert running() == 2
        set_limit(queue="default", concurrency=3)
        tasks.runs("q2")
        assert running() == 3
        tasks.release("q0")
        tasks.runs("q3")
        tasks.release("q1", "q2", "q3", "q4")
        over(*jobs)


@pytest.mark.promise("limit-cancel-old")
def test_a_job_that_another_one_replaces_is_asked_to_stop() -> None:
    with working(threads=2):
        old = enqueue(limited.build, "a", "hold old")
        tasks.runs("hold old")
        new = enqueue(limited.build, "a", "new")
        until(lambda: fresh(old).cancel_requested)
        tasks.release("hold old")
        done(new)


def test_a_job_that_finds_no_room_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "django_pgqueue"), working(threads=2):
        old = enqueue(limited.refresh, "a", "hold it")
        tasks.runs("hold it")
        new = enqueue(limited.refresh, "a", "new")
        over(new)
        assert fresh(new).status == "cancelled"
        until(lambda: "cancelled 1 job that found no room, as the limit says" in caplog.text)
        tasks.release("hold it")
        over(old)


@pytest.mark.promise("rate-change")
@pytest.mark.parametrize(
    ("target", "task"),
    [({"task": limited.hourly}, limited.hourly), ({"queue": "default"}, tasks.note)],
    ids=["task", "queue"],
)
def test_a_rate_that_is_raised_wakes_a_worker_that_sleeps(target: dict[str, Any], task: Any) -> None:
    if "queue" in target:
        set_limit(**target, rate_limit=RateLimit(1, per=timedelta(hours=1), burst=2))
    with working(threads=3):
        jobs = [enqueue(task, f"h{number}") for number in range(4)]
        until(lambda: sum(fresh(job).is_finished for job in jobs) == 2)
        if "task" in target:
            until(lambda: fresh(jobs[3]).status == "blocked")
        set_limit(**target, rate_limit=RateLimit(1000, per=timedelta(seconds=1), burst=10))
        over(*jobs)
