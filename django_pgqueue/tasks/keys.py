"""``Concurrency``: how many jobs of a task, or of each of its keys, may run at once, and the key of one call.

The key of a job (``Job.limit_key``) is the name of a limit, or ``<name>/<value>``. Jobs with the same key
share the slots of the limit. Nothing here reads settings or the database: the claim decides which jobs may
start.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Literal, TypeAlias
from uuid import UUID

from ..compat import InvalidTask
from ..exceptions import InvalidKey
from .options import CENTURY
from .signatures import signature_of

__all__ = [
    "GROUP_LENGTH",
    "KEY_LENGTH",
    "Concurrency",
    "Group",
    "OnConflict",
    "Rate",
    "argument_value",
    "as_text",
    "called_value",
    "can_be_stored",
    "check_argument",
    "checked_concurrency",
    "checked_concurrency_key",
    "checked_group",
    "checked_group_key",
    "checked_rate",
    "checked_rule",
    "group_key",
    "key_problem",
    "limit_key",
    "limit_name",
    "limit_numbers",
    "name_problem",
    "rate_problem",
]


OnConflict = Literal["wait", "skip", "cancel"]

KEY_LENGTH = 200
_MOST = 2**31 - 1
_VALUES = (str, int, float, Decimal, UUID, date)


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How many jobs may run at once: ``@task(concurrency=Concurrency(1, key="order_id"))``."""

    limit: int
    """How many jobs of the same key may run at once, at least 1."""
    key: str | Callable[..., object] | None = None
    """The name of the argument whose value is the key; or a callable that takes the arguments of the call
    and returns it; None: all jobs of the task share one limit. A value of None means that the job is
    under no limit."""
    _: KW_ONLY
    on_conflict: OnConflict = "wait"
    """What happens to a job that finds no room: it waits in line, it is skipped (cancelled), or it cancels
    older ones.
    """
    name: str | None = None
    """The name of the limit; None: the path of the task. Tasks whose limits have the same name share their
    slots."""

    def __post_init__(self) -> None:
        if isinstance(self.limit, bool) or not isinstance(self.limit, int) or not 1 <= self.limit <= _MOST:
            hint = " To let no job start, pause the task instead." if self.limit == 0 else ""
            raise InvalidTask(
                f"The limit of concurrency must be a whole number of at least 1. It is {self.limit!r}.{hint}"
            )
        if problem := key_problem("concurrency", self.key):
            raise InvalidTask(problem)
        if self.on_conflict not in ("wait", "skip", "cancel"):
            raise InvalidTask(f"on_conflict must be 'wait', 'skip' or 'cancel'. It is {self.on_conflict!r}.")
        if self.name is not None and (problem := name_problem(self.name)):
            raise InvalidTask(f"The name of a limit {problem} It is {self.name!r}.")


def key_problem(option: str, key: Any) -> str:
    """Return what is wrong with the key of an option of a task, as a sentence; "" if nothing is."""
    if key is None or (isinstance(key, str) and key) or callable(key):
        return ""
    return (
        f"The key of {option} must be the name of an argument, or a callable that takes the arguments. It is "
        f"{key!r}."
    )


def name_problem(name: Any) -> str:
    """Return what is wrong with the name of a limit of keys, as the end of a sentence; "" if nothing is."""
    if not isinstance(name, str) or not 1 <= len(name) <= KEY_LENGTH:
        return f"must be a string of 1 to {KEY_LENGTH} characters."
    if "/" in name or "\0" in name:
        return "must not contain a slash or a null character: a slash separates it from the value of the key."
    if name == "*" or name.startswith("queue:"):
        return (
            "must not be '*' or begin with 'queue:', which are the limits of the installation and of queues."
        )
    return ""


def checked_concurrency(value: Any, func: Callable[..., Any], *, takes_context: bool) -> Concurrency | None:
    """Return the ``concurrency`` of a task: a number means that of all its jobs. Raise InvalidTask."""
    if value is None:
        return None
    if isinstance(value, int):
        value = Concurrency(value)
    if not isinstance(value, Concurrency):
        raise InvalidTask(f"concurrency must be a whole number or a Concurrency(...). It is {value!r}.")
    checked_rule(value, func, takes_context=takes_context)
    return value


def checked_rule(value: Any, func: Callable[..., Any], *, takes_context: bool) -> None:
    """Raise InvalidTask if a ``Concurrency`` or ``Rate`` does not fit the function of its task."""
    path = f"{func.__module__}.{func.__qualname__}"
    if value.name is None and (problem := name_problem(path)):
        raise InvalidTask(
            f"The path of the task is the name of its limit, which {problem} Set "
            f"{type(value).__name__}(name=...)."
        )
    check_argument(value.key, f"{type(value).__name__}(key=...)", func, takes_context=takes_context)


