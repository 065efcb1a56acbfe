"""A few jobs of every kind, which come about as in a real queue: by the functions of the queue.

Each story leaves no job behind that is due, so that the claims of the next one find only its own jobs.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from django.utils import timezone

from django_pgqueue.models import Queue, Schedule, ScheduleRun

from .shop import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from .stage import Stage

_NOTE = "A note with <b>markup</b> & “quotes”, which pages must escape."


def tell(stage: Stage) -> None:
    """Tell all stories."""
    stories: tuple[Callable[[Stage], None], ...] = (
        _outcomes, _workflow, _batches, _steps, _waiting_for_a_signal, _limits, _running,
        _on_workers_in_trouble, _waiting, _queues, _pauses, _schedules,
    )  # fmt: skip
    for story in stories:
        story(stage)


def _outcomes(stage: Stage) -> None:
    """Jobs that ended in each way, with their particulars."""
    stage.ended("demoshop.mail.send_receipt", "done", 1207, result={"sent": True, "note": _NOTE},
                kwargs={"note": _NOTE, "password": "a-secret"})  # fmt: skip
    stage.ended(
        "demoshop.reports.export_orders", "done", result=[{"order": n, "sum": n * 9.5} for n in range(40)]
    )
    stage.ended("demoshop.orders.ship", "failed", 1208, error=3)
    stage.do("SELECT pgqueue_cancel(ARRAY[%s::bigint])", stage.enqueue("demoshop.orders.ship", 1209))
    pk = stage.enqueue("demoshop.orders.charge_card", 1210)
    for error, delay in ((0, 0.0), (1, 900.0)):  # it waits for its third attempt
        [claim] = stage.claim()
        stage.finish(claim, "retry", error=error, delay=delay)
    stage.age(pk, 60)


def _workflow(stage: Stage) -> None:
    """A batch that is being worked on, with a job after it, and jobs that wait for one another."""
    batch = stage.ask("SELECT pgqueue_open_batch(%s)", "demo: orders of Monday")
    parts = [stage.enqueue("demoshop.orders.prepare", n, batch=batch) for n in range(6)]
    bill = stage.enqueue("demoshop.orders.bill", after=[batch])
    stage.enqueue("demoshop.mail.send_receipt", after=[bill], if_failed="cancel")
    stage.enqueue("demoshop.reports.daily_sales", after=[bill, parts[0]], if_failed="run")
    stage.do("SELECT pgqueue_close_batch(%s)", batch)
    claims = stage.claim(6)
    for claim in claims[:3]:
        stage.finish(claim, ran=2.5)
    stage.finish(claims[3], "failed", error=3)
    for claim in claims[4:]:
        stage.age(claim.id, 40)


def _batches(stage: Stage) -> None:
    """A finished batch, one that failed, and one that is open."""
    for name, outcome in (("demo: thumbnails", "done"), ("demo: labels", "failed")):
        batch = stage.ask("SELECT pgqueue_open_batch(%s)", name)
        for number in range(3):
            stage.enqueue("demoshop.images.thumbnail", number, batch=batch)
        stage.do("SELECT pgqueue_close_batch(%s)", batch)
        for claim in stage.claim(3):
            stage.finish(claim, outcome, error=5 if outcome == "failed" else None)
    batch = stage.ask("SELECT pgqueue_open_batch(%s)", "demo: import")
    stage.enqueue("demoshop.sync.fetch", 1, batch=batch, delay=3600)


def _steps(stage: Stage) -> None:
    """A job with steps and progress that runs, one that is over, and one whose second step failed."""
    for kind in ("running", "done", "failed"):
        stage.enqueue("demoshop.reports.yearly", 2025, kind)
        [claim] = stage.claim()
        for number, name in enumerate(("read the orders", "add them up")):
            stage.do(
                "SELECT _pgqueue_record_step(%s, %s, %s, %s, %s, %s, NULL, %s)",
                claim.id, claim.lease, number == 0, claim.attempt, name, 3.5 * (number + 1), '{"read": 4113}',
            )  # fmt: skip
        stage.do(
            "SELECT pgqueue_progress(%s, %s, %s, %s, %s)",
            claim.id,
            3120,
            4113,
            "drawing the charts",
            claim.lease,
        )
        if kind == "running":
            stage.age(claim.id, 95)
        else:
            stage.finish(claim, kind, error=7 if kind == "failed" else None, result={"pages": 12})


def _waiting_for_a_signal(stage: Stage) -> None:
    """A job that waits until a person approves, and one that sleeps."""
    for name, kind, seconds in (("approved", "event", 86_400), ("a day later", "sleep", 80_000)):
        pk = stage.enqueue("demoshop.orders.refund", 1213)
        [claim] = stage.claim()
        stage.do("SELECT _pgqueue_wait(%s, %s, %s, %s, %s)", claim.id, claim.lease, name, kind, seconds)
        stage.finish(claim, "snooze", delay=seconds)
        stage.do(
            "UPDATE pgqueue_job_live SET enqueued_at = enqueued_at - interval '1 hour' WHERE id = %s", pk
        )


def _limits(stage: Stage) -> None:
    """Jobs of one customer of which only two run at once, and a rate."""
    stage.do("SELECT pgqueue_set_limit('task', %s, %s)", "demoshop.orders.charge_card", 2)
    stage.do(
        "SELECT pgqueue_set_limit('limit', %s, rate => 100, per => interval '1 minute', burst => 10)",
        "demoshop.sync.fetch",
    )
    for number in range(6):
        stage.enqueue("demoshop.orders.charge_card", number, limit_key="customer-7")
    for claim in stage.claim(10):
        stage.age(claim.id, 12)


def _running(stage: Stage) -> None:
    """Jobs that run on the workers that are well, one of which was asked to stop."""
    for queue, task, count in (
        ("demo-mail", "demoshop.mail.send_newsletter", 3),
        ("demo-images", "demoshop.images.convert_video", 3),
    ):
        for number in range(count):
            stage.enqueue(task, number, queue=queue, group_key=f"shop-{number}")
        for number, claim in enumerate(stage.claim(count, queue)):
            stage.age(claim.id, 20 + 70 * number)
            stage.do("SELECT pgqueue_progress(%s, %s, %s)", claim.id, 12 * number, 100)
    stage.do("SELECT pgqueue_cancel(ARRAY[%s::bigint])", claim.id)


def _on_workers_in_trouble(stage: Stage) -> None:
    """Jobs of a worker that is asked to end, of a silent one, and of a dead one."""
    for queue, task, state in (
        ("demo-reports", "demoshop.reports.daily_sales", "draining"),
        ("demo-mail", "demoshop.mail.send_receipt", "silent"),
        ("demo-search", "demoshop.search.index_product", "dead"),
    ):
        stage.enqueue(task, 1, queue=queue)
        for claim in stage.claim(1, queue, state):
            stage.age(claim.id, 700)
    for number in range(40):
        stage.age(stage.enqueue("demoshop.search.index_product", number, queue="demo-search"), number)


def _waiting(stage: Stage) -> None:
    """Jobs with other options: priorities, a unique key, a context, a time after which they are no use."""
    context = {"language": "de", "user": 1, "trace": {"traceparent": f"00-{7:032x}-{9:016x}-01"}}
    stage.enqueue(
        "demoshop.reports.daily_sales", delay=7200, priority=50, context=context, unique_key="demo-sales"
    )
    stage.enqueue(
        "demoshop.mail.send_newsletter", "long " * 400, delay=300, priority=-20, kwargs={"note": _NOTE}
    )
    stage.do(
        "SELECT pgqueue_enqueue('demoshop.mail.send_receipt', queue_name => %s,"
        " run_after => clock_timestamp() + interval '10 minutes',"
        " expires_at => clock_timestamp() + interval '20 minutes')", QUEUE,
    )  # fmt: skip


def _queues(stage: Stage) -> None:
    """A queue with settings of its own."""
    Queue.objects.using(stage.cursor.db.alias).create(name="demo-orders", backoff_base=5, backoff_ceiling=600)


def _pauses(stage: Stage) -> None:
    """A queue that a user has paused, and a task until tomorrow."""
    reason = "The partner's API is down until noon"
    stage.do("SELECT pgqueue_pause('queue', 'demo-sync', %s, 'ines', NULL)", reason)
    stage.do(
        "SELECT pgqueue_pause('task', 'demoshop.reports.yearly', 'Too slow by day', 'omar', %s)",
        timezone.now() + timedelta(hours=20),
    )


def _schedules(stage: Stage) -> None:
    """Schedules of every kind, one of them paused, with the runs of the last days."""
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    alias = stage.cursor.db.alias
    for name, task, timing in (
        ("demo-daily-sales", "demoshop.reports.daily_sales", {"cron": "0 6 * * *"}),
        ("demo-stock", "demoshop.orders.sync_stock", {"every": timedelta(minutes=10)}),
        (
            "demo-newsletter",
            "demoshop.mail.send_newsletter",
            {"cron": "30 9 * * 1-5", "timezone": "Europe/Paris"},
        ),
    ):
        made = Schedule.objects.using(alias).create(
            name=name, task_path=task, queue_name="demo-reports", **timing
        )
        ScheduleRun.objects.using(alias).bulk_create(
            ScheduleRun(
                schedule=made, run_at=now - timedelta(days=days), outcome="missed" if days == 3 else "skipped"
            )
            for days in range(1, 6)
        )
    Schedule.objects.using(alias).filter(name="demo-newsletter").update(
        paused_at=timezone.now(), pause_author="ines", pause_reason="Summer"
    )
