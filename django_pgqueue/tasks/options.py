"""Validate a task: its function, and each option of its policy and of a call.

Nothing here reads settings or TASKS, so declaring a task does not read them either. Every function returns
the value in the form in which the task stores it, or raises InvalidTask. Messages that also exist in Django's
own validation begin with Django's words.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from .. import encoding
from ..compat import InvalidTask
from ..conf import log_level
from ..exceptions import InvalidJSON, moment

Duration = float | timedelta
"""Seconds, or a timedelta."""
OnLost = Literal["rerun", "fail"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
Backoff = Duration | Sequence[Duration] | Callable[[Any, Any], Duration | None]
"""A duration; a sequence of them, whose last one repeats; or ``(exc, result) -> duration or None``."""

ExceptionTypes = type[BaseException] | Sequence[type[BaseException]]

CENTURY = timedelta(days=36525)
_MAX_PATH = 255
_TASK_PATH = re.compile(r"[^\s.0-9][^\s.]*(\.[^\s.0-9][^\s.]*)+")
_QUEUE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


def check_function(func: Any, *, takes_context: bool, atomic: bool) -> None:
    """Raise InvalidTask for a function that a worker could not find by its path, or could not run."""
    at = "Task function must be defined at a module level."
    if not inspect.isfunction(func):
        is_builtin = inspect.isbuiltin(func)
        kind = "a method" if inspect.ismethod(func) else f"of type {type(func).__qualname__}"
        hint = " Write a def at the top of its module that calls it." if callable(func) else ""
        raise InvalidTask(
            f"{at} {func!r} is {'a builtin' if is_builtin else kind}, not an ordinary function.{hint}"
        )
    path = f"{func.__module__}.{func.__qualname__}"
    if func.__name__ == "<lambda>":
        raise InvalidTask(f"{at} {path} is a lambda. Write it as a def, with a name.")
    if "<locals>" in func.__qualname__:
        raise InvalidTask(f"{at} {path} is nested in another function. Move it to the top of its module.")
    if not func.__qualname__.isidentifier():
        raise InvalidTask(f"{at} {path} is a method. Move it out of its class and pass it what it needs.")
    if len(path) > _MAX_PATH:
        raise InvalidTask(
            f"The path {path} has {len(path)} characters, but a job can store only {_MAX_PATH}. Shorten it."
        )
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise InvalidTask(f"{path} is a generator function. Calling it would run nothing. Return a list.")
    if atomic and inspect.iscoroutinefunction(func):
        raise InvalidTask(
            f"{path} is async, but atomic=True needs a sync task because Django's transactions are sync."
        )
    if takes_context and next(iter(inspect.signature(func).parameters), None) != "context":
        raise InvalidTask(
            f"Task takes context but does not have a first argument of 'context'. Add it to {path}."
        )


def checked(name: str, value: Any) -> Any:
    """Return the value of an option in the form in which a task stores it. Raise InvalidTask."""
    if value is None and name not in _NEVER_NONE:
        return None
    return _CHECKS[name](name, value)


def wrong(name: str, what: str, value: Any) -> InvalidTask:
    """Return the error for a bad value."""
    return InvalidTask(f"{name} must be {what}{'' if what.endswith('?') else '.'} It is {value!r}.")


def priority(value: Any) -> int:
    """Accept a whole number from -100 to 100; higher priorities run first."""
    if not isinstance(value, (int, float)) or not -100 <= value <= 100 or int(value) != value:
        raise wrong("priority", "a whole number between -100 and 100", value)
    return int(value)


def task_path(value: Any) -> str:
    """Accept the dotted path of a task."""
    if not isinstance(value, str) or len(value) > _MAX_PATH or not _TASK_PATH.fullmatch(value):
        raise wrong("task", "a task or its path, such as 'shop.tasks.sync'", value)
    return value


def queue_name(value: Any) -> str:
    """Accept 1 to 100 ASCII letters, digits, underscores, hyphens and periods."""
    if not isinstance(value, str) or not _QUEUE_NAME.fullmatch(value):
        raise wrong("queue_name", "1 to 100 letters, digits, '_', '-' or '.'", value)
    return value


def run_after(value: Any) -> tuple[datetime | None, timedelta | None]:
    """Return the time and the delay that `run_after` stands for; one of them is None."""
    if value is None:
        return None, None
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise InvalidTask(f"run_after must not be negative. It is {value!r}.")
        if value > CENTURY:
            raise wrong("run_after", "within 100 years", value)
        return None, value
    if not isinstance(value, datetime):
        raise wrong("run_after", "an aware datetime or a timedelta", value)
    try:
        value = moment("run_after", value)
    except TypeError as error:
        raise InvalidTask(str(error)) from None
    if abs(value - datetime.now(UTC)) > CENTURY:
        raise wrong("run_after", "within 100 years", value)
    return value, None


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number, at least 1, that the database can store."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 2**31 - 1


def length(name: str, value: Any) -> timedelta:
    """Accept seconds or a timedelta, greater than zero, and return a timedelta."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and is_delay(value):
        value = timedelta(seconds=value)
    if not isinstance(value, timedelta) or not timedelta(0) < value <= CENTURY:
        raise wrong(name, "seconds or a timedelta, greater than zero and within 100 years", value)
    return value


