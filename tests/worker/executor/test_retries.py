"""How attempts end: which are retried, and when, what is stored about those that failed, and what a task
may raise.
"""

from __future__ import annotations

import asyncio
import json
import linecache
import pickle
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from django.utils import timezone

from django_pgqueue import BoundTask, JobExists, current_job, enqueue, send_event, task
from django_pgqueue.backend import BadParameters
from django_pgqueue.compat import TaskResultStatus
from django_pgqueue.exceptions import (
    CancelJob,
    EventTimeout,
    InvalidJSON,
    LeaseLost,
    RetryLater,
    ShardsFailed,
    Snooze,
    Suspended,
    TaskTimeout,
)
from django_pgqueue.models import Job, Queue
from django_pgqueue.tasks import retry as policy
from django_pgqueue.testing import run_jobs
from django_pgqueue.worker.executor.errors import error_entry, fingerprint, step_of
from tests.app import worker_tasks as tasks
from tests.support.workers import fresh, ran, run_here

pytestmark = pytest.mark.django_db

HOUR, CENTURY = 3600, 100 * 365.25 * 24 * 3600
DEFAULT = 7.5, 15.0  # the first pause, which is shortened at random


def seconds_left(job: Job, since: datetime | None = None) -> float:
    """Seconds to the next attempt, from the end of the last one that failed."""
    assert job.status in ("retry", "pending"), job.status
    since = since or datetime.fromisoformat(job.errors[-1]["finished_at"])
    return (job.run_after - since).total_seconds()


@pytest.mark.promise("retried", case="fails once")
@pytest.mark.promise("fail-on", case="fail_on")
@pytest.mark.promise("broken-backoff", case="backoff raises")
@pytest.mark.promise("snooze-costs-nothing", case="snooze")
@pytest.mark.parametrize(("call", "status", "attempts", "seconds"), [
    pytest.param(tasks.fail_once.bind(), "done", 2, None, id="fails once"),
    pytest.param(tasks.fail.bind(), "failed", 3, None, id="fails always"),
    pytest.param(tasks.choosy.bind("key"), "failed", 1, None, id="fail_on"),
    pytest.param(tasks.slow_backoff.bind(), "retry", 1, DEFAULT, id="default backoff"),
    pytest.param(tasks.called_backoff.bind(500), "retry", 1, (500, 500), id="backoff is called"),
    pytest.param(tasks.called_backoff.bind(None), "failed", 1, None, id="backoff says None"),
    pytest.param(tasks.called_backoff.bind("raise"), "retry", 1, DEFAULT, id="backoff raises"),
    pytest.param(tasks.called_backoff.bind(0), "failed", 3, None, id="backoff is 0"),
    pytest.param(tasks.retry_later.bind(50), "retry", 1, (50, 50), id="RetryLater"),
    pytest.param(tasks.retry_later.bind(0), "failed", 2, None, id="RetryLater spends attempts"),
    pytest.param(tasks.retry_later.bind(), "retry", 1, (1000, 1000), id="RetryLater asks the backoff"),
    pytest.param(tasks.snooze.bind(0.0), "pending", 0, None, id="snoozing again and again never fails"),
    pytest.param(tasks.snooze.bind(600), "pending", 0, (600, 600), id="snooze"),
    pytest.param(tasks.snooze.bind(600, absolute=True), "pending", 0, (599, 600), id="snooze until"),
    pytest.param(
        tasks.snooze_to_the_end_of_time.bind(), "pending", 0, (CENTURY, CENTURY), id="snooze for ever"
    ),
    pytest.param(tasks.cancel_itself.bind("no such customer"), "cancelled", 1, None, id="CancelJob"),
])  # fmt: skip
def test_the_end_of_an_attempt(call: BoundTask, status: str, attempts: int, seconds: Any) -> None:
    before = timezone.now()
    job = ran(call, most=5)
    assert (job.status, job.attempts) == (status, attempts)
    assert len(job.errors) == attempts - (status in ("done", "cancelled"))
    if seconds is not None:
        low, high = seconds
        assert low <= seconds_left(job, before) < high + 10
    if call.task is tasks.called_backoff:
        assert len(tasks.SEEN) == min(attempts, 2), "it is not asked after the last attempt"
    # The text of the task may contain any character.
    assert job.waiting_reason == ("no such customer\\x00" if status == "cancelled" else "")
    assert job.worker_ids == [str(job.worker)] * len(job.worker_ids) or status in ("retry", "pending")


