from __future__ import annotations

import dataclasses
import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_pgqueue import conf
from django_pgqueue.redaction_rules import Rules

DEFAULTS: dict[str, Any] = {
    "max_attempts": 5,
    "backoff_base": 15.0,
    "backoff_ceiling": 3600.0,
    "timeout": None,
    "timeout_grace": 10.0,
    "max_json_bytes": 1024 * 1024,
    "max_error_bytes": 16 * 1024,
    "keep_errors": 20,
    "retention": timedelta(days=7),
    "failed_retention": timedelta(days=30),
    "statistics_retention": timedelta(days=90),
    "heartbeat": 1.0,
    "lease": 30.0,
    "poll_interval": None,
    "idle_connection_timeout": 60.0,
    "grace": 30.0,
    "crash_limit": 3,
    "unknown_task_timeout": 3600.0,
    "group_weights": {},
    "aging": None,
    "task_modules": ("tasks",),
    "setup": None,
    "before_enqueue": (),
    "around_attempt": (),
    "schedules": {},
    "context": ("language", "trace"),
    "bulk_queue": None,
    "capture_logs": {},
    "log_lines": 200,
    "log_bytes": 32 * 1024,
    "redact": dataclasses.asdict(Rules()),
    "version": "",
    "alerts": (),
    "alerts_interval": 30.0,
    "alerts_clear_after": 300.0,
    "health": {},
    "monitoring_token": None,
    "monitoring_networks": (),
}


@pytest.mark.parametrize("given", [{}, None])
def test_defaults(given: dict[str, Any] | None, settings: Any) -> None:
    if given is None:
        if hasattr(settings, "PGQUEUE"):
            del settings.PGQUEUE
    else:
        settings.PGQUEUE = given
    assert dataclasses.asdict(conf.current()) == DEFAULTS
    assert conf.problems() == []


def test_every_setting_has_a_reader_and_a_docstring() -> None:
    assert {key.lower() for key in conf._READERS} == set(DEFAULTS)


def test_the_object_is_made_once_and_follows_overrides() -> None:
    assert conf.current() is conf.current()
    with override_settings(PGQUEUE={"MAX_ATTEMPTS": 9}):
        assert conf.current().max_attempts == 9
        with override_settings(PGQUEUE={"MAX_ATTEMPTS": 2}):
            assert conf.current().max_attempts == 2
        assert conf.current().max_attempts == 9
    assert conf.current().max_attempts == 5


