"""What type checkers must accept, with the types that they must see."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, assert_type

from django.tasks import TaskContext, TaskResult, task as django_task

from django_pgqueue import (
    Batch,
    BatchCounts,
    BoundTask,
    CancelJob,
    Concurrency,
    CurrentJob,
    JobContext,
    JobExists,
    JobList,
    Parents,
    RateLimit,
    RateLimiter,
    Reason,
    RetryLater,
    Snooze,
    Task,
    TaskTimeout,
    Unique,
    acancel,
    achain,
    adrain_worker,
    aedit,
    aenqueue,
    aenqueue_many,
    apause,
    aresume,
    aretry,
    awhy,
    cancel,
    chain,
    current_job,
    drain_worker,
    edit,
    enqueue,
    enqueue_many,
    pause,
    resume,
    retry,
    schedule,
    send_event,
    set_limit,
    step,
    task,
    track,
    why,
)
from django_pgqueue.jobs.results import QueueTaskResult
from django_pgqueue.models import Job, JobBatch, Pause, Worker
from django_pgqueue.tasks.unique import EnqueueOutcome
from django_pgqueue.testing import (
    AttemptResult,
    acall_task,
    arun_jobs,
    assert_enqueued,
    assert_not_enqueued,
    call_task,
    dummy_jobs,
    enqueued,
    fake_job,
    immediate_jobs,
    run_jobs,
    running_worker,
    travel,
)
from tests.receipts.models import Receipt, Reminder


@task(
    queue_name="mail", priority=10, backend="default", database="default", metadata={"team": "shop"},
    max_attempts=5, timeout=300, backoff=[1, 2.5], retry_on=(OSError, TimeoutError), fail_on=ValueError,
    expires_after=timedelta(hours=2), on_lost="rerun", concurrency=3, capture_logs="WARNING", atomic=False,
    rate_limit=RateLimit(100, per=timedelta(minutes=1), burst=10), takes_context=False,
)  # fmt: skip
def send(order_id: int, *, note: str = "") -> str:
    return note


@task(payload=Receipt, queue_name="mail", max_attempts=3, group="order_id")
def send_row(receipt: Receipt) -> int:
    return len(str(receipt))


@task(payload=Reminder, takes_context=True)
async def remind_row(context: JobContext, reminder: Reminder) -> str:
    return f"{context.attempt} {reminder}"


def rows(receipt: Receipt, reminder: Reminder) -> None:
    assert_type(enqueue(send_row.using(priority=5), receipt), Job)
    assert_type(enqueue_many(send_row.bind(each) for each in [receipt]), JobList)
    assert_type(call_task(send_row, receipt), int)
    assert_type(remind_row.call(reminder), str)


@task
def bare(x: int) -> list[int]:
    return [x]


@schedule("0 3 * * *", timezone="Europe/Paris", name="night", args=[1])
@schedule(every=timedelta(hours=1), args=(2,), jitter=5, overlap="skip", catch_up="all")
@task
def scheduled(x: int) -> list[int]:
    return [x]


assert_type(scheduled.call(1), list[int])


@task()
def nothing() -> None: ...


@task
async def sleepy(x: int) -> str:
    return str(x)


@task(takes_context=True)
def with_context(context: TaskContext[Any, Any], x: int) -> str:
    return str(context.attempt + x)


@task(takes_context=True)
def with_job(context: JobContext, x: int) -> int:
    assert_type(context.job, CurrentJob)
    assert_type(context.attempt, int)
    return context.job.pk + x


@task(takes_context=True, queue_name="x")
async def sleepy_with_context(context: TaskContext[Any, Any], x: int) -> str:
    return str(context.attempt + x)


@task(backoff=lambda exc, result: None if isinstance(exc, OSError) else 3.0 * result.attempts)
def any_name(task: int, args: str, self: int, priority: int, run_after: str) -> int:
    return task


def growing(exc: BaseException, result: TaskResult[Any, Any]) -> float | None:
    return 2.0 * result.attempts if result.errors else None


@task(backoff=growing, retry_on=[OSError], timeout=None, max_attempts=None)
def with_function_as_backoff() -> None: ...


@task(backoff=5)
def steers_itself(x: int) -> None:
    raise [
        RetryLater(), RetryLater(timedelta(minutes=1)), RetryLater(2.5), Snooze(timedelta(hours=1)),
        Snooze(until=datetime(2030, 1, 1, tzinfo=UTC)), CancelJob(reason="no longer wanted"), TaskTimeout(),
    ][x]  # fmt: skip


@task(unique=Unique(key="x", scope="live", window=timedelta(hours=1), on_conflict="replace"))
def unique_by_argument(x: int, y: int = 0) -> None: ...


def shard(x: int) -> int:
    return x % 7


@task(unique=Unique(key=shard, on_conflict="earliest"), takes_context=False)
async def unique_by_callable(x: int) -> str:
    return str(x)


@task(unique=Unique(name="one", key=(), on_conflict="raise"))
def unique_by_key() -> None: ...


@task(unique=None)
def not_unique() -> None: ...


@django_task(queue_name="mail")
def of_django(x: int) -> str:
    return str(x)


def sync_code() -> None:
    assert_type(bare.call(1), list[int])
    assert_type(sleepy.call(x=1), str)
    assert_type(unique_by_callable.call(1), str)
    assert_type(with_context.call(1), str)
    assert_type(sleepy_with_context.call(1), str)
    assert_type(bare.using(priority=3).call(1), list[int])

    job = enqueue(send, 1, note="x")
    assert_type(job, Job)
    assert_type(enqueue(sleepy, 1), Job)
    enqueue(nothing)
    enqueue(with_context, 1)
    enqueue(any_name, task=1, args="x", self=2, priority=4, run_after="now")
    enqueue(of_django, 1)
    enqueue(send.using(run_after=timedelta(minutes=5), priority=-5, queue_name="slow"), 1)
    enqueue(send.using(run_after=datetime.now(UTC), metadata={"why": "late"}, database="other"), 1)
    enqueue(send.using(priority=None, queue_name=None, run_after=None, backend=None, metadata=None), 1)

    assert_type(send.enqueue(1, note="x").return_value, str)
    assert_type(bare.enqueue(1).join(5).return_value, list[int])
    assert_type(bare.get_result("5").join(timedelta(seconds=5)).return_value, list[int])
    assert_type(enqueue(sleepy, 1).join(), Job)

    assert_type(send.bind(1), BoundTask)
    assert_type(enqueue_many(send.bind(pk) for pk in range(3)), JobList)
    enqueue_many([send.bind(1, note=""), bare.bind(2), nothing.bind(), sleepy.using(priority=1).bind(3)])
    enqueue_many(mixed())

    assert_type(job.enqueue_outcome, EnqueueOutcome | None)
    enqueue(unique_by_argument, 1, y=2)
    enqueue(bare.using(unique=Unique(), unique_key="doc-7"), 1)
    enqueue(unique_by_callable.using(unique=None, unique_key=None), 1)
    assert_type(enqueue_many([bare.bind(1)]).ids, list[int])
    assert_type(enqueue_many([bare.bind(1)]).enqueue_outcomes, list[EnqueueOutcome])
    assert_type(enqueue_many([bare.bind(1)])[0], Job)
    assert_type(enqueue(bare.bind(1)), Job)
    call = bare.bind(1).using(priority=5, run_after=timedelta(minutes=1), max_attempts=2)
    assert_type(call, BoundTask)
    assert_type(call.enqueue().job, Job)
    try:
        enqueue(unique_by_key)
    except JobExists as error:
        assert_type(error.job_id, int)
    enqueue(not_unique)

    assert_type(cancel(job), int)
    assert_type(retry(job), int)
    assert_type(edit(job, priority=5, run_after=datetime.now(UTC), queue_name="slow"), int)
    assert_type(Job.objects.filter(pk=1).edit(priority=5), int)
    assert_type(pause(task=send, author="ann", duration=timedelta(hours=1)), Pause)
    assert_type(pause(everything=True, until=datetime.now(UTC), using="default"), Pause)
    assert_type(resume(task="shop.tasks.sync"), bool)
    assert_type(drain_worker(Worker.objects.get(), replace=False), bool)
    assert_type(drain_worker(7, using="default"), bool)
    cancel(5)
    cancel("other:5")
    cancel(send.enqueue(1))
    cancel(Job.objects.filter(queue_name="mail"))
    retry(Job.objects.filter(status=Job.Status.FAILED))
    assert_type(Job.objects.filter(pk=1).cancel(), int)
    assert_type(Job.objects.filter(pk=1).retry(), int)
    assert_type(current_job(), CurrentJob)
    inside_of_a_task(current_job())


def inside_of_a_task(mine: CurrentJob) -> None:
    assert_type(mine.extend(60), bool)
    assert_type(mine.extend(timedelta(minutes=1)), bool)
    assert_type(mine.wait_for_cancel(1.5), bool)
    assert_type(mine.cancel_requested, bool)
    as_a_job: Job = mine
    cancel(as_a_job)
    cancel(mine)


def mixed() -> Iterator[BoundTask]:
    yield send.bind(1)
    yield sleepy.bind(2)


async def async_code() -> None:
    assert_type(await aenqueue(sleepy, 1), Job)
    assert_type(await aenqueue(send, 1, note="x"), Job)
    assert_type((await sleepy.aenqueue(1)).return_value, str)
    assert_type(await aenqueue_many([sleepy.bind(1), send.bind(2)]), JobList)
    assert_type(await aenqueue(sleepy.bind(1)), Job)
    assert_type(await acancel(5), int)
    assert_type(await aretry(5), int)
    assert_type(await aedit(5, run_after=timedelta(hours=1)), int)
    assert_type(await Job.objects.filter(pk=1).aedit(queue_name="slow"), int)
    assert_type(await apause(queue="mail", reason="down"), Pause)
    assert_type(await aresume(queue="mail"), bool)
    assert_type(await adrain_worker(7, replace=True), bool)
    assert_type(await Job.objects.filter(pk=1).acancel(), int)
    assert_type(await Job.objects.filter(pk=1).aretry(), int)


def takes_a_task(one: Task[[int], str], then: Callable[[str], None]) -> None:
    then(one.call(1))


takes_a_task(sleepy, print)


@task(concurrency=Concurrency(1, key="order_id", on_full="cancel_new", name="orders"))
def limited(order_id: int) -> None: ...


def tenth(order_id: int) -> int:
    return order_id % 10


@task(concurrency=Concurrency(1, key=tenth))
async def limited_by_callable(order_id: int) -> None: ...


def limits() -> None:
    set_limit(task=limited, concurrency=3)
    set_limit(task=limited, rate_limit=RateLimit(100, per=timedelta(minutes=1), burst=10))
    taken: bool = RateLimiter(limited, 7, using="default").take(2)
    seconds: float = RateLimiter("orders").seconds_until()
    print(taken, seconds)
    set_limit(name="orders", concurrency=None, using="default")
    set_limit(name="orders", concurrency=3, on_full="wait")
    enqueue(limited.using(limit_key="7"), 7)


async def reasons(job: Job) -> None:
    reason: Reason = why(job)
    words: str = reason.text + reason.fix + reason.code
    print(words, reason.facts["queue_name"], (await awhy(7, using="default")).text)


def tests() -> None:
    assert_type(call_task(sleepy, 1), str)
    ran: list[AttemptResult] = run_jobs(
        queues=["mail"], limit=1, raise_failures=False, schedules=True, using="other"
    )
    job: Job = ran[0].job
    assert_type(travel(hours=2, minutes=1.5), timedelta)
    travel(timedelta(hours=2), using="other")
    assert_type(assert_enqueued(send, args=[1], kwargs={}, run_after=None, count=1), Job)
    assert_not_enqueued("shop.tasks.send", run_after=timedelta(hours=1))
    with enqueued(send) as jobs, fake_job(attempts=2) as mine:
        assert_type(jobs, list[Job])
        assert_type(mine, CurrentJob)
    with running_worker(queues=["mail"], processes=2) as worker:
        assert_type(worker.join(job, timeout=5), Job)


async def async_tests() -> None:
    assert_type(await acall_task(sleepy, 1), str)
    assert_type(await arun_jobs(), list[AttemptResult])


@immediate_jobs(at_once=True)
def in_immediate_mode() -> None: ...


@dummy_jobs()
class InDummyMode: ...


def in_dummy_mode() -> None:
    with dummy_jobs() as jobs:
        assert_type(jobs, list[Job])


def render(order_id: int, *, dpi: int = 72) -> str:
    return f"{order_id} {dpi}"


async def download(url: str) -> bytes:
    return url.encode()


@step
def upload(path: str) -> int:
    return len(path)


@step(name="charge", atomic=True)
def charge(amount: int) -> bool:
    return amount > 0


@step
async def fetch(url: str) -> bytes:
    return await download(url)


async def progress(job: CurrentJob, stored: Job, pages: AsyncIterator[bytes]) -> None:
    job.set_progress(1)
    job.set_progress(0.5, Decimal(3), note="reading")
    assert stored.progress is None or assert_type(stored.progress.fraction, float | None) is None
    for name in track(["a"], note="names", every=10):
        assert_type(name, str)
    for number in track(iter([1, 2]), 2, note=lambda number: f"number {number + 1}"):
        assert_type(number, int)
    async for page in track(pages, total=9):
        assert_type(page, bytes)


async def steps(job: CurrentJob) -> None:
    assert_type(job.step("render", render, 5, dpi=144), str)
    assert_type(job.atomic_step("render", render, 5), str)
    assert_type(await job.astep("download", download, "x"), bytes)
    assert_type(upload("p"), int)
    assert_type(upload.named("p-2")("p"), int)
    assert_type(charge(3), bool)
    assert_type(await fetch("x"), bytes)
    job.sleep("cool-down", timedelta(hours=1))
    await job.asleep("nap", 5)
    job.receive_event("approved", timeout=timedelta(days=3))
    await job.areceive_event("approved")
    assert_type(send_event(5, "approved", {"by": "ann"}), bool)
    assert_type(send_event(job, "approved"), bool)


def composed(job: Job, result: QueueTaskResult[..., str]) -> None:
    batch = Batch("import", using="other")
    send.using(after=job)
    send.using(after=[1, job, batch, result], if_failed="run", batch=batch)
    send.using(after={1, 2}, batch=5)
    assert_type(Batch.open("import"), Batch)
    assert_type(Batch.get(5), Batch)
    with batch as opened:
        assert_type(opened, Batch)
        assert_type(opened.add(send.bind(n) for n in range(3)), JobList)
    assert_type(batch.counts(), BatchCounts)
    assert_type(batch.counts().live, int)
    assert_type(batch.join(5), Batch)
    assert_type(batch.jobs.count(), int)
    assert_type(chain([send.bind(1), sleepy.bind(2)], if_failed="cancel"), list[Job])
    parents = current_job().parents
    assert_type(parents, Parents)
    assert_type(parents[1], Job)
    assert_type(parents.batches[1], JobBatch)
    mine = current_job().batch
    if mine is not None:
        assert_type(mine.add([send.bind(1)])[0], Job)
        send.using(batch=mine, after=current_job())


async def composed_in_async_code() -> None:
    batch = await Batch.aopen("import")
    assert_type(await batch.aadd([send.bind(1)]), JobList)
    assert_type(await batch.ajoin(), Batch)
    assert_type(await achain([send.bind(1)]), list[Job])
    assert_type(await current_job().aparents(), Parents)