@pytest.mark.promise("errors-kept")
def test_all_failed_attempts_are_remembered() -> None:
    job = enqueue(tasks.fail, "broken")
    worker = run_here()
    failed = fresh(job)
    assert (failed.status, failed.result, len(failed.error_fingerprint)) == ("failed", None, 40)
    assert [error["attempt"] for error in failed.errors] == [1, 2, 3]
    for error in failed.errors:
        assert (error["class"], error["message"]) == ("builtins.ValueError", "broken")
        assert error["traceback"].startswith("Traceback (most recent call last):")
        assert "in fail\n" in error["traceback"]
        assert "django_pgqueue/worker" not in error["traceback"]
        assert error["worker"] == str(worker.worker)
        started, finished = map(datetime.fromisoformat, (error["started_at"], error["finished_at"]))
        assert started <= finished <= timezone.now()
        assert json.loads(json.dumps(error)) == error
    assert failed.worker_ids == [str(worker.worker)] * 3


@pytest.mark.promise("backoff")
def test_the_wait_doubles_with_jitter_up_to_the_ceiling(settings: Any) -> None:
    settings.PGQUEUE = {"BACKOFF_BASE": 100, "BACKOFF_CEILING": 150}
    jobs = [enqueue(tasks.slow_backoff) for _ in range(3)]
    for low, high in ((50, 100), (75, 150)):
        Job.objects.update(run_after=timezone.now())
        run_here()
        waits = [seconds_left(fresh(job)) for job in jobs]
        assert all(low <= wait < high + 10 for wait in waits)
        assert len({round(wait, 3) for wait in waits}) == 3


def test_a_queue_has_its_own_base_and_ceiling() -> None:
    Queue.objects.create(name="patient", backoff_base=10_000, backoff_ceiling=10_000)
    Queue.objects.create(name="based", backoff_base=1_000)
    Queue.objects.create(name="capped", backoff_ceiling=2)
    bounds = {"patient": (5_000, 10_000), "based": (500, 1_000), "capped": (1, 2), "other": DEFAULT}
    jobs = {name: enqueue(tasks.slow_backoff.using(queue_name=name)) for name in bounds}
    run_here()
    for name, (low, high) in bounds.items():
        assert low <= seconds_left(fresh(jobs[name])) < high + 3, name


def test_a_callable_backoff_gets_the_failed_attempt() -> None:
    job = enqueue(tasks.called_backoff, 500)
    worker = run_here()
    ((error, result),) = tasks.SEEN
    assert isinstance(error, ValueError)
    assert (result.id, result.status, result.attempts) == (str(job.pk), TaskResultStatus.FAILED, 1)
    assert (result.worker_ids, result.args) == ([str(worker.worker)], [500])
    assert result.errors[-1].exception_class is ValueError
    assert "called_backoff" in result.errors[-1].traceback


# -- what controls a job, or decides about its retry, does so in an exception group, too

RAISES: list[Any] = []


@pytest.fixture(autouse=True)
def _raises_nothing() -> Iterator[None]:
    yield
    RAISES.clear()


async def _raise(error: BaseException) -> None:
    raise error


@task(max_attempts=3, backoff=60, retry_on=(OSError, TaskTimeout), fail_on=(FileNotFoundError, LeaseLost))
async def grouped() -> None:
    async with asyncio.TaskGroup() as group:
        for error in RAISES:
            group.create_task(_raise(error))


@task(max_attempts=3, backoff=60, retry_on=ExceptionGroup)
async def retried_groups() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_raise(ValueError()))


@task(max_attempts=1)
async def two_waits() -> list[Any]:
    job = current_job()
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(job.areceive_event(name)) for name in ("first", "second")]
    return [wait.result() for wait in waits]


