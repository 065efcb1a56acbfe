from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_pgqueue import CancelJob, JobExists, RetryLater, Snooze, Task, TaskTimeout, exceptions, task
from django_pgqueue.backend import BadParameters
from django_pgqueue.compat import TaskResult
from django_pgqueue.exceptions import InvalidJSON, ShardsFailed, Suspended
from django_pgqueue.tasks import retry


@task
def run(x: int) -> None: ...


def with_policy(**retry: Any) -> Task[..., Any]:
    return replace(run, **retry)


def failed() -> TaskResult[Any, Any]:
    raise AssertionError("not to be made")


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
def test_should_retry(options: dict[str, Any], error: BaseException, expected: bool) -> None:
    assert retry.should_retry(with_policy(**options), error) is expected


@pytest.mark.parametrize(("backoff", "attempts", "delays"), [
    (5, [1, 2, 9], [5.0, 5.0, 5.0]),
    (0, [1], [0.0]),
    ([1, 10, 60], [1, 2, 3, 4, 99], [1.0, 10.0, 60.0, 60.0, 60.0]),
])  # fmt: skip
def test_fixed_delays(backoff: Any, attempts: list[int], delays: list[float]) -> None:
    declared = with_policy(backoff=backoff)
    error = ValueError()
    assert [
        retry.delay_before_retry(declared, failed, error, attempt, 15, 3600) for attempt in attempts
    ] == delays


def test_a_callable_gets_the_error_and_the_result() -> None:
    seen: list[Any] = []

    def backoff(exc: BaseException, result: Any, /) -> float | None:
        seen.append((exc, result))
        return 7

    declared = with_policy(backoff=backoff)
    error, result = ValueError(), object()
    delay = retry.delay_before_retry(declared, lambda: result, error, 1, 15, 3600)  # type: ignore[arg-type, return-value]
    assert delay == 7.0
    assert seen == [(error, result)]


def test_a_callable_may_end_it() -> None:
    declared = with_policy(backoff=lambda exc, result: None)
    assert retry.delay_before_retry(declared, lambda: None, ValueError(), 1, 15, 3600) is None  # type: ignore[arg-type, return-value]


def raises(error: BaseException) -> Any:
    def backoff(exc: BaseException, result: Any) -> float:
        raise error

    return backoff


@pytest.mark.parametrize("backoff", [
    raises(ValueError()), raises(SystemExit()), lambda exc: 3.0, lambda exc, result: "soon",
    lambda exc, result: -1, lambda exc, result: float("nan"), lambda exc, result: float("inf"),
    lambda exc, result: 1e300, lambda exc, result: True, lambda exc, result: timedelta(-1),
])  # fmt: skip
def test_a_bad_callable_never_costs_the_job(backoff: Any, caplog: pytest.LogCaptureFixture) -> None:
    declared = with_policy(backoff=backoff)
    delay = retry.delay_before_retry(declared, lambda: None, ValueError(), 1, 15, 3600)  # type: ignore[arg-type, return-value]
    assert delay is not None
    assert 7.5 <= delay <= 15
    assert "backoff of tests.tasks.test_retry.run" in caplog.text


@pytest.mark.parametrize(
    ("attempt", "most"), [(1, 15), (2, 30), (3, 60), (8, 1920), (9, 3600), (100, 3600), (10**6, 3600)]
)
def test_the_default_doubles_up_to_the_ceiling_with_jitter(attempt: int, most: float) -> None:
    declared = run
    delays = [retry.delay_before_retry(declared, failed, OSError(), attempt, 15, 3600) for _ in range(300)]
    assert all(delay is not None and most / 2 <= delay <= most for delay in delays)
    assert len(set(delays)) > 200


def test_a_base_of_zero_does_not_wait() -> None:
    assert retry.delay_before_retry(run, failed, OSError(), 5, 0, 3600) == 0


@pytest.mark.parametrize(("error", "text"), [
    (RetryLater(), "retry"),
    (RetryLater(2.5), "retry after 2.5 s"),
    (RetryLater(timedelta(minutes=1)), "retry after 60 s"),
    (Snooze(timedelta(hours=1)), "snooze after 3600 s"),
    (Snooze(until=datetime(2030, 1, 1, tzinfo=UTC)), "snooze at 2030-01-01 00:00:00+00:00"),
    (RetryLater(until=datetime(2030, 1, 1, tzinfo=UTC)), "retry at 2030-01-01 00:00:00+00:00"),
    (CancelJob(reason="gone"), "gone"),
    (TaskTimeout("5 s"), "5 s"),
    (TaskTimeout(), None),
    (InvalidJSON("too large"), "too large"),
    (JobExists("taken", 5), "taken"),
    (Suspended("sleep", "nap", 5.0), None),
    (BadParameters("wrong", "right"), None),
    (ShardsFailed("s1 did not answer", {"s0": 1}, {"s1": "refused"}), "s1 did not answer"),
])  # fmt: skip
def test_exceptions_can_be_printed_and_pickled(error: Exception, text: str | None) -> None:
    """They are sent between processes, as by pytest-xdist or a process pool."""
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    assert text in (str(error), None)


def test_every_exception_with_arguments_of_its_own_is_tested_above() -> None:
    own = {name for name, value in vars(exceptions).items() if "__init__" in getattr(value, "__dict__", ())}
    assert own == {*"JobExists ShardsFailed _Later RetryLater Snooze CancelJob Suspended TaskTimeout".split()}


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
    (lambda: Snooze(60, until=datetime(2030, 1, 1, tzinfo=UTC)), TypeError),
    (lambda: RetryLater(60, until=datetime(2030, 1, 1, tzinfo=UTC)), TypeError),
])  # fmt: skip
def test_what_a_task_raises_is_validated(make: Callable[[], Exception], error: type[Exception]) -> None:
    with pytest.raises(error):
        make()