def test_the_object_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        conf.current().max_attempts = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("key", "given", "read"),
    [
        ("BACKOFF_BASE", timedelta(minutes=1), 60.0),
        ("BACKOFF_BASE", 0, 0.0),
        ("GRACE", 2, 2.0),
        ("POLL_INTERVAL", 0.05, 0.05),
        ("POLL_INTERVAL", None, None),
        ("IDLE_CONNECTION_TIMEOUT", None, None),
        ("IDLE_CONNECTION_TIMEOUT", 1, 1.0),
        ("RETENTION", 3600, timedelta(hours=1)),
        ("FAILED_RETENTION", timedelta(days=90), timedelta(days=90)),
        ("TIMEOUT", 300, 300),
        ("TIMEOUT", None, None),
        ("UNKNOWN_TASK_TIMEOUT", 0, 0.0),
        ("CONTEXT", [], ()),
        ("CONTEXT", ["user", "shop.tenants.current", "user"], ("user", "shop.tenants.current")),
        ("REDACT", ["otp", "re:x"], Rules(("otp",), (re.compile("x"),))),
        ("REDACT", "shop.privacy.redact", Rules((), function="shop.privacy.redact")),
        ("CAPTURE_LOGS", True, {"*": 20}),
        ("VERSION", "2026.11 (3f2a)", "2026.11 (3f2a)"),
        ("ALERTS", "shop.alerts.mail", ("shop.alerts.mail",)),
        ("CAPTURE_LOGS", {"mail": "ERROR", "*": False}, {"mail": 40, "*": 0}),
    ],
)
def test_values_are_read(key: str, given: object, read: object) -> None:
    with override_settings(PGQUEUE={key: given}):
        value = getattr(conf.current(), key.lower())
    assert value == read
    assert type(value) is type(read)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("MAX_ATTEMPTS", 0),
        ("MAX_ATTEMPTS", "5"),
        ("VERSION", None),
        ("ALERTS", None),
        ("ALERTS", "mail"),
        ("ALERTS", ["shop.alerts.mail", 5]),
        ("VERSION", "x" * 51),
        ("MAX_ATTEMPTS", True),
        ("MAX_ATTEMPTS", 2.0),
        ("MAX_ATTEMPTS", None),
        ("BACKOFF_BASE", -1),
        ("BACKOFF_BASE", "15s"),
        ("BACKOFF_CEILING", float("nan")),
        ("BACKOFF_CEILING", float("inf")),
        ("TIMEOUT", 0),
        ("TIMEOUT", 1.5),
        ("TIMEOUT", timedelta(seconds=5)),
        ("MAX_JSON_BYTES", 0),
        ("MAX_JSON_BYTES", 2**28),
        ("MAX_ERROR_BYTES", 10),
        ("KEEP_ERRORS", 0),
        ("RETENTION", 0),
        ("RETENTION", timedelta(days=-1)),
        ("FAILED_RETENTION", "30 days"),
        ("FAILED_RETENTION", timedelta(days=40000)),
        ("HEARTBEAT", 0),
        ("LEASE", False),
        ("POLL_INTERVAL", 0.01),
        ("POLL_INTERVAL", 61),
        ("IDLE_CONNECTION_TIMEOUT", 0),
        ("IDLE_CONNECTION_TIMEOUT", "60"),
        ("GRACE", -1),
        ("CRASH_LIMIT", 0),
        ("UNKNOWN_TASK_TIMEOUT", -1),
        ("GROUP_WEIGHTS", ["acme"]),
        ("GROUP_WEIGHTS", {"acme": 0}),
        ("GROUP_WEIGHTS", {"": 1}),
        ("GROUP_WEIGHTS", {"acme": 1001}),
        ("AGING", 0),
        ("AGING", "1 minute"),
        ("CONTEXT", "language"),
        ("CONTEXT", None),
        ("CONTEXT", {"user": True}),
        ("CONTEXT", [5]),
        ("CONTEXT", ["not a.path"]),
        ("CAPTURE_LOGS", "info"),
        ("CAPTURE_LOGS", 20),
        ("CAPTURE_LOGS", None),
        ("CAPTURE_LOGS", {"": True}),
        ("CAPTURE_LOGS", {"mail": "LOUD"}),
        ("LOG_LINES", 1),
        ("LOG_BYTES", 255),
    ],
)
def test_bad_values_are_problems(key: str, value: object) -> None:
    with override_settings(PGQUEUE={key: value}):
        (problem,) = conf.problems()
        assert problem.key == key
        assert problem.is_value
        assert key in problem.message
        assert repr(value) in problem.message
        assert "It takes" in problem.hint
        with pytest.raises(ImproperlyConfigured, match=key):
            conf.current()


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("MAX_ATEMPTS", "Did you mean 'MAX_ATTEMPTS'?"),
        ("max_attempts", "Did you mean 'MAX_ATTEMPTS'?"),
        ("BROKER_URL_OF_CELERY", "The settings are MAX_ATTEMPTS, "),
        (7, "The settings are MAX_ATTEMPTS, "),
    ],
)
def test_unknown_keys_are_problems(key: object, hint: str) -> None:
    with override_settings(PGQUEUE={key: 1}):
        (problem,) = conf.problems()
        assert not problem.is_value
        assert repr(key) in problem.message
        assert problem.hint.startswith(hint)
        with pytest.raises(ImproperlyConfigured, match="has no setting"):
            conf.current()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"CONTEXT": ["users"]}, "not 'users'; did you mean 'user'?"),
        ({"CONTEXT": ["timezone"]}, "the names are language, trace, user"),
        ({"CAPTURE_LOGS": {"mail": "Warn"}}, "did you mean 'WARNING'?"),
    ],
)
def test_a_name_that_is_nearly_right_is_corrected(given: dict[str, Any], words: str) -> None:
    with override_settings(PGQUEUE=given):
        (problem,) = conf.problems()
    assert words in problem.hint


def test_all_problems_are_told_at_once() -> None:
    with override_settings(PGQUEUE={"NO": 1, "GRACE": -1, "LEASE": 60}):
        assert [problem.key for problem in conf.problems()] == ["NO", "GRACE"]
        with pytest.raises(ImproperlyConfigured, match=r"(?s)'NO'.*'GRACE'"):
            conf.current()


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"BACKOFF_BASE": 60, "BACKOFF_CEILING": 30}, "BACKOFF_CEILING"),
        ({"BACKOFF_BASE": 7200}, "BACKOFF_CEILING"),
        ({"HEARTBEAT": 20}, "LEASE"),
    ],
)
def test_values_that_contradict_each_other(given: dict[str, Any], key: str) -> None:
    with override_settings(PGQUEUE=given):
        assert [problem.key for problem in conf.problems()] == [key]


@pytest.mark.parametrize("given", [None, [], "PGQUEUE", 5])
def test_pgqueue_is_a_dict(given: object) -> None:
    with override_settings(PGQUEUE=given):
        (problem,) = conf.problems()
        assert "must be a dict" in problem.message
        with pytest.raises(ImproperlyConfigured):
            conf.current()