@task(max_attempts=1)
async def sleeper() -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(current_job().asleep("an hour", timedelta(hours=1)))
        group.create_task(asyncio.sleep(600))
    return "slept"


@task(max_attempts=2, backoff=0)
def sync_sleeper() -> None:
    try:
        current_job().sleep("an hour", timedelta(hours=1))
    except BaseException as error:
        raise BaseExceptionGroup("several", [BaseExceptionGroup("inner", [error])]) from None


@pytest.mark.promise("groups-lose-no-error")
@pytest.mark.parametrize(("errors", "status", "seconds"), [
    ([Snooze(timedelta(minutes=5)), Snooze(timedelta(minutes=50))], "pending", 3000),
    ([CancelJob("no longer needed")], "cancelled", None),
    ([RetryLater(500)], "retry", 500),
    ([CancelJob("x"), RetryLater(1), Snooze(timedelta(hours=1))], "cancelled", None),
    ([Snooze(timedelta(hours=1)), RetryLater(1)], "retry", HOUR),
    ([OSError("lost"), Snooze(timedelta(hours=1))], "retry", HOUR),
    ([OSError("lost"), CancelJob("x")], "failed", None),
    ([OSError("lost"), EventTimeout("over")], "failed", None),
    ([OSError("lost"), FileNotFoundError("fails")], "failed", None),
    ([OSError("lost"), ValueError("not retried")], "failed", None),
    ([TaskTimeout()], "retry", 60),
    ([LeaseLost("lost")], "failed", None),
])  # fmt: skip
def test_of_several_kinds_the_careful_one_wins_and_no_error_is_lost(
    errors: list[BaseException], status: str, seconds: float | None
) -> None:
    RAISES[:] = errors
    before = timezone.now()
    job = ran(grouped.bind())
    assert job.status == status
    if seconds is not None:
        assert seconds <= seconds_left(job, before) < seconds + 20
    if status == "cancelled":
        assert job.waiting_reason == str(errors[0])
    if status in ("cancelled", "pending"):
        assert job.errors == []
    else:
        (entry,) = job.errors
        assert all(type(error).__name__ in entry["traceback"] for error in errors)


def test_retry_on_may_name_the_group_itself() -> None:
    assert ran(retried_groups.bind()).status == "retry"


@pytest.mark.parametrize("call", [sleeper.bind(), sync_sleeper.bind()], ids=["TaskGroup", "nested group"])
def test_a_job_that_sleeps_in_a_group_sleeps(call: BoundTask) -> None:
    before = timezone.now()
    slept = ran(call)
    assert (slept.status, slept.errors) == ("pending", [])
    assert HOUR <= seconds_left(slept, before) < HOUR + 20


def test_two_waits_in_a_group_follow_each_other() -> None:
    job = ran(two_waits.bind())
    assert (job.status, job.errors) == ("pending", [])
    send_event(job, "second", 2)
    send_event(job, "first", 1)
    run_here()
    assert (fresh(job).status, fresh(job).result) == ("done", [1, 2])


def test_run_jobs_does_not_raise_a_retry_that_a_group_asks_for() -> None:
    RAISES[:] = [RetryLater(60), RetryLater(30)]
    enqueue(grouped)
    (once,) = run_jobs()
    assert once.outcome == "retry"
    RAISES[:] = [RetryLater(60), OSError("lost")]
    enqueue(grouped)
    with pytest.raises(ExceptionGroup):
        run_jobs()


# -- what is stored about a failed attempt: its exceptions, and the fingerprint that failures share


def test_errors_that_led_to_one_another_in_a_circle_end() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__context__, second.__cause__ = second, first
    assert error_entry(first, worker=1, attempt=1).count("ValueError:") == 2
    first.__cause__ = first
    assert of(module().broken, first) == of(module().broken, first)


def test_the_step_that_failed_in_a_group_is_known() -> None:
    error = ValueError()
    error._pgqueue_step = "pay"  # type: ignore[attr-defined]
    assert step_of(ExceptionGroup("group", [KeyError(), error])) == "pay"


