"""What is paused: queues, everything, and tasks, with real workers in threads."""

from __future__ import annotations

from datetime import timedelta
from time import monotonic
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import transaction
from django.utils import timezone

from django_pgqueue import cancel, edit, enqueue, enqueue_many, pause, resume, retry
from django_pgqueue.models import Job, Pause, Worker
from django_pgqueue.models.changes import run_now
from django_pgqueue.worker.producer import demand, idle, inbox
from django_pgqueue.worker.producer.inbox import Orders
from tests.app import worker_tasks as tasks
from tests.app.limit_tasks import by_tenant
from tests.app.tasks import noop
from tests.support.factories import claimed
from tests.support.jobs import sql
from tests.support.waiting import DEADLINE, until
from tests.support.workers import RunningWorker, done, fresh, make_producer, run_due, run_here, working

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


def states(*jobs: Any) -> list[str]:
    return [fresh(job).status for job in jobs]


# -- queues, everything


EVERYTHING: dict[str, Any] = {"everything": True}


@committed
@pytest.mark.parametrize(("target", "options"), [
    ({"queue": "mail"}, {}), (EVERYTHING, {}), (EVERYTHING, {"queues": ("mail", "default")}),
    (EVERYTHING, {"queues": ("mail",)}),
])  # fmt: skip
@pytest.mark.promise("pause-queue")
def test_what_is_paused_is_left_out_and_no_row_is_touched(
    target: dict[str, Any], options: dict[str, Any]
) -> None:
    pause(**target, reason="down")
    mail, other = enqueue(noop.using(queue_name="mail")), enqueue(noop)
    before = Job.objects.values().get(pk=mail.pk)
    run_due(**options)
    assert Job.objects.values().get(pk=mail.pk) == before
    assert states(mail, other) == ["pending", "pending" if target == EVERYTHING else "done"]
    assert resume(**target)
    run_due(**options)
    assert states(mail) == ["done"]


@committed
@pytest.mark.parametrize(
    ("target", "held"),
    [({"queue": "default"}, "pending"), ({"task": noop}, "blocked")],
    ids=["queue", "task"],
)
@pytest.mark.promise("resume-heard")
def test_a_running_worker_hears_of_a_pause_and_of_its_end(
    monkeypatch: pytest.MonkeyPatch, target: dict[str, Any], held: str
) -> None:
    monkeypatch.setattr(idle, "POLL_INTERVAL", 60.0)
    other = tasks.add.using(queue_name="other")
    with working():
        done(enqueue(noop))
        pause(**target)
        # A job that is not paused is later than the notification.
        done(enqueue(other, 1, 2))
        jobs = enqueue_many(noop.bind() for _ in range(30)).ids
        done(enqueue(other, 1, 2))
        until(lambda: states(*jobs) == [held] * 30)
        began = monotonic()
        resume(**target)
        done(*jobs)
        assert monotonic() - began < 5.0


