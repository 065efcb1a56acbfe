from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue import exceptions
from django_pgqueue.backend import BadParameters
from django_pgqueue.exceptions import (
    CancelJob,
    InvalidJSON,
    JobExists,
    RetryLater,
    Snooze,
    Suspended,
    TaskTimeout,
)


@pytest.mark.parametrize(
    "error",
    [
        InvalidJSON("too large"),
        JobExists("taken", 5),
        RetryLater(60),
        Snooze(timedelta(hours=1)),
        Snooze(until=datetime(2030, 1, 1, tzinfo=UTC)),
        CancelJob(reason="not needed"),
        TaskTimeout(),
        Suspended("sleep", "nap", 5.0),
        BadParameters("wrong", "right"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_exceptions_survive_pickling(error: BaseException) -> None:
    """They are sent between processes, as by pytest-xdist or a process pool."""
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_every_exception_with_arguments_of_its_own_is_tested_above() -> None:
    own = {name for name, value in vars(exceptions).items() if "__init__" in getattr(value, "__dict__", ())}
    assert own == {"JobExists", "_Later", "RetryLater", "Snooze", "CancelJob", "Suspended", "TaskTimeout"}