CODE = """
{lines}
import json

def broken(kind):
    if kind == "library":
        json.loads("no")
    if kind == "nothing":
        raise ValueError("nothing")
    if kind == "cause":
        try:
            {{}}["key"]
        except KeyError as error:
            raise ValueError("cause") from error
    raise kind

def caller(kind):
    broken(kind)

def other(kind):
    raise ValueError(kind)

def deep(depth):
    return deep(depth + 1)
"""


def module(folder: str = "/srv/release-1/shop/", lines: str = "") -> Any:
    found = types.ModuleType("shop.orders")
    exec(compile(CODE.format(lines=lines), f"{folder}orders.py", "exec"), found.__dict__)  # noqa: S102 - the code above
    return found


def raised(call: Callable[..., object], *arguments: object) -> Any:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - any error
        call(*arguments)
    # Without the frame of this function.
    return caught.value.with_traceback(caught.tb.tb_next)


def of(call: Callable[..., object], *arguments: object, task: str = "shop.tasks.ship") -> str:
    linecache.checkcache()
    return fingerprint(raised(call, *arguments), task)


def group(*errors: Exception) -> Any:
    """Return what a function raises in which these were raised."""
    return ExceptionGroup("group", [raised(module().broken, error) for error in errors])


BROKEN, TASK = module().broken, "shop.tasks.ship"
NOTHING = of(BROKEN, "nothing")

SAME = {
    "message": (NOTHING, of(BROKEN, ValueError("another message"))),
    "release": (NOTHING, of(module("/srv/release-2/shop/").broken, "nothing")),
    "installed": (NOTHING, of(module("/venv/lib/python3.13/site-packages/shop/").broken, "nothing")),
    "lines": (NOTHING, of(module(lines="\n\n# more lines").broken, "nothing")),
    "caller": (NOTHING, of(module().caller, "nothing")),
    "task": (NOTHING, of(BROKEN, "nothing", task="shop.tasks.another")),
    # The place of an error in a library is its caller.
    "library": (of(BROKEN, "library"), of(module(lines="\n").caller, "library")),
    # Errors that may strike anywhere have only a class and a task.
    "timeout": (of(BROKEN, TaskTimeout("3 s")), fingerprint(TaskTimeout("5 s"), TASK)),
    "recursion": (of(module().deep, 0), fingerprint(RecursionError(), TASK)),
    "timeout in a group": (of(BROKEN, group(TaskTimeout())), fingerprint(group(TaskTimeout()), TASK)),
    "times in a group": (of(BROKEN, group(ValueError())), of(BROKEN, group(ValueError(), ValueError()))),
}
OTHER = {
    "class": (NOTHING, of(BROKEN, KeyError("another class"))),
    "function": (NOTHING, of(module().other, "another function")),
    "cause": (NOTHING, of(BROKEN, "cause")),
    "library": (NOTHING, of(BROKEN, "library")),
    "timeout of another task": (fingerprint(TaskTimeout(), "a.b"), fingerprint(TaskTimeout(), "a.c")),
    "never raised, of another task": (fingerprint(ValueError(), "a.b"), fingerprint(ValueError(), "a.c")),
    "in a group": (of(BROKEN, group(ValueError())), of(BROKEN, group(KeyError()))),
}


def test_which_failures_have_the_same_fingerprint() -> None:
    assert [name for name, (one, other) in SAME.items() if one != other] == []
    assert [name for name, (one, other) in OTHER.items() if one == other] == []
    assert {len(found) for pair in (*SAME.values(), *OTHER.values()) for found in pair} == {40}


# --- The policy of a task: which errors are retried, and after which pause


@task
def run(x: int) -> None: ...


def delay(attempt: int = 1, base: float = 15, **options: Any) -> Any:
    """Return the pause after an attempt of a task with these options. Only a callable asks for the result."""
    result = Mock()
    found = policy.delay_before_retry(replace(run, **options), result, OSError(), attempt, base, 3600)
    assert result.called == callable(options.get("backoff"))
    return found


