"""``Unique``: which calls of a task count as the same, how long, and what happens to the second one.

The database keeps the promise, with a unique index on the key that is stored with the job
(``sql/insert_unique_v1.sql``). This module validates the declaration and builds the keys.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from ..compat import InvalidTask
from ..exceptions import InvalidKey
from .signatures import bind_call, parameters_of_call

if TYPE_CHECKING:
    from ..compat import DjangoTask

__all__ = ["EnqueueOutcome", "OnConflict", "Scope", "Unique", "check_unique", "unique_key", "with_key"]

Scope = Literal["waiting", "live"]
OnConflict = Literal["existing", "replace", "earliest", "raise"]
EnqueueOutcome = Literal["created", "existing", "replaced"]
"""What an enqueue returned: a new job, the other job as it is, or the other job with the new arguments."""

MAX_KEY = 200  # characters
_CENTURY = timedelta(days=36525)
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """Says that a call of a task is not enqueued again while there is a job of the same call.

    `by`: what makes calls the same. None: the task and all arguments; a tuple of argument names: the task and
    these arguments; a callable: the task and what it returns for the arguments of the call. `key` is a
    string instead, which is used as it is: tasks with the same key exclude each other.

    `scope`: "waiting" until the job starts, "live" until it is over. `window`: also for this long after it
    was enqueued, whatever became of it. `on_conflict`: "existing" returns the other job, "replace" gives it
    the arguments and options of this call if it has not started, "earliest" makes it due at the earlier of
    the two times, and "raise" raises `JobExists`.
    """

    by: tuple[str, ...] | Callable[..., Any] | None = None
    key: str | None = None
    scope: Scope = "waiting"
    window: timedelta | None = None
    on_conflict: OnConflict = "existing"

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", _by(self.by))
        if self.key is not None:
            if self.by is not None:
                raise InvalidTask("Unique() takes either by or key, not both.")
            _key(self.key)
        if self.scope not in ("waiting", "live"):
            raise InvalidTask(f"scope must be 'waiting' or 'live'. It is {self.scope!r}.")
        if self.window is not None and (
            not isinstance(self.window, timedelta) or not timedelta(0) < self.window <= _CENTURY
        ):
            raise InvalidTask(
                "window must be a timedelta greater than zero and within 100 years, or None for no window. "
                f"It is {self.window!r}."
            )
        if self.on_conflict not in ("existing", "replace", "earliest", "raise"):
            raise InvalidTask(
                "on_conflict must be 'existing', 'replace', 'earliest' or 'raise'. "
                f"It is {self.on_conflict!r}."
            )


def check_unique(value: Any, func: Callable[..., Any], *, takes_context: bool) -> Unique | None:
    """Return the value for the task with this function. Raise InvalidTask if it does not fit the function."""
    if value is None:
        return None
    if not isinstance(value, Unique):
        raise InvalidTask(f"unique must be a Unique(...), such as Unique(scope='live'). It is {value!r}.")
    if value.key is not None or callable(value.by):
        return value
    path = f"{func.__module__}.{func.__qualname__}"
    parameters = parameters_of_call(func, takes_context=takes_context)
    if parameters is None:
        raise InvalidTask(
            f"The signature of {path} cannot be read, so its arguments have no names. Use "
            "Unique(by=callable), which is called with the arguments, or Unique(key=...)."
        )
    for name in value.by or parameters:
        if name not in parameters:
            raise InvalidTask(
                f"by names the argument {name!r}, but {path} has {', '.join(parameters) or 'no arguments'}. "
                "Correct the name, or use a callable."
            )
        _check_default(path, parameters[name])
    return value


def with_key(value: Unique | None, key: Any) -> Unique:
    """Return `value`, or the default, with a key in place of the arguments."""
    return replace(value or Unique(), by=None, key=_key(key))


def unique_key(
    unique: Unique, task: DjangoTask[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str:
    """Return the key of a call, whose arguments have been checked. Raise InvalidKey if there is none.

    It is readable (``shop.tasks.reindex(document_id=7)``) unless it would be longer than a job can store.
    Then a hash takes the place of its end.
    """
    if unique.key is not None:
        return unique.key
    path = task.module_path
    if callable(unique.by):
        return _short(f"{path}[{_of_callable(unique.by, path, args, kwargs)}]")
    bound = bind_call(task, args, kwargs)
    names = bound if unique.by is None else [name for name in bound if name in unique.by]
    return _short(f"{path}({', '.join(f'{name}={_encode(bound[name])}' for name in names)})")


def _of_callable(by: Callable[..., Any], path: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    try:
        value = by(*args, **kwargs)
    except Exception as error:
        raise InvalidKey(
            f"by of {path} raised {type(error).__name__}: {error}. The job was not enqueued. It is called "
            "with the arguments of the call: correct it, or the arguments."
        ) from error
    if value is None:
        raise InvalidKey(f"by of {path} returned None. Return what the job is unique by, such as a string.")
    try:
        text = _encode(value)
        text.encode()  # a lone surrogate cannot be stored
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidKey(
            f"by of {path} returned {value!r:.100}, which cannot be written as JSON ({error}). Return a "
            "string or a number, or a list of them."
        ) from error
    return text


def _short(key: str) -> str:
    if len(key) <= MAX_KEY:
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()
    return f"{key[: MAX_KEY - len(digest) - 1]}#{digest}"


def _by(value: Any) -> Any:
    if value is None or callable(value):
        return value
    if isinstance(value, str):
        raise InvalidTask(f"by must be a tuple of argument names, such as by=({value!r},). It is {value!r}.")
    if not isinstance(value, (list, tuple)) or not value or not all(isinstance(name, str) for name in value):
        raise InvalidTask(
            f"by must be a tuple of argument names, a callable, or None for all arguments. It is {value!r}."
        )
    return tuple(value)


def _key(value: Any) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidTask(f"A unique key must be a string, not empty and without NUL. It is {value!r}.")
    if len(value) > MAX_KEY:
        raise InvalidTask(
            f"A unique key may have {MAX_KEY} characters. {value[:40]!r}... has {len(value)}: use a hash "
            "of it."
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidTask(
            f"The unique key {value!r} has a lone surrogate, which UTF-8 cannot encode."
        ) from None
    return value


def _check_default(path: str, parameter: inspect.Parameter) -> None:
    if parameter.default is parameter.empty:
        return
    try:
        _encode(parameter.default)
    except (TypeError, ValueError, RecursionError):
        raise InvalidTask(
            f"The default of {parameter.name!r} of {path}, {parameter.default!r:.100}, cannot be written as "
            "JSON, so it cannot be part of a unique key. Name the other arguments with by=(...), or use None "
            "as the default."
        ) from None