def is_delay(value: Any) -> bool:
    """Return whether `value` is a number of seconds to wait: finite, from 0 to 100 years."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and 0 <= value <= CENTURY.total_seconds()


def one_of(name: str, value: Any, *known: str) -> str:
    """Accept one of some words."""
    if value not in known:
        raise wrong(name, f"{', '.join(map(repr, known[:-1]))} or {known[-1]!r}", value)
    return str(value)


def tenant(name: str, value: Any) -> str:
    """Accept the name of a tenant."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.-]{1,63}", value):
        raise wrong(name, "1 to 63 letters, digits, '_', '-' or '.'", value)
    return value


def alias(name: str, value: Any) -> str:
    """Accept the alias of a database or a backend."""
    if not isinstance(value, str) or not value:
        raise wrong(name, "an alias (a string)", value)
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise wrong(name, "True or False", value)
    return value


def _whole(name: str, value: Any) -> int:
    if not is_whole(value):
        raise wrong(name, "a whole number, at least 1, or None for the setting", value)
    return int(value)


def _timeout(name: str, value: Any) -> int:
    seconds: Any = value
    if isinstance(value, timedelta) and not value.microseconds:
        seconds = int(value.total_seconds())
    if not is_whole(seconds):
        raise wrong(name, "whole seconds, at least 1, or None for the setting", value)
    return int(seconds)


def _backoff(name: str, value: Any) -> Backoff:
    if callable(value):
        call: Backoff = value
        return call
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        return _delay(name, value)
    if not value:
        raise InvalidTask("backoff must not be an empty sequence. Leave it out for the default.")
    return tuple(_delay(name, item) for item in value)


def _delay(name: str, value: Any) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not is_delay(seconds):
        what = "seconds or a timedelta from 0 to 100 years, a sequence of them, or a callable (exc, result)"
        raise wrong(name, what, value)
    return float(seconds)


def _exception_types(name: str, value: Any) -> tuple[type[BaseException], ...]:
    types = (value,) if isinstance(value, type) else value
    if isinstance(types, (str, bytes)) or not isinstance(types, (Sequence, set, frozenset)):
        raise wrong(name, "exception classes", value)
    for item in types:
        if not isinstance(item, type) or not issubclass(item, BaseException):
            raise InvalidTask(f"{name} must be exception classes. {item!r} is not one.")
    return tuple(types)


def _capture_logs(name: str, value: Any) -> bool | str:
    try:
        log_level(value)
    except ValueError as error:
        raise wrong(name, str(error), value) from None
    return value  # type: ignore[no-any-return]


def _metadata(name: str, value: Any) -> dict[str, Any]:
    """Return a copy of a JSON object; None means an empty one."""
    if value is not None and not isinstance(value, Mapping):
        raise wrong(name, "a dict", value)
    copy = dict(value or {})
    try:
        encoding.encode_metadata(copy)
    except InvalidJSON as error:
        raise InvalidTask(str(error)) from None
    return copy


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "priority": lambda _, value: priority(value),
    "queue_name": lambda _, value: queue_name(value),
    "backend": alias,
    "database": alias,
    "takes_context": _flag,
    "atomic": _flag,
    "max_attempts": _whole,
    "timeout": _timeout,
    "backoff": _backoff,
    "retry_on": _exception_types,
    "fail_on": _exception_types,
    "expires_after": length,
    "on_lost": lambda name, value: one_of(name, value, "rerun", "fail"),
    "capture_logs": _capture_logs,
    "metadata": _metadata,
}
CHECKED = tuple(_CHECKS)
"""The options that `checked` knows: the ones that do not depend on the function of the task."""
_NEVER_NONE = {"priority", "queue_name", "backend", "takes_context", "atomic", "on_lost", "metadata"}