@committed
@pytest.mark.promise("pause-within-a-second")
@pytest.mark.parametrize("order", ["pause", "drain", "pause, while it does not claim"])
def test_an_order_whose_notification_was_lost_is_read_before_the_next_claim_or_with_a_registration(
    monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    claims = order != "pause, while it does not claim"
    monkeypatch.setattr(inbox, "READ_EVERY", 0.0 if claims else float("inf"))
    with working() as worker:
        done(enqueue(noop))
        worker.producer._registration._next = float("inf")
        if order == "drain":
            Worker.objects.update(drain="replace")
            enqueue(noop)
            worker.thread.join(DEADLINE)
            assert worker.producer.lifetime.replaced
            return
        Pause.objects.create(kind="queue", name="default")
        if not claims:
            worker.producer._registration._next = 0.0
            until(lambda: worker.producer._orders.queues == {"default"})
            return
        other = noop.using(queue_name="other")
        done(enqueue(other))  # perhaps by a claim that was prepared before the pause
        done(enqueue(other))
        job = enqueue(noop)
        done(enqueue(other))
        assert states(job) == ["pending"]


@pytest.mark.promise("pause-within-a-second")
def test_a_worker_that_claims_reads_its_orders_once_a_second() -> None:
    producer = make_producer()
    own = producer._inbox
    session: Any = SimpleNamespace(rows=lambda query: [], value=lambda *_: 0, pooled=False)
    own.read_orders(session, 99.0, claims=False)
    asked = [100.0, 100.5, 100.9, 101.0, 101.1, 150.0]
    found = [own.read_orders(session, now, claims=True) for now in asked]
    assert found == [True, False, False, True, False, True]
    assert not own.read_orders(session, 160.0, claims=False)
    own.learn_orders([], 160.5)  # with a registration
    assert not own.read_orders(session, 161.4, claims=True)
    sent = monotonic() - 5  # so long the answer was on its way, and the pause does not end too early
    own.learn_orders([("pause", "default", "", "", 60.0, None)], sent)
    assert producer._orders.next_end >= sent + 65
    producer._waker.close()


def claimed_ahead(worker: RunningWorker) -> tuple[int, list[int]]:
    """A job that runs on the only thread, and jobs that the worker has claimed and not started."""
    worker.producer._demand.sync.learn([0.0001])
    with transaction.atomic():
        running = enqueue(tasks.hold, "first").pk
        jobs = enqueue_many([noop.bind(), tasks.add.bind(1)]).ids
    until(lambda: states(running, *jobs) == ["running"] * 3)
    tasks.runs("first")
    return running, jobs


@committed
@pytest.mark.promise("pause-lets-finish")
@pytest.mark.parametrize(
    ("target", "held", "other"),
    [({"queue": "default"}, "pending", "pending"), ({"task": noop}, "blocked", "running")],
    ids=["queue", "task"],
)
def test_running_jobs_finish_and_paused_ones_that_have_not_started_go_back(
    monkeypatch: pytest.MonkeyPatch, target: dict[str, Any], held: str, other: str
) -> None:
    monkeypatch.setattr(demand, "HOARD_SECONDS", DEADLINE)
    with working(threads=1) as worker:
        running, jobs = claimed_ahead(worker)
        pause(**target)
        until(lambda: states(running, *jobs) == ["running", held, other])
        assert fresh(jobs[0]).attempts == 0
        tasks.release("first")
        done(running)
        if other == "running":
            done(jobs[1])
        assert states(jobs[0]) == [held]


@committed
@pytest.mark.parametrize(("target", "held"), [(EVERYTHING, "pending"), ({"task": noop}, "blocked")])
@pytest.mark.promise("pause-ends")
def test_a_pause_ends_by_itself(target: dict[str, Any], held: str) -> None:
    with working() as worker:
        pause(**target, duration=HOUR)
        until(lambda: worker.producer._orders.everything or worker.producer._orders.tasks)
        job = enqueue(noop)
        until(lambda: states(job) == [held])
        pause(**target, duration=0.3)
        done(job)
    left = Pause.objects.first()
    assert left is None or (held == "pending" and left.until is not None and left.until <= timezone.now())


# -- tasks


@pytest.mark.promise("pause-task")
def test_jobs_of_a_paused_task_are_put_aside_without_an_attempt_and_come_back() -> None:
    pause(task=noop, reason="r" * 400, author="a" * 150)
    job, between, other = enqueue(noop), enqueue(noop), enqueue(tasks.add, 1, 2)
    Job.objects.filter(pk=between.pk).update(status="retry", attempts=2, forgiven_attempts=1)
    before = fresh(job)
    for _ in range(2):
        run_here()
        assert states(job, between, other) == ["blocked", "blocked", "done"]
    found = fresh(job)
    assert found.waiting_reason == f"paused by {'a' * 150}: {'r' * 338}", "as much as fits its column"
    assert (found.started_at, found.worker, found.lease, found.deadline) == (None, None, None, None)
    assert (found.run_after, found.enqueued_at) == (before.run_after, before.enqueued_at)
    assert [found.attempts, fresh(between).attempts] == [0, 2]
    assert resume(task="tests.app.tasks.noop")
    run_here()
    ends = [(row.status, row.attempts, row.waiting_reason) for row in map(fresh, (job, between))]
    assert ends == [("done", 1, ""), ("done", 3, "")]


@committed
@pytest.mark.promise("resume-strands-nothing")
@pytest.mark.promise("pause-and-death")
@pytest.mark.parametrize("dies", [True, False], ids=["worker dies", "no worker lives"])
def test_no_paused_job_is_lost_or_stranded(dies: bool) -> None:
    pause(task=noop)
    job = enqueue(noop)
    if dies:
        Job.objects.filter(pk=job.pk).update(status="running", worker=5, lease=9, attempts=1)
        sql("SELECT _pgqueue_recover(NULL, NULL, NULL, false, 'lost', 3, 10, 5)")
    run_due()
    assert (fresh(job).status, fresh(job).attempts) == ("blocked", 0)
    if dies:
        resume(task=noop)
    else:
        Pause.objects.all().delete()  # by hand, without a notification
    run_due()
    assert states(job) == ["done"]


@pytest.mark.promise("resume-order")
def test_more_jobs_than_one_batch_continue_in_the_order_of_their_ids() -> None:
    pause(task=noop)
    jobs = enqueue_many(noop.bind() for _ in range(5)).ids
    run_here()
    Job.objects.filter(pk=jobs[3]).update(run_after=timezone.now() + HOUR)
    resume(task=noop)
    assert [sql("SELECT _pgqueue_unpause(2)") for _ in range(4)] == [2, 2, 1, 0]
    order = Job.objects.filter(status="pending").order_by("run_after", "pk").values_list("pk", flat=True)
    assert [*order] == [*jobs[:3], jobs[4], jobs[3]], "one was to run later"


@pytest.mark.promise("pause-and-change")
def test_paused_jobs_can_be_cancelled_retried_edited_and_run_now() -> None:
    pause(task=noop)
    jobs = enqueue_many(noop.bind() for _ in range(4)).ids
    run_here()
    first, second, third, fourth = jobs
    Job.objects.filter(pk=second).update(attempts=3, crash_count=1)
    assert cancel(first) == 1
    assert retry(second) == 1
    assert edit(third, priority=7, run_after=HOUR) == 1
    assert run_now(fourth) == 0, "it is due"
    assert run_now(third) == 1
    assert states(*jobs) == ["cancelled", "blocked", "blocked", "blocked"]
    assert (fresh(second).forgiven_attempts, fresh(second).crash_count) == (3, 0)
    assert fresh(third).run_after <= timezone.now()
    resume(task=noop)
    run_here()
    assert states(second, third, fourth) == ["done"] * 3


BY_TENANT = by_tenant.module_path
NARROW: list[dict[str, Any]] = [
    {"group": "acme"},
    {"limit_key": f"{BY_TENANT}/acme"},
    {"argument": f"{BY_TENANT} kwargs.tenant=acme"},
    {"argument": f"{BY_TENANT} args.0=7"},
]


@pytest.mark.parametrize("target", NARROW, ids=["group", "limit key", "kwargs", "args"])
@pytest.mark.promise("pause-some")
def test_a_pause_of_some_jobs_of_a_task_holds_these_alone(target: dict[str, Any]) -> None:
    bound = by_tenant.using(group_key="acme")
    held = enqueue_many(bound.bind(7, tenant="acme") for _ in range(3)).ids
    other = enqueue(by_tenant.using(group_key="else"), 8, tenant="else")
    found = pause(**target, reason="a flood", author="ann")
    run_here()
    assert states(*held, other) == [*["blocked"] * 3, "done"]
    assert {fresh(job).waiting_reason for job in held} == {f"paused (pause {found.pk}) by ann: a flood"}
    assert [fresh(job).attempts for job in held] == [0] * 3
    run_here()
    assert states(*held) == ["blocked"] * 3, "the pause has not ended"
    pause(task=by_tenant)
    assert resume(**target)
    run_here()
    assert states(*held) == ["blocked"] * 3, "its task is paused, too"
    assert resume(task=by_tenant)
    run_here()
    assert states(*held) == ["done"] * 3


@committed
@pytest.mark.promise("pause-some")
def test_a_running_worker_hears_of_a_pause_of_some_jobs() -> None:
    with working(threads=1) as worker:
        running, jobs = claimed_ahead(worker)
        pause(argument=f"{noop.module_path} kwargs.a=1")  # of none of them
        pause(argument=f"{tasks.add.module_path} args.0=1")
        until(lambda: worker.producer._orders.is_narrow)
        until(lambda: states(jobs[1]) == ["blocked"])
        tasks.release("first")
        done(running, jobs[0])
        resume(argument=f"{tasks.add.module_path} args.0=1")
        done(jobs[1])


@committed
def test_jobs_behind_many_paused_ones_are_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claims grow while they return only paused jobs, which need no slot."""
    pause(task=noop)
    enqueue_many(noop.bind(b="x") for _ in range(800))
    job = enqueue(tasks.add, 1, 2)
    producer = make_producer(threads=2, burst=True)
    note = Mock(wraps=producer._orders.note)
    monkeypatch.setattr(producer._orders, "note", note)
    run_due(producer)
    assert states(job) == ["done"]
    assert Job.objects.filter(status="blocked").count() == 800
    assert note.call_count < 15


# -- what a worker knows


def test_when_the_next_pause_ends_and_which_have_begun_and_ended() -> None:
    orders, found = Orders(), []
    left: dict[str, float]
    for now, left in (
        (100, {"queue": 5.0, "task": 9.0}), (105, {"task": 4.0}), (106, {}), (107, {"task": -1.0}),
    ):  # fmt: skip
        orders.learn([(kind, "a", "", "", seconds, None) for kind, seconds in left.items()], now)
        found.append((orders.next_end, orders.pause_began, orders.pauses_ended))
    never = float("inf")
    assert found == [
        (105.0, True, set()), (109.0, False, {"queue"}), (never, False, {"task"}), (never, False, {"task"}),
    ]  # fmt: skip


def test_all_pauses_are_known_together_and_a_reason_names_what_is_known() -> None:
    orders = Orders()
    known = {"a": ("", ""), "b": ("ann", ""), "c": ("", "down")}
    rows = [("all", "", "", ""), ("queue", "mail", "", ""), *(("task", name, *known[name]) for name in known)]
    orders.learn([(*row, None, None) for row in rows], 0.0)
    assert (orders.everything, orders.queues) == (True, {"mail"})
    assert orders.tasks == {"a": "paused", "b": "paused by ann", "c": "paused: down"}


def test_claims_grow_only_while_all_jobs_are_paused() -> None:
    pauses, job = Orders(), claimed()
    assert [pauses.limit(4), pauses.limit(0)] == [4, 0]
    for _ in range(3):
        pauses.note([job], [])
    assert [pauses.limit(4), pauses.limit(0), pauses.limit(400), pauses.limit(800)] == [32, 0, 500, 800]
    pauses.note([job, job], [job])
    assert pauses.limit(4) == 4