def check_argument(name: Any, option: str, func: Callable[..., Any], *, takes_context: bool) -> None:
    """Raise InvalidTask if an option names an argument that the function of the task does not have."""
    if not isinstance(name, str):
        return
    names = list(signature_of(func).parameters.values())[takes_context:]
    any_name = any(each.kind is each.VAR_KEYWORD for each in names)
    known = [each.name for each in names if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    if name not in known and not any_name:
        raise InvalidTask(
            f"{func.__module__}.{func.__qualname__}() has no argument {name!r}, which {option} names. Its "
            f"arguments are: {', '.join(known) or 'none'}."
        )


def checked_concurrency_key(value: Any) -> str | None:
    """Accept None, or the value of a key as a string that can be stored."""
    if value is not None and (not isinstance(value, str) or len(value) > KEY_LENGTH):
        raise InvalidTask(
            f"concurrency_key must be a string of at most {KEY_LENGTH} characters. It is {value!r:.100}."
        )
    return value


def limit_name(task: Any) -> str:
    """Return the name of the limit under which the keys of a task are."""
    rule = task.concurrency or task.rate
    return str(task.module_path if rule is None or rule.name is None else rule.name)


def limit_numbers(task: Any) -> tuple[Any, ...]:
    """Return what a task declares about its limit: how many may run, ``on_conflict``, and the rate."""
    rule, rate = task.concurrency, task.rate
    running, on_conflict = (None, "wait") if rule is None else (rule.limit, rule.on_conflict)
    return running, on_conflict, *((None,) * 3 if rate is None else (rate.starts, rate.per, rate.burst))


def limit_key(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return the key of a call; None if it is under no limit. Raise ``InvalidKey`` if it cannot be
    computed."""
    name = limit_name(task)
    if task.concurrency_key is not None:
        return _joined(task, name, task.concurrency_key)
    rule = task.concurrency or task.rate  # with both, they have the same key
    if rule is None:
        return None
    if rule.key is None:
        return name
    value = (
        argument_value(task, rule.key, args, kwargs)
        if isinstance(rule.key, str)
        else called_value(task, "concurrency key", rule.key, args, kwargs)
    )
    return None if value is None else _joined(task, name, value)


def _joined(task: Any, name: str, value: object) -> str:
    text = as_text(value)
    if text is None:
        raise InvalidKey(
            f"The concurrency key of {task.module_path} must be a string, a number, a date or a UUID, "
            f"not {value!r:.200}. Use a callable that returns one: Concurrency(key=lambda ...)."
        )
    key = f"{name}/{text}"
    if len(key) > KEY_LENGTH:
        raise InvalidKey(
            f"The concurrency key of {task.module_path} has {len(key)} characters with the name of its "
            f"limit, but the limit is {KEY_LENGTH}: {key[:60]}... Use a hash, or a shorter "
            "Concurrency(name=...)."
        )
    if not can_be_stored(text):
        raise InvalidKey(
            f"The concurrency key of {task.module_path} has a character that cannot be stored: {text!r}."
        )
    return key


def as_text(value: object) -> str | None:
    """Return the value of a key as text; None if it is of another type."""
    if not isinstance(value, _VALUES) or isinstance(value, bool):
        return None
    # Of an enumeration, the value; its str() may be the name.
    return str.__str__(value) if isinstance(value, str) else str(value)


def can_be_stored(text: str) -> bool:
    """Return whether PostgreSQL can store a text: it takes no null characters and no surrogates."""
    return text.isprintable() or not any(each == "\0" or "\ud800" <= each <= "\udfff" for each in text)


def argument_value(task: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
    """Return the value of an argument of a call."""
    if name in kwargs:
        return kwargs[name]
    bound = signature_of(task.func).bind(*([None] if task.takes_context else []), *args, **kwargs)
    bound.apply_defaults()
    value: object = bound.arguments.get(name)
    return value


def called_value(
    task: Any, what: str, key: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> object:
    """Return what a callable makes of the arguments of a call. Raise ``InvalidKey`` if it raises an
    exception."""
    try:
        value = key(*args, **kwargs)
    except Exception as error:
        raise InvalidKey(
            f"The callable for the {what} of {task.module_path} raised {type(error).__name__}: "
            f"{error}. It is called with the arguments of the call."
        ) from error
    if inspect.iscoroutine(value):
        value.close()
        raise InvalidKey(f"The callable for the {what} of {task.module_path} must not be async.")
    return value


# ----------------------------------------------------------------------------
# ``Rate``: how many jobs of a task, or of each of its keys, may start in a period.
#
# It is the limit that a ``Concurrency`` is, with another number: the key of a job is computed in the same
# way, and the claim decides which jobs may start. Nothing here reads settings or the database.


@dataclass(frozen=True, slots=True)
class Rate:
    """How many jobs may start in a period: ``@task(rate=Rate(100, per=timedelta(minutes=1)))``."""

    starts: int
    """How many jobs of the same key may start in a period, at least 1."""
    _: KW_ONLY
    per: timedelta
    """The period."""
    burst: int = 1
    """How many may start at once after a quiet time. 1: they start at equal intervals."""
    key: str | Callable[..., object] | None = None
    """As for `Concurrency`: the name of an argument, or a callable; None: all jobs of the task share the
    rate."""
    name: str | None = None
    """The name of the limit; None: the path of the task. Tasks whose limits have the same name share the
    rate."""

    def __post_init__(self) -> None:
        problem = rate_problem(self.starts, self.per, self.burst) or key_problem("rate", self.key)
        if problem:
            raise InvalidTask(problem)
        if self.name is not None and (problem := name_problem(self.name)):
            raise InvalidTask(f"The name of a limit {problem} It is {self.name!r}.")


def rate_problem(starts: Any, per: Any, burst: Any) -> str:
    """Return what is wrong with a rate, as whole sentences; "" if nothing is."""
    if not _is_whole(starts):
        hint = " To let no job start, pause the queue or the task." if starts == 0 else ""
        return f"The starts of a rate must be a whole number of at least 1. They are {starts!r}.{hint}"
    if not isinstance(per, timedelta) or not timedelta(0) < per <= CENTURY:
        return (
            f"The period of a rate must be a timedelta greater than zero and within 100 years: per={per!r}."
        )
    if not _is_whole(burst):
        return f"The burst of a rate must be a whole number of at least 1. It is {burst!r}."
    if burst * per.total_seconds() / starts > CENTURY.total_seconds():
        return f"The burst of a rate must be allowed again within 100 years. Lower it: burst={burst!r}."
    return ""


def checked_rate(
    value: Any, concurrency: Concurrency | int | None, func: Callable[..., Any], *, takes_context: bool
) -> Rate | None:
    """Return the ``rate`` of a task, which fits its ``concurrency``, itself checked. Raise InvalidTask."""
    if value is None:
        return None
    if not isinstance(value, Rate):
        raise InvalidTask(f"rate must be a Rate(...). It is {value!r}.")
    checked_rule(value, func, takes_context=takes_context)
    if concurrency is None:
        return value
    if isinstance(concurrency, int):
        concurrency = Concurrency(concurrency)
    if (value.key, value.name) != (concurrency.key, concurrency.name):
        raise InvalidTask(
            "A job has one key, so concurrency and rate of a task must have the same key and the same name. "
            f"The key of concurrency is {concurrency.key!r} (name {concurrency.name!r}), that of rate "
            f"{value.key!r} (name {value.name!r}). Limit one of them by the queue instead: set_limit()."
        )
    if concurrency.on_conflict != "wait":
        raise InvalidTask(
            "Jobs always wait for a rate, so concurrency must have on_conflict='wait' beside it. It is "
            f"{concurrency.on_conflict!r}."
        )
    return value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST


# ----------------------------------------------------------------------------
# ``group``: whose job it is. Workers go through the groups of a queue in turn.
#
# The group of a job (``Job.group_key``) is the value of an argument, what a callable makes of the arguments,
# or a string at the call. Nothing here reads settings or the database: the claim takes the groups in turn.

Group: TypeAlias = str | Callable[..., object]
"""The name of an argument, or a callable that takes the arguments of the call and returns the group."""

GROUP_LENGTH = 200


def checked_group(value: Any, func: Callable[..., Any], *, takes_context: bool) -> Group | None:
    """Return the ``group`` of a task. Raise InvalidTask if it does not fit its function."""
    if value is None:
        return None
    if not callable(value) and not (isinstance(value, str) and value):
        raise InvalidTask(
            f"group must be the name of an argument, or a callable that takes the arguments. It is {value!r}."
        )
    check_argument(value, "group", func, takes_context=takes_context)
    result: Group = value
    return result


def checked_group_key(value: Any) -> str | None:
    """Accept None, or the group of a call as a string that can be stored."""
    if value is not None and (problem := _problem(value)):
        raise InvalidTask(f"group {problem}")
    return None if value is None else str(value)


def group_key(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return the group of a call; None if it has none. Raise ``InvalidKey`` if it cannot be computed."""
    if task.group_key is not None:
        return str(task.group_key)
    if task.group is None:
        return None
    value = (
        argument_value(task, task.group, args, kwargs)
        if isinstance(task.group, str)
        else called_value(task, "group", task.group, args, kwargs)
    )
    if value is None:
        return None
    text = as_text(value)
    if text is None:
        raise InvalidKey(
            f"The group of {task.module_path} must be a string, a number, a date or a UUID, not "
            f"{value!r:.200}. Use a callable that returns one: group=lambda ..."
        )
    if problem := _problem(text):
        raise InvalidKey(f"The group of {task.module_path} {problem}")
    return text


def _problem(text: Any) -> str:
    if not isinstance(text, str) or not text:
        return f"must be a string that is not empty. It is {text!r:.100}."
    if len(text) > GROUP_LENGTH:
        return f"has {len(text)} characters, but the limit is {GROUP_LENGTH}: {text[:60]}... Use a hash."
    if not can_be_stored(text):
        return f"has a character that cannot be stored: {text!r}."
    return ""
