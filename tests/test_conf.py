from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_pgqueue import conf


def test_defaults(settings: Any, wording: Any) -> None:
    settings.PGQUEUE = {}
    values = dataclasses.asdict(conf.current())
    assert "\n".join(f"{key.upper()} = {value!r}" for key, value in values.items()) == wording
    assert values.keys() == {key.lower() for key in conf._READERS}
    del settings.PGQUEUE
    assert dataclasses.asdict(conf.current()) == values
    assert conf.problems() == []


READ: dict[str, list[Any]] = {
    "BACKOFF_BASE": [timedelta(minutes=1), 0], "GRACE": [2], "POLL_INTERVAL": [0.05, None],
    "IDLE_CONNECTION_TIMEOUT": [None, 1], "RETENTION": [3600], "FAILED_RETENTION": [timedelta(days=90)],
    "TIMEOUT": [300, timedelta(minutes=5), None], "SHARDS": [["default", "s1"]], "UNKNOWN_TASK_TIMEOUT": [0],
    "CONTEXT": [[], ["user", "shop.tenants.current", "user"]],
    "REDACT": [["otp", "re:x"], "shop.privacy.redact"], "VERSION": ["2026.11 (3f2a)"],
    "ALERTS": ["shop.alerts.mail"], "CAPTURE_LOGS": [True, {"mail": "ERROR", "*": False}],
}  # fmt: skip


def test_values_are_read(wording: Any) -> None:
    read = []
    for key, given in ((key, each) for key, several in READ.items() for each in several):
        with override_settings(PGQUEUE={key: given}):
            read.append(f"{key}: {given!r} is {getattr(conf.current(), key.lower())!r}")
    assert "\n".join(read) == wording


MANY_DAYS, NAN, INF = timedelta(days=40_000), float("nan"), float("inf")
BAD: dict[str, list[Any]] = {
    "MAX_ATTEMPTS": [0, "5", True, 2.0, None], "VERSION": [None, "x" * 51],
    "ALERTS": [None, "mail", ["shop.alerts.mail", 5]], "BACKOFF_BASE": [-1, "15s"],
    "BACKOFF_CEILING": [NAN, INF], "TIMEOUT": [0, 1.5, timedelta(seconds=1.5)], "MAX_JSON_BYTES": [0, 2**28],
    "MAX_ERROR_BYTES": [10], "KEEP_ERRORS": [0], "RETENTION": [0, timedelta(days=-1)],
    "FAILED_RETENTION": ["30 days", MANY_DAYS], "HEARTBEAT": [0], "LEASE": [False],
    "POLL_INTERVAL": [0.01, 61], "IDLE_CONNECTION_TIMEOUT": [0, "60"], "GRACE": [-1], "CRASH_LIMIT": [0],
    "SHARDS": ["s1", ["s1", "s1"], [1]],
    "UNKNOWN_TASK_TIMEOUT": [-1],
    "GROUP_WEIGHTS": [["acme"], {"acme": 0}, {"": 1}, {"acme": 1001}], "AGING": [0, "1 minute"],
    "CONTEXT": ["language", None, {"user": True}, [5], ["not a.path"], ["users"], ["timezone"]],
    "CAPTURE_LOGS": ["info", 20, None, {"": True}, {"mail": "LOUD"}, {"mail": "Warn"}], "LOG_LINES": [1],
    "LOG_BYTES": [255], "REDACT": ["password", b"password", {"password": 1}, [5], [""], ["re:("], None],
    "TASK_MODULES": ["tasks", [], [""], ["a-b"], [1], None, ["a..b"]],
}  # fmt: skip
#: Settings with other problems than a bad value.
ODD: list[Any] = [
    {"MAX_ATEMPTS": 1}, {"max_attempts": 1}, {"BROKER_URL_OF_CELERY": 1}, {7: 1},
    {"NO": 1, "GRACE": -1, "LEASE": 60}, {"BACKOFF_BASE": 60, "BACKOFF_CEILING": 30}, {"BACKOFF_BASE": 7200},
    {"HEARTBEAT": 20}, None, [], "PGQUEUE", 5,
]  # fmt: skip


def test_problems_are_told_all_at_once_and_refused(wording: Any) -> None:
    said = []
    bad: list[Any] = [{key: value} for key, values in BAD.items() for value in values]
    for given in [*bad, *ODD]:
        with override_settings(PGQUEUE=given):
            problems = conf.problems()
            assert [problem.is_value for problem in problems] == [True] or given in ODD
            with pytest.raises(ImproperlyConfigured) as caught:
                conf.current()
        assert all(problem.message in str(caught.value) for problem in problems)
        said += [f"{problem.message} {problem.hint}" for problem in problems]
    names = ", ".join(key.upper() for key in conf._READERS)
    assert "\n".join(said).replace(names, "(all)") == wording