@pytest.mark.parametrize(("options", "error", "expected"), [
    ({}, ValueError(), True),
    ({}, SystemExit(), True),
    ({"retry_on": OSError}, ValueError(), False),
    ({"retry_on": OSError}, ConnectionError(), True),
    ({"retry_on": ()}, OSError(), False),
    ({"fail_on": OSError}, ConnectionError(), False),
    ({"fail_on": OSError}, ValueError(), True),
    ({"retry_on": OSError, "fail_on": ConnectionError}, ConnectionResetError(), False),
    ({"retry_on": ConnectionError, "fail_on": OSError}, ConnectionError(), False),
])  # fmt: skip
def test_which_errors_are_retried(options: dict[str, Any], error: BaseException, expected: bool) -> None:
    assert policy.should_retry(replace(run, **options), error) is expected


def test_fixed_delays() -> None:
    for backoff, attempts, delays in (
        (5, [1, 9], [5.0, 5.0]), (0, [1], [0.0]), ([1, 10, 60], [1, 2, 3, 99], [1.0, 10.0, 60.0, 60.0]),
    ):  # fmt: skip
        assert [delay(each, backoff=backoff) for each in attempts] == delays


@pytest.mark.parametrize("backoff", [
    Mock(side_effect=ValueError), Mock(side_effect=SystemExit), lambda exc: 3.0, lambda exc, result: "soon",
    lambda exc, result: -1, lambda exc, result: float("nan"), lambda exc, result: float("inf"),
    lambda exc, result: 1e300, lambda exc, result: True, lambda exc, result: timedelta(-1),
])  # fmt: skip
def test_a_bad_callable_never_costs_the_job(backoff: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert 7.5 <= delay(backoff=backoff) <= 15
    assert f"backoff of {__name__}.run" in caplog.text


def test_the_default_doubles_up_to_the_ceiling_with_jitter() -> None:
    for attempt, most in ((1, 15), (2, 30), (8, 1920), (9, 3600), (10**6, 3600)):
        assert all(most / 2 <= delay(attempt) <= most for _ in range(20))
    assert delay(5, base=0) == 0


IN_2030 = datetime(2030, 1, 1, tzinfo=UTC)
EXCEPTIONS: list[BaseException] = [
    RetryLater(), RetryLater(2.5), RetryLater(timedelta(minutes=1)), Snooze(timedelta(hours=1)),
    Snooze(until=IN_2030), RetryLater(until=IN_2030), CancelJob(reason="gone"), TaskTimeout("5 s"),
    TaskTimeout(), InvalidJSON("too large"), JobExists("taken", 5), Suspended("sleep", "nap", 5.0),
    BadParameters("wrong", "right"), ShardsFailed("s1 did not answer", {"s0": 1}, {"s1": "refused"}),
]  # fmt: skip


def test_exceptions_can_be_printed_and_pickled(wording: Any) -> None:
    """They are sent between processes, as by pytest-xdist or a process pool."""
    for error in EXCEPTIONS:
        again = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    assert [f"{type(error).__name__}: {error}" for error in EXCEPTIONS] == wording


@pytest.mark.parametrize(("make", "error"), [
    (lambda: RetryLater(-1), ValueError),
    (lambda: RetryLater(float("nan")), ValueError),
    (lambda: RetryLater(timedelta(days=40_000)), ValueError),
    (lambda: RetryLater("soon"), TypeError),  # type: ignore[arg-type]
    (lambda: RetryLater(True), TypeError),
    (lambda: Snooze(timedelta(-1)), ValueError),
    (lambda: Snooze(until=datetime(2030, 1, 1)), TypeError),  # noqa: DTZ001
    (lambda: Snooze(until=5), TypeError),  # type: ignore[arg-type]
    (lambda: Snooze(until=timedelta(1)), TypeError),  # type: ignore[arg-type]
    (lambda: Snooze(), TypeError),
    (lambda: Snooze(60, until=IN_2030), TypeError),
    (lambda: RetryLater(60, until=IN_2030), TypeError),
])  # fmt: skip
def test_what_a_task_raises_is_validated(make: Callable[[], Exception], error: type[Exception]) -> None:
    with pytest.raises(error):
        make()
