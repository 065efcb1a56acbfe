"""Tasks with steps. They record what they did in ``RAN``, because they run in the process of the test."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from datetime import timedelta
from threading import Thread
from typing import Any

from django.db import transaction

from django_pgqueue import current_job, step, task
from tests.app.models import Entry
from tests.app.worker_tasks import DEADLINE, gate

RAN: list[str] = []
#: What a step raises, by its name; each is raised once.
FAILURES: dict[str, list[BaseException]] = {}


def work(name: str, value: Any = None) -> Any:
    RAN.append(name)
    if FAILURES.get(name):
        raise FAILURES[name].pop(0)
    return value


async def awork(name: str, value: Any = None) -> Any:
    await asyncio.sleep(0)
    return work(name, value)


@task(max_attempts=2, backoff=0)
def pipeline(count: int = 3) -> list[Any]:
    job = current_job()
    return [job.step(f"step-{n}", work, f"step-{n}", n) for n in range(count)]


@task(max_attempts=2, backoff=0)
async def async_pipeline(count: int = 3) -> list[Any]:
    job = current_job()
    return await asyncio.gather(*(job.astep(f"step-{n}", awork, f"step-{n}", n) for n in range(count)))


@task
def tuples() -> Any:
    return current_job().step("pair", work, "pair", (1, "two"))


@task
def run_names(*names: str) -> None:
    for name in names:
        current_job().step(name, work, name)


@task
def run_value(value: str) -> Any:
    return current_job().step("bad", eval, value)


@task
def calls_the_function() -> Any:
    return current_job().step("bad", work("bad"))


@task
async def awaits_a_function() -> Any:
    return await current_job().astep("bad", int, 1)  # type: ignore[arg-type]


@task(max_attempts=2, backoff=0)
def retried_step() -> str:
    job = current_job()
    try:
        return str(job.step("flaky", work, "flaky", "first"))
    except ValueError:
        return str(job.step("flaky", work, "flaky", "second"))


def charge(text: str) -> str:
    Entry.objects.create(key=text)
    return work("charge", text)  # type: ignore[no-any-return]


@task(max_attempts=3, backoff=0)
def pay(text: str) -> str:
    value = current_job().atomic_step("charge", charge, text)
    work("after")
    return value


@task
def in_transaction(method: str) -> None:
    with transaction.atomic():
        getattr(current_job(), method)("name", work, "name")


@task(atomic=True)
def in_atomic_task() -> None:
    current_job().step("name", work, "name")


@task
def sleepy() -> str:
    job = current_job()
    job.step("before", work, "before")
    job.sleep("cool-down", timedelta(hours=2))
    return str(job.step("after", work, "after", "awake"))


@task(expires_after=timedelta(hours=1))
def short_lived() -> None:
    current_job().sleep("nap", timedelta(hours=2))


@task
def approval(timeout: float | None = None) -> Any:
    job = current_job()
    job.step("ask", work, "ask")
    return job.receive_event("approved", timeout=timeout)


@task
async def async_approval() -> Any:
    job = current_job()
    await job.asleep("nap", 0)
    return await job.areceive_event("approved")


@task
def swallows() -> str:
    try:
        current_job().receive_event("approved")
    except BaseException:
        work("swallowed")
    return "went on"


@task
def swallows_and_steps() -> None:
    try:
        current_job().sleep("nap", 60)
    except BaseException:
        current_job().step("next", work, "next")


@step
def double(number: int) -> int:
    RAN.append(f"double-{number}")
    return 2 * number


@step(name="pay", atomic=True)
def decorated_charge(text: str) -> str:
    Entry.objects.create(key=text)
    return text


@step
async def adouble(number: int) -> int:
    RAN.append(f"adouble-{number}")
    return 2 * number


@task(max_attempts=2, backoff=0)
def decorated() -> list[Any]:
    answer = [double(1), double.named("second")(2), decorated_charge("x")]
    work("after")
    return answer


@task
async def async_decorated() -> int:
    return await adouble(4)


@task(max_attempts=2, backoff=0)
def changing(first: str, second: str) -> None:
    """Names and arguments that differ from attempt to attempt."""
    names = {1: first, 2: second}
    job = current_job()
    job.step(names[job.attempts], work, "changing", job.attempts)
    work("after")


#: What ``body`` calls.
BODIES: dict[str, Callable[[], Any]] = {}


def hold() -> None:
    """Wait until the test lets the job go on."""
    assert gate("go on").wait(DEADLINE)


@task(max_attempts=2, backoff=0)
def body(name: str) -> Any:
    return BODIES[name]()


@task
def reports() -> None:
    current_job().set_progress(40, 100, "reading")
    hold()


@task
async def areports() -> None:
    current_job().set_progress(40, 100, "reading")
    await asyncio.to_thread(hold)


@task
def reports_in_a_thread() -> None:
    thread = Thread(
        target=contextvars.copy_context().run, args=(lambda: current_job().set_progress(40, 100, "reading"),)
    )
    thread.start()
    thread.join()
    hold()


@task(atomic=True)
def reports_atomically() -> None:
    current_job().set_progress(40, 100, "reading")
    hold()


@task
def sleeps() -> str:
    job = current_job()
    job.set_progress(1, 2)
    job.sleep("nap", timedelta(hours=1))
    return "awake"


@task(max_attempts=1)
def waits_for_entry(key: str) -> None:
    """For processes: report until there is an entry."""
    job, count = current_job(), 0
    job.step("prepare", str, 1)
    while not Entry.objects.filter(key=key).exists():
        count += 1
        job.set_progress(count, note="isolated" if job.crash_count else "here")
        job.wait_for_cancel(0.05)
    job.step("fail", _raise)


def _raise() -> None:
    raise ValueError("in a step")
