"""Tasks for tests that run jobs in their own process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import IntegrityError, transaction

from django_pgqueue import CancelJob, Concurrency, RateLimit, RetryLater, Snooze, current_job, enqueue, task

from .models import Entry
from .worker_tasks import backend_pid

#: What jobs have seen, in order.
SEEN: list[Any] = []


class Fatal(Exception):
    """An error that no retry would mend."""


@task
def describe(number: int) -> dict[str, Any]:
    job = current_job()
    return {"seven": number, "job": job.pk, "attempt": job.attempts, "connection": backend_pid()}


@task
def see(what: Any) -> None:
    SEEN.append(what)


@task
def violate() -> None:
    with transaction.atomic():
        Entry.objects.bulk_create([Entry(pk=1), Entry(pk=1)])


@task
def just_end(how: str) -> Any:
    match how:
        case "raise":
            raise ValueError("no")
        case "retry_later":
            raise RetryLater(60)
        case "snooze":
            raise Snooze(timedelta(hours=1))
        case "cancel":
            raise CancelJob("not needed")
        case "exit":
            raise SystemExit
        case "bad_result":
            return object()
    raise Fatal


@task(fail_on=[Fatal], max_attempts=3)
def end(how: str) -> Any:
    Entry.objects.create(key=how)
    return just_end.func(how)


@task(fail_on=[Fatal], max_attempts=3)
async def aend(how: str) -> Any:
    await Entry.objects.acreate(key=how)
    return just_end.func(how)


@task
async def acount_entries() -> list[int]:
    job = current_job()
    inside: int = await sync_to_async(lambda: current_job().pk)()
    assert inside == job.pk
    return [await Entry.objects.acount(), inside]


@task(atomic=True)
def write_atomically(text: str) -> None:
    Entry.objects.create(key=text)
    transaction.on_commit(lambda: SEEN.append(f"committed {text}"))
    if text == "broken":
        raise ValueError(text)


@task(concurrency=Concurrency(1))
def one_at_a_time(number: int) -> None:
    SEEN.append(number)


@task(rate_limit=RateLimit(1, per=timedelta(hours=1)))
def rated(number: int) -> None:
    SEEN.append(f"rated {number}")


@task(timeout=60)
def extend() -> bool:
    return current_job().extend(600)


@task
def write_and_tell(text: str) -> None:
    with transaction.atomic():
        Entry.objects.create(key=text)
        transaction.on_commit(lambda: SEEN.append(f"told {text}"))
    try:
        with transaction.atomic():
            transaction.on_commit(lambda: SEEN.append("never"))
            raise ValueError
    except ValueError:
        pass


@task
def tell_badly() -> None:
    def callback() -> None:
        raise ValueError("in the callback")

    transaction.on_commit(callback)


@task
def break_transaction(raises: bool) -> None:
    entry = Entry.objects.create(key="undone")
    try:
        Entry.objects.create(pk=entry.pk, key="the same key")
    except IntegrityError:
        if raises:
            raise


@task
async def abreak_transaction(raises: bool) -> None:
    await sync_to_async(break_transaction.func)(raises)


@task
def see_and_enqueue(number: int) -> int:
    """Enqueue the next one."""
    if number:
        enqueue(see_and_enqueue, number - 1)
    return number


@task(max_attempts=4)
def tell_about_job(name: str, limit: int | None = 0) -> dict[str, Any]:
    job = current_job()
    return {
        "arguments": [job.args, job.kwargs], "path": job.task_path, "queue": job.queue_name,
        "priority": job.priority, "metadata": job.metadata, "group": job.group_key, "tenant": job.tenant,
        "attempt": job.attempts, "extended": job.extend(60), "stop": job.cancel_requested,
        "max_attempts": job.max_attempts,
    }  # fmt: skip


@task
async def atell_about_job() -> dict[str, Any]:
    return {
        "attempt": current_job().attempts,
        "thread": await sync_to_async(lambda: current_job().attempts)(),
    }


@task(takes_context=True)
def contextual(context: Any, number: int) -> list[Any]:
    return [context.task_result.id, number, context.task_result.status.name]


@task(takes_context=True)
async def acontextual(context: Any, number: int) -> list[Any]:
    return [context.task_result.id, number, context.task_result.status.name]


@task
def name_types(value: Any) -> str:
    return type(value).__name__


@task
def call_other() -> list[int]:
    own = current_job().pk
    tell_about_job.call("inner")
    return [own, current_job().pk]


@task
def count_entries() -> None:
    SEEN.append(Entry.objects.count())


@task
def enqueue_atomically(what: str) -> None:
    with transaction.atomic():
        enqueue(see, what)
        SEEN.append("at the end of the block")


# --- For one-process mode: tasks whose body is given by the test


BODIES: dict[str, Callable[[], Any]] = {}


@task
def run_body(name: str) -> Any:
    return BODIES[name]()


@task
async def run_async(name: str) -> Any:
    return None


@task(timeout=1)
def short(name: str) -> Any:
    return BODIES[name]()


later = run_body.using(run_after=timedelta(days=1))


@task
def stop_at_breakpoint(value: int) -> int:
    breakpoint()
    return value
