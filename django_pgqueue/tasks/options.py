"""Validate a task: its function, and each option of its policy and of a call.

Nothing here reads settings or TASKS, so declaring a task does not read them either. Every function returns
the value in the form in which the task stores it, or raises InvalidTask. Messages that also exist in Django's
own validation begin with Django's words.
"""

from __future__ import annotations

import builtins
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
_MOST_INT = 2**31 - 1
_TASK_PATH = re.compile(r"[^\s.0-9][^\s.]*(\.[^\s.0-9][^\s.]*)+")
_QUEUE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


def check_function(func: Any, *, takes_context: bool, atomic: bool) -> None:
    """Raise InvalidTask for a function that a worker could not find by its path, or could not run."""
    at = "Task function must be defined at a module level."
    if not inspect.isfunction(func):
        raise InvalidTask(f"{at} {func!r} is {_kind(func)}, not an ordinary function.{_function_hint(func)}")
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


def priority(value: Any) -> int:
    """Accept a whole number from -100 to 100; higher priorities run first."""
    if not isinstance(value, (int, float)) or not -100 <= value <= 100 or int(value) != value:
        raise InvalidTask(f"priority must be a whole number between -100 and 100. It is {value!r}.")
    return int(value)


def task_path(value: Any) -> str:
    """Accept the dotted path of a task."""
    if not isinstance(value, str) or len(value) > _MAX_PATH or not _TASK_PATH.fullmatch(value):
        raise InvalidTask(f"task must be a task or its path, such as 'shop.tasks.sync'. It is {value!r}.")
    return value


def queue_name(value: Any) -> str:
    """Accept 1 to 100 ASCII letters, digits, underscores, hyphens and periods."""
    if not isinstance(value, str) or not _QUEUE_NAME.fullmatch(value):
        raise InvalidTask(f"queue_name must be 1 to 100 letters, digits, '_', '-' or '.'. It is {value!r}.")
    return value


def run_after(value: Any) -> tuple[datetime | None, timedelta | None]:
    """Return the time and the delay that `run_after` stands for; one of them is None."""
    if value is None:
        return None, None
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise InvalidTask(f"run_after must not be negative. It is {value!r}.")
        if value > CENTURY:
            raise InvalidTask(f"run_after must be within 100 years. It is {value!r}.")
        return None, value
    if not isinstance(value, datetime):
        raise InvalidTask(f"run_after must be an aware datetime or a timedelta. It is {value!r}.")
    try:
        value = moment("run_after", value)
    except TypeError:
        raise InvalidTask(
            f"run_after must be an aware datetime. {value!r} has no time zone. "
            "Use now() or make_aware() of django.utils.timezone."
        ) from None
    if abs(value - datetime.now(UTC)) > CENTURY:
        raise InvalidTask(f"run_after must be within 100 years. It is {value!r}.")
    return value, None


def whole(name: str, value: Any) -> int | None:
    """Accept None, or a whole number of at least 1."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_INT:
        what = "whole seconds" if name == "timeout" else "a whole number"
        raise InvalidTask(f"{name} must be {what}, at least 1, or None for the setting. It is {value!r}.")
    return value


def length(name: str, value: Any) -> timedelta:
    """Accept seconds or a timedelta, greater than zero, and return a timedelta."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and is_delay(value):
        value = timedelta(seconds=value)
    if not isinstance(value, timedelta) or not timedelta(0) < value <= CENTURY:
        raise InvalidTask(
            f"{name} must be seconds or a timedelta, greater than zero and within 100 years. It is {value!r}."
        )
    return value


def timeout(value: Any) -> int | None:
    """Accept None, or whole seconds, also as a timedelta."""
    if isinstance(value, timedelta):
        if value.microseconds:
            raise InvalidTask(f"timeout must be whole seconds. It is {value!r}.")
        value = int(value.total_seconds())
    return whole("timeout", value)


def backoff(value: Any) -> Backoff | None:
    """Accept what the type says; return a sequence as a tuple."""
    if value is None:
        return None
    if callable(value):
        call: Backoff = value
        return call
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        if not value:
            raise InvalidTask("backoff must not be an empty sequence. Leave it out for the default.")
        return tuple(_delay(item) for item in value)
    return _delay(value)


def is_delay(value: Any) -> bool:
    """Return whether `value` is a number of seconds to wait: finite, from 0 to 100 years."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and 0 <= value <= CENTURY.total_seconds()


def exception_types(name: str, value: Any) -> tuple[type[BaseException], ...] | None:
    """Accept None, or one or several exception classes; return them as a tuple."""
    if value is None:
        return None
    types = (value,) if isinstance(value, type) else value
    if isinstance(types, (str, bytes)) or not isinstance(types, (Sequence, set, frozenset)):
        raise InvalidTask(f"{name} must be exception classes. It is {value!r}.")
    for item in types:
        if not isinstance(item, type) or not issubclass(item, BaseException):
            raise InvalidTask(f"{name} must be exception classes. {item!r} is not one.")
    return tuple(types)


def expires_after(value: Any) -> timedelta | None:
    """Accept None, or seconds or a timedelta, greater than zero."""
    return None if value is None else length("expires_after", value)


def on_lost(value: Any) -> OnLost:
    """Accept what to do with a job whose worker died while running it: 'rerun' or 'fail'."""
    if value == "rerun":
        return "rerun"
    if value == "fail":
        return "fail"
    raise InvalidTask(f"on_lost must be 'rerun' or 'fail'. It is {value!r}.")


def flag(name: str, value: Any) -> bool:
    """Accept True or False."""
    if not isinstance(value, bool):
        raise InvalidTask(f"{name} must be True or False. It is {value!r}.")
    return value


def capture_logs(value: Any) -> bool | str | None:
    """Accept None, True, False, or the name of a level of logging."""
    if value is not None:
        try:
            log_level(value)
        except ValueError as error:
            raise InvalidTask(f"capture_logs must be {error}. It is {value!r}.") from None
    return value  # type: ignore[no-any-return]


def alias(name: str, value: Any) -> str | None:
    """Accept None, or the alias of a database or a backend."""
    if value is not None and (not isinstance(value, str) or not value):
        raise InvalidTask(f"{name} must be an alias (a string). It is {value!r}.")
    return value


def metadata(value: Any) -> dict[str, Any]:
    """Accept a JSON object and return a copy; None means an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidTask(f"metadata must be a dict. It is {value!r}.")
    copy = dict(value)
    try:
        encoding.encode_metadata(copy)
    except InvalidJSON as error:
        raise InvalidTask(str(error)) from None
    return copy


def _delay(value: Any) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if not is_delay(value):
        raise InvalidTask(
            "backoff must be seconds or a timedelta from 0 to 100 years, a sequence of them, or a callable "
            f"(exc, result). It is {value!r}."
        )
    return float(value)


def _kind(func: Any) -> str:
    if inspect.isbuiltin(func) or getattr(func, "__module__", "") == builtins.__name__:
        return "a builtin"
    if inspect.ismethod(func):
        return "a method"
    return f"of type {type(func).__qualname__}"


def _function_hint(func: Any) -> str:
    if isinstance(func, (staticmethod, classmethod)) or inspect.ismethod(func):
        return " Move it out of its class."
    if callable(func):
        return " Write a def that calls it."
    return ""
