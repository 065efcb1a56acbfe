"""What a call does whose unique key a job has: in SQL, as one call, and among many."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_pgqueue import Batch, Unique, cancel, enqueue, enqueue_many, retry
from django_pgqueue.compat import TaskResultStatus
from django_pgqueue.exceptions import JobExists
from django_pgqueue.jobs import enqueue as module
from django_pgqueue.models import Edge, Job, Queue, UniqueWindow
from django_pgqueue.models.job import Step
from django_pgqueue.tasks.links import IN_BATCH
from tests.app.tasks import mail, noop
from tests.app.unique_tasks import index, once, own_key, refresh, remind, render, sync
from tests.support.jobs import sql
from tests.support.workers import fresh, run_due

pytestmark = pytest.mark.django_db

Found = tuple[int, str]
Level = Callable[[Any], Found]
HOUR = timedelta(hours=1)
SPAN = timedelta(seconds=5400.5)
WAITS = ["pending", "retry", "blocked"]
OVER = ["done", "failed", "cancelled", "not kept"]


def become(job: Job, state: str) -> None:
    """Bring a job that is pending into another state."""
    if state == "cancelled":
        cancel(job)
        return
    runs = state not in WAITS
    sql(
        "UPDATE pgqueue_job_live SET status = %s, attempts = %s, worker = 1, lease = 1 WHERE id = %s",
        "running" if runs else state, int(runs), job.pk,
    )  # fmt: skip
    if runs and state != "running":
        sql(
            "SELECT _pgqueue_finish(ARRAY[%s::bigint], ARRAY[1::bigint], ARRAY[%s], NULL, NULL, NULL, NULL,"
            " NULL, NULL, NULL, 20)", job.pk, "failed" if state == "failed" else "done",
        )  # fmt: skip


def row_of(pk: int) -> Any:
    return Job.objects.filter(pk=pk).values().first()


# -- the levels: each makes one call, and returns the id and the outcome


def by_sql(call: Any) -> Found:
    unique, links = call.task.unique, call.task.links
    options = {
        "unique_key": call.task.unique_key, "unique_scope": unique.scope, "on_conflict": unique.on_conflict,
        "unique_window": unique.window and unique.window.total_seconds(),
        "batch": links and links.batch and links.batch.id,
        "max_json_bytes": 100, "after": links and [parent.id for parent in links.after],
    }  # fmt: skip
    defaults: list[Any] = [None, "waiting", "existing", []]
    given = {name: value for name, value in options.items() if value not in defaults}
    query = "SELECT pgqueue_enqueue(%s, %s, run_after => now() + %s::interval, options => %s)"
    with transaction.atomic():
        path, args = call.task.module_path, json.dumps(call.args)
        job = sql(query, path, args, call.task.run_after_delta, json.dumps(given))
    return job, sql("SELECT current_setting('pgqueue.enqueue_outcome')")


def one(call: Any) -> Found:
    return told(enqueue(call))


def many(call: Any) -> Found:
    return told(enqueue_many([call])[0])


def told(job: Job) -> Found:
    """The job that is returned is as its row."""
    if (row := row_of(job.pk)) is not None:
        assert row == {field.attname: getattr(job, field.attname) for field in Job._meta.concrete_fields}
        assert job._state.db == "default"
    return job.pk, str(job.enqueue_outcome)


def answer(level: Level, call: Any) -> Found:
    """Return also the id and the text of a refusal. In Python, the transaction stays usable after it."""
    try:
        return level(call)
    except JobExists as error:
        return error.job_id, str(error)
    except IntegrityError as error:
        cause: Any = error.__cause__
        assert (cause.sqlstate, cause.diag.constraint_name) == ("23505", "pgqueue_job_unique")
        found = re.match(r"pgqueue: job (\d+) ", str(error))
        return int(found[1] if found else 0), str(error)


LEVELS = pytest.mark.parametrize("level", [by_sql, one, many])
RAISES = "has the unique key"


# -- what becomes of a call


class Rule(NamedTuple):
    """How a task is unique, and the outcome of a call while the job with its key waits, runs, or is over."""

    unique: Unique
    waits: str
    runs: str
    over: str
    delay: timedelta | None = None  # of the call; the job is due in an hour
    ended: bool = False  # whether the window has ended


RULES = {
    "waiting": Rule(Unique(), "existing", "created", "created"),
    "waiting, replace": Rule(Unique(on_conflict="replace"), "replaced", "created", "created"),
    "waiting, earliest": Rule(Unique(on_conflict="earliest"), "earlier", "created", "created"),
    "waiting, later": Rule(Unique(on_conflict="earliest"), "existing", "created", "created", 2 * HOUR),
    "waiting, raise": Rule(Unique(on_conflict="raise"), RAISES, "created", "created"),
    "live": Rule(Unique(scope="live"), "existing", "existing", "created"),
    "live, replace": Rule(Unique(scope="live", on_conflict="replace"), "replaced", "existing", "created"),
    "live, earliest": Rule(Unique(scope="live", on_conflict="earliest"), "earlier", "existing", "created"),
    "live, raise": Rule(Unique(scope="live", on_conflict="raise"), RAISES, RAISES, "created"),
    "window": Rule(Unique(window=SPAN), "existing", "existing", "existing"),
    "window, replace": Rule(Unique(window=SPAN, on_conflict="replace"), "replaced", "existing", "existing"),
    "window, earliest": Rule(Unique(window=SPAN, on_conflict="earliest"), "earlier", "existing", "existing"),
    "window, raise": Rule(Unique(window=SPAN, on_conflict="raise"), RAISES, RAISES, RAISES),
    "window, ended": Rule(Unique(window=SPAN), "existing", "created", "created", ended=True),
}


@LEVELS
@pytest.mark.parametrize("name", RULES)
@pytest.mark.promise("unique")
@pytest.mark.promise("unique-window", case="window")
def test_a_call_whose_key_a_job_has(level: Level, name: str) -> None:
    rule = RULES[name]
    Queue.objects.create(name="forgotten", retention=timedelta(0))
    expected = {
        **dict.fromkeys(WAITS, rule.waits), "running": rule.runs, **dict.fromkeys(OVER, rule.over),
        "rolled back": "created",
    }  # fmt: skip
    if rule.waits == "earlier":
        expected["blocked"] = "existing"  # something else decides when it starts
    firsts = {}
    for state in expected:
        queue = "forgotten" if state == "not kept" else "default"
        with transaction.atomic():
            call = noop.using(unique=rule.unique, unique_key=state, run_after=HOUR, queue_name=queue)
            firsts[state] = enqueue(call, "old")
            transaction.set_rollback(state == "rolled back")
        if state != "rolled back":
            become(firsts[state], state)
    if rule.ended:
        UniqueWindow.objects.update(until=firsts["pending"].enqueued_at)
    before: dict[int, Any] = {row["id"]: row for row in Job.objects.values()}
    call = noop.using(unique=rule.unique, run_after=rule.delay)
    answers = {state: answer(level, call.using(unique_key=state).bind("new")) for state in expected}
    after: dict[int, Any] = {row["id"]: row for row in Job.objects.values()}

    windows = {}
    for state, outcome in expected.items():
        first, (job, found) = firsts[state], answers[state]
        assert (first.pk in before) == (state not in ("not kept", "rolled back"))
        assert ("existing" if outcome == "earlier" else outcome) in found, state
        assert (job != first.pk) == (outcome == "created"), state
        was: Any = before.get(first.pk)
        now: Any = after.get(first.pk)
        if outcome in ("created", "replaced"):
            assert after[job]["args"] == ["new"], state
        if outcome == "earlier":
            assert first.enqueued_at < now["run_after"] < first.run_after, state
            assert now == was | {"run_after": now["run_after"]}, state
        elif outcome != "replaced":
            assert now == was, state
        # A window counts from the enqueue of its job, and is only there if a job was enqueued with it.
        if rule.unique.window and not (rule.ended and outcome == "existing"):
            windows[state] = job, (after[job]["enqueued_at"] if job in after else first.enqueued_at) + SPAN
    assert {row.unique_key: (row.job_id, row.until) for row in UniqueWindow.objects.all()} == windows


@LEVELS
def test_scopes_do_not_see_each_other_and_tasks_share_a_key(level: Level) -> None:
    key = 200 * "é"  # the longest one
    first, _ = level(noop.using(unique_key=key).bind(1))
    assert level(noop.using(unique=Unique(scope="live"), unique_key=key).bind(1))[1] == "created"
    assert level(index.using(unique_key=key).bind(2)) == (first, "existing")
    assert level(render.using(unique_key=key).bind(2)) == (first, "replaced")
    job = Job.objects.get(pk=first)
    assert (job.task_path, job.args, job.unique_key) == (render.module_path, [2], key)


@pytest.mark.parametrize("level", [one, many])
def test_a_job_with_a_key_is_stored_as_one_without(level: Level) -> None:
    replaces = mail.using(unique=Unique(on_conflict="replace"), unique_key="b")
    calls = (mail.bind(5), mail.using(unique_key="a").bind(5), noop.using(unique_key="b").bind())
    jobs = [level(each)[0] for each in calls]
    assert level(replaces.bind(5)) == (jobs[2], "replaced")
    names = "task_path args kwargs metadata queue_name priority max_attempts timeout on_lost".split()
    plain, keyed, replaced = Job.objects.filter(pk__in=jobs).order_by("pk").values(*names)
    assert plain == keyed == replaced


# -- a key that is taken, when the call asks for a batch or parents


class Link(NamedTuple):
    """What the job with the key has, what the call asks for, the outcome, and the size of the batch then."""

    holder: dict[str, Any]
    call: dict[str, Any]
    outcome: str
    members: int = 0


AFTER, BATCH, RAISE = {"after": ["parent"]}, {"batch": "batch"}, {"unique": Unique(on_conflict="raise")}
LINKS = {
    "joins the batch": Link({}, BATCH, "existing", 1),
    "is in the batch": Link(BATCH, BATCH, "existing", 1),
    "is in another batch": Link({"batch": "other"}, BATCH, "and is in another batch"),
    "is in another batch, raise": Link({"batch": "other"}, BATCH | RAISE, RAISES),
    "is in no batch, raise": Link({}, BATCH | RAISE, RAISES),
    "waits for none": Link({}, AFTER, "does not wait for what this call runs after"),
    "is a parent": Link({}, {"after": ["parent", "holder"]}, "does not wait for what this call"),
    "waits for fewer": Link(AFTER, BATCH | {"after": ["parent", "second"]}, "does not wait for what this"),
    "waits for the same": Link(AFTER, AFTER, "existing"),
    "waits for the same, batch": Link(AFTER, BATCH | AFTER, "existing", 1),
    "the parent is done": Link({}, {"after": ["done"]}, "existing"),
}


@LEVELS
@pytest.mark.parametrize("name", LINKS)
@pytest.mark.promise("unique-after", case="waits for none")
@pytest.mark.promise("unique-batch", case="joins the batch")
def test_a_taken_key_and_links(level: Level, name: str) -> None:
    link = LINKS[name]
    batches = {each: Batch.open(each) for each in ("batch", "other")}
    jobs = {each: enqueue(noop) for each in ("parent", "second", "done")}
    become(jobs["done"], "done")

    def linked(links: dict[str, Any]) -> Any:
        found: dict[str, Any] = {"after": lambda names: [jobs[each] for each in names], "batch": batches.get}
        given = {name: found[name](to) if name in found else to for name, to in links.items()}
        return noop.using(unique_key="k", **given)

    jobs["holder"] = holder = enqueue(linked(link.holder), "old")
    before, edges = row_of(holder.pk), Edge.objects.count()
    job, found = answer(transaction.atomic(level), linked(link.call).bind("new"))
    assert job == holder.pk
    assert link.outcome in found
    batch = batches["batch"]
    joined = {"batch_id": batch.id, "marks": holder.marks | IN_BATCH} if link.members else {}
    assert row_of(holder.pk) == before | joined
    assert (Job.objects.count(), Edge.objects.count(), batch.counts().added) == (4, edges, link.members)
    assert batches["other"].counts().added == (link.holder.get("batch") == "other")
    if link.holder != AFTER:
        become(holder, "done")
        assert batch.counts().done == link.members


# -- what only one call in Python shows


def test_only_the_id_is_known_of_a_job_that_is_not_kept_within_its_window() -> None:
    Queue.objects.create(name="default", retention=timedelta(0))
    first = enqueue(remind, 7)
    become(first, "done")
    second = enqueue(remind, 7)
    assert (second.pk, second.enqueue_outcome) == (first.pk, "existing")
    with pytest.raises(Job.DoesNotExist):
        _ = second.status
    result = remind.enqueue(7)
    assert (result.id, result.status) == (str(first.pk), TaskResultStatus.SUCCESSFUL)


def test_replace_gives_the_waiting_job_everything_but_its_id_and_history() -> None:
    first = enqueue(render.using(run_after=HOUR, priority=3, metadata={"a": 1}), 7, "old")
    sql(
        "UPDATE pgqueue_job_live SET status = 'retry', attempts = 2, crash_count = 1, lost_in_a_row = 1,"
        " errors = '[{}, {}]', waiting_reason = 'why' WHERE id = %s", first.pk,
    )  # fmt: skip
    second = enqueue(render.using(priority=9, queue_name="fast"), 7, text="new")
    assert (second.pk, second.enqueue_outcome) == (first.pk, "replaced")
    assert (second.args, second.kwargs, second.metadata) == ([7], {"text": "new"}, {})
    assert (second.priority, second.queue_name, second.status) == (9, "fast", "retry")
    assert first.enqueued_at < second.run_after < first.run_after
    assert second.expires_at is not None
    assert first.expires_at is not None
    assert second.expires_at < first.expires_at
    assert (second.attempts, second.forgiven_attempts, second.errors) == (2, 2, [{}, {}])
    assert (second.crash_count, second.lost_in_a_row, second.waiting_reason) == (0, 0, "")
    assert second.enqueued_at == first.enqueued_at
    stored = Job.objects.get()
    assert (stored.kwargs, stored.enqueue_outcome) == ({"text": "new"}, None)


def test_a_replaced_job_loses_the_steps_of_its_former_arguments() -> None:
    replaced = index.using(unique=Unique(name="k", key=(), on_conflict="replace"))
    job = enqueue(replaced, 7)
    assert job.send_event("approved")
    assert enqueue(replaced, 8).pk == job.pk
    assert not Step.objects.exists()
    assert Job.objects.get(pk=job.pk).marks == 0


def test_a_new_job_is_one_statement_and_a_twin_one_more() -> None:
    with CaptureQueriesContext(connection) as queries:
        enqueue(remind, 7)
    assert len(queries) == 1
    with CaptureQueriesContext(connection) as queries:
        enqueue(remind, 7)
    assert len(queries) == 2


def test_the_result_of_django_tasks_is_that_of_the_other_job() -> None:
    first = index.enqueue(7, force=True)
    second = index.enqueue(7)
    assert second.id == first.id
    assert (second.args, second.kwargs) == ([7], {"force": True})


# -- many calls


def test_many_calls_are_in_the_order_given_and_meet_earlier_ones() -> None:
    known = enqueue(index, 5)
    table = [
        (index.bind(9), "created", 0), (noop.bind(1), "created", 1), (index.bind(5), "existing", -1),
        (index.bind(3), "created", 2), (index.bind(9, force=True), "existing", 0),
        (noop.bind(1), "created", 3), (render.bind(1, "a"), "created", 4),
        (render.bind(1, "b"), "replaced", 4),
        (refresh.using(run_after=HOUR).bind("x"), "created", 5), (refresh.bind("x"), "existing", 5),
        (remind.bind(1), "created", 6), (remind.bind(1), "existing", 6),
    ]  # fmt: skip
    jobs = enqueue_many(call for call, *_ in table)
    assert jobs.enqueue_outcomes == [outcome for _, outcome, _ in table]
    new = list(Job.objects.exclude(pk=known.pk).order_by("pk"))
    assert jobs.ids == [[*new, known][place].pk for *_, place in table]
    assert [job.args for job in new] == [[9], [1], [3], [1], [1, "b"], ["x"], [1]]
    assert (new[0].kwargs, new[1].unique_key, new[1].unique_scope) == ({}, None, None)
    assert new[5].run_after < new[5].enqueued_at + HOUR
    assert jobs[:1].ids == jobs.ids[:1]
    assert enqueue_many([noop.bind(1)] * 3).enqueue_outcomes == ["created"] * 3
    assert not enqueue_many([])


@pytest.mark.parametrize("chunk", [2, 2000])
@pytest.mark.promise("unique-many")
def test_bulk_that_meets_a_job_it_must_not_meet_inserts_nothing(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    first = enqueue(once, "a")
    with pytest.raises(JobExists, match=rf"^item 3: Job {first.pk} has the unique key") as caught:
        enqueue_many([noop.bind(1), noop.bind(2), once.bind("z"), once.bind("a"), once.bind("b")])
    assert caught.value.job_id == first.pk
    assert Job.objects.count() == 1
    assert enqueue(once, "z").enqueue_outcome == "created"


@pytest.mark.parametrize("plain", [0, 4])
def test_statements_of_a_large_bulk_are_in_the_order_of_the_keys(
    plain: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 3)
    inserted: list[list[str | None]] = []
    insert = module._insert

    def spy(alias: str, numbered: list[Any]) -> Any:
        inserted.append([call.unique_key for _, call in numbered])
        return insert(alias, numbered)

    monkeypatch.setattr(module, "_insert", spy)
    numbers = [8, 3, 5, 1, 3, 9, 2]
    calls = [noop.bind("plain")] * plain + [index.bind(number) for number in numbers]
    ids = enqueue_many(iter(calls)).ids
    assert [Job.objects.get(pk=pk).args for pk in ids[plain:]] == [[number] for number in numbers]
    keys = [key for chunk in inserted for key in chunk if key]
    assert keys == sorted(keys)
    assert len(keys) == 7
    assert len(inserted) > 2


# -- retry, async code, the worker


@pytest.mark.promise("unique-retry")
def test_a_retry_leaves_jobs_whose_key_another_has_in_history() -> None:
    past = []
    for call in (sync.bind(7), sync.bind(7), noop.bind()):
        past.append(enqueue(call))
        become(past[-1], "failed")

    def states() -> list[str]:
        return [fresh(job).status for job in past]

    twin = enqueue(sync, 7)
    assert retry(past) == 1
    assert states() == ["failed", "failed", "pending"]
    assert (fresh(past[0]).shelf, fresh(past[0]).unique_key) == (9, twin.unique_key)
    cancel(twin)
    assert retry(past[:2]) == 1, "of two with one key"
    assert states() == ["pending", "failed", "pending"]
    assert enqueue(sync, 7).pk == past[0].pk


@pytest.mark.django_db(transaction=True)
def test_a_task_may_read_its_own_key() -> None:
    job, plain = enqueue(own_key.using(unique_key="k")), enqueue(own_key)
    run_due()
    assert (fresh(job).result, fresh(plain).result) == ("k", None)
