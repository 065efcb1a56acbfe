"""What type checkers must refuse: each line that ends in ``# refused``, and no other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.tasks import TaskContext, task as django_task

import django_pgqueue
from django_pgqueue import (
    Batch,
    Concurrency,
    RateLimit,
    RateLimiter,
    RetryLater,
    Task,
    Unique,
    aenqueue,
    aenqueue_many,
    cancel,
    chain,
    current_job,
    enqueue,
    enqueue_many,
    send_event,
    set_limit,
    step,
    task,
    track,
    why,
)
from django_pgqueue.models import Job
from django_pgqueue.testing import assert_enqueued, call_task, immediate_jobs, run_jobs, travel
from tests.receipts.models import Receipt, Reminder


@task(queue_name="mail")
def send(order_id: int, *, note: str = "") -> str:
    return note


@task
async def sleepy(x: int) -> str:
    return str(x)


@task(takes_context=True)
def with_context(context: TaskContext[Any, Any], x: int) -> str:
    return str(context.attempt + x)


@task(takes_context=True)
async def sleepy_with_context(context: TaskContext[Any, Any], x: int) -> str:
    return str(context.attempt + x)


@django_task
def of_django(x: int) -> str:
    return str(x)


@task(payload=Receipt)
def send_row(receipt: Receipt) -> str:
    return str(receipt)


@task(payload=Reminder)  # refused
def wrong_row(receipt: Receipt) -> None: ...


@task(payload=int)  # refused
def no_row(number: int) -> None: ...


def plain(x: int) -> None: ...


def wrong_rows(reminder: Reminder, receipt: Receipt) -> None:
    enqueue(send_row, reminder)  # refused
    enqueue(send_row, 1)  # refused
    enqueue(send_row, receipt, True)  # refused
    send_row.bind(reminder)  # refused
    send_row.enqueue(reminder)  # refused
    call_task(send_row, reminder)  # refused


def wrong_arguments() -> None:
    django_pgqueue.enqueue_later(send, 1)  # refused
    enqueue(send, "a")  # refused
    enqueue(send)  # refused
    send(1)  # refused
    send.delay(1)  # refused
    enqueue(send, 1, 2)  # refused
    enqueue(send, 1, other=2)  # refused
    enqueue(send, order_id=1, note=3)  # refused
    enqueue(sleepy, "a")  # refused
    enqueue(of_django, "a")  # refused
    enqueue(with_context, "a")  # refused
    enqueue(sleepy_with_context, "a")  # refused
    enqueue(send, 1, priority=3)  # refused
    send.enqueue("a")  # refused
    send.enqueue()  # refused
    send.bind("a")  # refused
    send.bind()  # refused
    send.call("a")  # refused
    enqueue(send.using(priority=1), "a")  # refused
    enqueue_many(send.bind(each) for each in ["a"])  # refused
    enqueue_many([sleepy.bind(1), send.bind("a")])  # refused


def what_is_no_task() -> None:
    enqueue(plain, 1)  # refused
    enqueue("path.to.task", 1)  # refused
    enqueue_many([send])  # refused
    enqueue_many([(send, 1)])  # refused
    enqueue_many(send.bind(1))  # refused
    cancel(1.5)  # refused
    print(current_job().nonsense)  # refused
    enqueue(send, 1).wait_for_cancel(1)  # refused
    current_job().extend("60")  # refused


def options_of_one_call() -> None:
    send.using(unknown=1)  # refused
    send.using(priority="high")  # refused
    send.using(queue_name=1)  # refused
    send.using(run_after=5)  # refused
    send.using(metadata="late")  # refused
    send.using(database=1)  # refused
    send.using("slow")  # refused
    send.using(unique_key=7)  # refused
    send.priority = 3  # refused


def words_of_other_queues() -> None:
    send.using(countdown=3)  # refused
    send.using(queue="mail")  # refused
    task(retries=3)  # refused
    task(rate_limit="100/m")  # refused
    Unique(by="order_id")  # refused
    Concurrency(max=1)  # refused
    RateLimit(100, period=60)  # refused
    set_limit(queue="mail", running=3)  # refused
    RetryLater(countdown=60)  # refused
    enqueue(send, 1).get()  # refused
    print(enqueue(send, 1).state)  # refused
    send.enqueue(1).get(timeout=3)  # refused
    send.bind(1).delay()  # refused
    django_pgqueue.shared_task(send)  # refused


async def async_code() -> None:
    aenqueue(sleepy, 1)  # refused
    aenqueue_many([sleepy.bind(1)])  # refused
    sleepy.aenqueue(1)  # refused
    await aenqueue(sleepy, "a")  # refused
    await sleepy.aenqueue("a")  # refused
    await aenqueue_many([sleepy])  # refused


def takes_a_task(one: Task[[int], str]) -> None: ...


def plain_with_context(context: TaskContext[Any, Any], x: int) -> None: ...


def policy() -> None:
    task(max_attempts="5")(plain)  # refused
    task(timeout=1.5)(plain)  # refused
    task(on_lost="explode")(plain)  # refused
    task(retry_on=("OSError",))(plain)  # refused
    task(retry_on=OSError())(plain)  # refused
    task(fail_on=int)(plain)  # refused
    task(backoff="fast")(plain)  # refused
    task(backoff=lambda exc: 3.0)(plain)  # refused
    task(backoff=lambda exc, result: "3")(plain)  # refused
    task(expires_after="60")(plain)  # refused
    task(atomic="yes")(plain)  # refused
    task(capture_logs="LOUD")(plain)  # refused
    task(metadata=[1])(plain)  # refused
    task(priority="high")(plain)  # refused
    task(queue_name=None)(plain)  # refused
    task(database=1)(plain)  # refused
    task(unique="x")(plain)  # refused
    Unique(key=7)  # refused
    Unique(scope="always")  # refused
    Unique(window="1h")  # refused
    Unique(on_conflict="ignore")  # refused
    enqueue_many([send.bind(1)], outcomes="yes")  # refused
    task(run_after=None)(plain)  # refused
    task("mail")  # refused
    task(takes_context=True)(plain)  # refused
    enqueue(task(plain_with_context), 1)  # refused
    enqueue(task(takes_context=True)(plain_with_context), "a")  # refused
    takes_a_task(task(plain))  # refused


def wrong_limits() -> None:
    task(concurrency="order_id")  # refused
    Concurrency("3")  # refused
    Concurrency(1, key=7)  # refused
    Concurrency(1, on_full="fail")  # refused
    send.using(limit_key=7)  # refused
    set_limit(task=send, concurrency="3")  # refused
    task(rate=3)  # refused
    RateLimit("3", per=timedelta(1))  # refused
    RateLimit(3, per="minute")  # refused
    set_limit(task=send, rate_limit=3)  # refused
    RateLimiter(send).take("3")  # refused
    set_limit(task=7, concurrency=3)  # refused
    why(7.5)  # refused
    why(7).code = "done"  # refused


def wrong_tests() -> None:
    call_task(send)  # refused
    call_task(send, "a")  # refused
    run_jobs("mail")  # refused
    run_jobs(limit="1")  # refused
    travel(2)  # refused
    assert_enqueued(plain)  # refused
    assert_enqueued(send, queue_name=1)  # refused
    immediate_jobs(True)  # refused


def render(order_id: int, *, dpi: int = 72) -> str:
    return f"{order_id} {dpi}"


@step
def upload(path: str) -> int:
    return len(path)


@step(name="charge", atomic=True)
def charge(amount: int) -> bool:
    return amount > 0


def wrong_progress(stored: Job) -> None:
    current_job().set_progress("5")  # refused
    current_job().set_progress(5, note=5)  # refused
    stored.set_progress(5)  # refused
    track(5)  # refused
    track(["a"], note=lambda name: len(name))  # refused


async def wrong_steps() -> None:
    job = current_job()
    job.step("render", render, "5")  # refused
    job.step("render", render, 5, dpx=1)  # refused
    job.step(render, 5)  # refused
    number: int = job.step("render", render, 5)  # refused
    await job.astep("render", render, 5)  # refused
    upload(5)  # refused
    upload.named(5)  # refused
    upload.named("x")(5)  # refused
    charge("3")  # refused
    step(atomic="yes")  # refused
    job.sleep("nap", "long")  # refused
    job.receive_event(5)  # refused
    send_event(5, 5)  # refused
    send_event(job)  # refused
    print(number)


def wrong_composition() -> None:
    send.using(after="5")  # refused
    send.using(after=send)  # refused
    send.using(after=[send.bind(1)])  # refused
    send.using(after=5, if_failed="stop")  # refused
    send.using(batch="import")  # refused
    task(after=5)  # refused
    chain([send])  # refused
    chain([send.bind(1)], if_failed=True)  # refused
    Batch(5)  # refused
    Batch("import").add(send.bind(1))  # refused
    Batch("import").add([send])  # refused
    current_job().batch.add([send.bind(1)])  # refused
