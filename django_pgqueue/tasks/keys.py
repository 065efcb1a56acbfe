"""The keys of a task: ``Concurrency`` and ``RateLimit``, under whose keys jobs wait, and groups.

The limit key of a job (``Job.limit_key``) is the name of a limit, or ``<name>/<value>``. Jobs with the same
key share the slots of the limit. Nothing here reads settings or the database: the claim decides which jobs
may start.

A key is declared in one way everywhere, also in ``Unique``: by the names of arguments, or by a callable.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID

from ..compat import InvalidTask
from ..exceptions import InvalidKey
from .misuse import LIMITED, RATE, hints, rate_hint
from .options import CENTURY, length
from .signatures import signature_of

Key: TypeAlias = str | tuple[str, ...] | Callable[..., object] | None
"""The name of an argument; several names; ``()``, which is the same for all calls; or a callable that takes
the arguments of the call. What None means depends on the option."""

OnFull = Literal["wait", "cancel_new", "cancel_old"]

KEY_LENGTH = 200
_MOST = 2**31 - 1
_VALUES = (str, int, float, Decimal, UUID, date)


# ----------------------------------------------------------------------------
# A key, as it is declared, and its value for the arguments of a call.


def key_problem(option: str, key: Any) -> str:
    """Return what is wrong with a key as it is declared, as a sentence; "" if nothing is."""
    if key is None or callable(key) or (isinstance(key, str) and key):
        return ""
    if isinstance(key, tuple) and all(isinstance(name, str) and name for name in key):
        return "" if len({*key}) == len(key) else f"{option} names an argument twice: {key!r}."
    return (
        f"{option} must be the name of an argument, a tuple of names, or a callable that takes the "
        f"arguments. It is {key!r}."
    )


def check_key(key: Key, option: str, func: Callable[..., Any], *, takes_context: bool) -> None:
    """Raise InvalidTask if a key names an argument that the function of the task does not have."""
    if key is None or callable(key):
        return
    parameters = list(signature_of(func).parameters.values())[takes_context:]
    any_name = any(each.kind is each.VAR_KEYWORD for each in parameters)
    known = [each.name for each in parameters if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    for name in (key,) if isinstance(key, str) else key:
        if name not in known and not any_name:
            raise InvalidTask(
                f"{func.__module__}.{func.__qualname__}() has no argument {name!r}, which {option} names. "
                f"Its arguments are: {', '.join(known) or 'none'}. For one key of all calls, write "
                f"name={name!r}, key=()."
            )


def key_value(task: Any, what: str, key: Key, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
    """Return the value of a key that is not None or ``()``, for the arguments of a call: that of an argument,
    a JSON array of the values of several, or what a callable returns. Raise ``InvalidKey`` if it cannot be
    computed.
    """
    if callable(key):
        return _called_value(task, what, key, args, kwargs)
    if isinstance(key, str):
        return _values(task, (key,), args, kwargs)[0]
    values = [_plain(each) for each in _values(task, key or (), args, kwargs)]
    try:
        return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidKey(f"The {what} of {task.module_path} cannot be written as JSON: {error}.") from error


def as_text(value: object) -> str | None:
    """Return the value of a key as text; None if it is of another type."""
    if not isinstance(value, _VALUES) or isinstance(value, bool):
        return None
    # Of an enumeration, the value; its str() may be the name.
    return str.__str__(value) if isinstance(value, str) else str(value)


def can_be_stored(text: str) -> bool:
    """Return whether PostgreSQL can store a text: it takes no null characters and no surrogates."""
    return text.isprintable() or not any(each == "\0" or "\ud800" <= each <= "\udfff" for each in text)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, (Decimal, UUID, date)) else value


def _values(
    task: Any, names: tuple[str, ...], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[object]:
    if all(name in kwargs for name in names):
        return [kwargs[name] for name in names]
    bound = signature_of(task.func).bind(*([None] if task.takes_context else []), *args, **kwargs)
    bound.apply_defaults()
    return [kwargs[name] if name in kwargs else bound.arguments.get(name) for name in names]


def _called_value(
    task: Any, what: str, key: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> object:
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
# ``Concurrency``: how many jobs of a task, or of each of its keys, may run at once, and the key of one call.


@hints(LIMITED)
@dataclass(frozen=True, slots=True)
class Concurrency:
    """How many jobs may run at once: ``@task(concurrency=Concurrency(1, key="order_id"))``."""

    limit: int
    """How many jobs of the same key may run at once, at least 1."""
    key: Key = None
    """The name of the argument whose value is the key, or several; or a callable that takes the arguments of
    the call and returns it; None: all jobs of the task share one limit. A value of None means that the job
    is under no limit."""
    _: KW_ONLY
    on_full: OnFull = "wait"
    """What happens to a job that finds no room: it waits, it is cancelled, or older ones are."""
    name: str | None = None
    """The name of the limit; None: the path of the task. Tasks whose limits have the same name share their
    slots."""

    def __post_init__(self) -> None:
        if isinstance(self.limit, bool) or not isinstance(self.limit, int) or not 1 <= self.limit <= _MOST:
            hint = " To let no job start, pause the task instead." if self.limit == 0 else ""
            raise InvalidTask(
                f"The limit of concurrency must be a whole number of at least 1. It is {self.limit!r}.{hint}"
            )
        if problem := key_problem("Concurrency(key=...)", self.key):
            raise InvalidTask(problem)
        if self.on_full not in ("wait", "cancel_new", "cancel_old"):
            raise InvalidTask(
                f"on_full must be 'wait', 'cancel_new' or 'cancel_old'. It is {self.on_full!r}."
            )
        if self.name is not None and (problem := name_problem(self.name)):
            raise InvalidTask(f"The name of a limit {problem} It is {self.name!r}.")


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
    """Raise InvalidTask if a ``Concurrency`` or ``RateLimit`` does not fit the function of its task."""
    path = f"{func.__module__}.{func.__qualname__}"
    if value.name is None and (problem := name_problem(path)):
        raise InvalidTask(
            f"The path of the task is the name of its limit, which {problem} Set "
            f"{type(value).__name__}(name=...)."
        )
    check_key(value.key, f"{type(value).__name__}(key=...)", func, takes_context=takes_context)


def checked_limit_key(value: Any) -> str | None:
    """Accept None, or the value of a key as a string that can be stored."""
    if value is not None and (not isinstance(value, str) or len(value) > KEY_LENGTH):
        raise InvalidTask(
            f"limit_key must be a string of at most {KEY_LENGTH} characters. It is {value!r:.100}."
        )
    return value


def check_limit_key(task: Any, value: str) -> None:
    """Raise InvalidTask if the value of a key begins with the name of the limit, as the key of a job does."""
    name = limit_name(task)
    if value.startswith(f"{name}/"):
        raise InvalidTask(
            f"limit_key is the value of the key, without the name of the limit: write "
            f"{value.removeprefix(f'{name}/')!r} in place of {value!r}."
        )


def limit_name(task: Any) -> str:
    """Return the name of the limit under which the keys of a task are."""
    rule = task.concurrency or task.rate_limit
    return str(task.module_path if rule is None or rule.name is None else rule.name)


def limit_numbers(task: Any) -> tuple[Any, ...]:
    """Return what a task declares about its limit: how many may run, ``on_full``, and the rate."""
    rule, rate = task.concurrency, task.rate_limit
    number, on_full = (None, "wait") if rule is None else (rule.limit, rule.on_full)
    return number, on_full, *((None,) * 3 if rate is None else (rate.limit, rate.per, rate.burst))


def limit_key(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return the key of a call; None if it is under no limit. Raise ``InvalidKey`` if it cannot be
    computed."""
    name = limit_name(task)
    if task.limit_key is not None:
        return _joined(task, name, task.limit_key)
    rule = task.concurrency or task.rate_limit  # with both, they have the same key
    if rule is None:
        return None
    if rule.key is None or rule.key == ():
        return name
    value = key_value(task, "limit key", rule.key, args, kwargs)
    return None if value is None else _joined(task, name, value)


def _joined(task: Any, name: str, value: object) -> str:
    text = as_text(value)
    if text is None:
        raise InvalidKey(
            f"The limit key of {task.module_path} must be a string, a number, a date or a UUID, "
            f"not {value!r:.200}. Use a callable that returns one: key=lambda ..."
        )
    key = f"{name}/{text}"
    if len(key) > KEY_LENGTH:
        raise InvalidKey(
            f"The limit key of {task.module_path} has {len(key)} characters with the name of its "
            f"limit, but the limit is {KEY_LENGTH}: {key[:60]}... Use a hash, or a shorter name=."
        )
    if not can_be_stored(text):
        raise InvalidKey(
            f"The limit key of {task.module_path} has a character that cannot be stored: {text!r}."
        )
    return key


# ----------------------------------------------------------------------------
# ``RateLimit``: how many jobs of a task, or of each of its keys, may start in a period.
#
# It is the limit that a ``Concurrency`` is, with another number: the key of a job is computed in the same
# way, and the claim decides which jobs may start.


@hints(RATE)
@dataclass(frozen=True, slots=True)
class RateLimit:
    """How many jobs may start in a period: ``@task(rate_limit=RateLimit(100, per=60))``."""

    limit: int
    """How many jobs of the same key may start in a period, at least 1."""
    _: KW_ONLY
    per: timedelta
    """The period, as a timedelta or in seconds."""
    burst: int = 1
    """How many may start at once after a quiet time. 1: they start at equal intervals."""
    key: Key = None
    """As for `Concurrency`; None: all jobs of the task share the rate."""
    name: str | None = None
    """The name of the limit; None: the path of the task. Tasks whose limits have the same name share the
    rate."""

    if TYPE_CHECKING:

        def __init__(
            self,
            limit: int,
            *,
            per: timedelta | float,
            burst: int = 1,
            key: Key = None,
            name: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "per", length("per", self.per))
        problem = rate_problem(self.limit, self.per, self.burst) or key_problem(
            "RateLimit(key=...)", self.key
        )
        if problem:
            raise InvalidTask(problem)
        if self.name is not None and (problem := name_problem(self.name)):
            raise InvalidTask(f"The name of a limit {problem} It is {self.name!r}.")


def rate_problem(limit: Any, per: timedelta, burst: Any) -> str:
    """Return what is wrong with a rate, as whole sentences; "" if nothing is."""
    if not _is_whole(limit):
        hint = " To let no job start, pause the queue or the task." if limit == 0 else ""
        hint = f" Write {rate_hint(limit)}." if isinstance(limit, str) else hint
        return f"The limit of a rate must be a whole number of at least 1. It is {limit!r}.{hint}"
    if not _is_whole(burst):
        return f"The burst of a rate must be a whole number of at least 1. It is {burst!r}."
    if burst * per.total_seconds() / limit > CENTURY.total_seconds():
        return f"The burst of a rate must be allowed again within 100 years. Lower it: burst={burst!r}."
    return ""


def checked_rate_limit(
    value: Any, concurrency: Concurrency | int | None, func: Callable[..., Any], *, takes_context: bool
) -> RateLimit | None:
    """Return the ``rate`` of a task, which fits its ``concurrency``, itself checked. Raise InvalidTask."""
    if value is None:
        return None
    if not isinstance(value, RateLimit):
        raise InvalidTask(f"rate_limit must be a RateLimit(...): write {rate_hint(value)}. It is {value!r}.")
    checked_rule(value, func, takes_context=takes_context)
    if concurrency is None:
        return value
    if isinstance(concurrency, int):
        concurrency = Concurrency(concurrency)
    if (value.key, value.name) != (concurrency.key, concurrency.name):
        raise InvalidTask(
            "A job has one key, so concurrency and rate_limit of a task must have the same key and name. "
            f"The key of concurrency is {concurrency.key!r} (name {concurrency.name!r}), that of rate_limit "
            f"{value.key!r} (name {value.name!r}). Limit one of them by the queue instead: set_limit()."
        )
    if concurrency.on_full != "wait":
        raise InvalidTask(
            "Jobs always wait for a rate, so concurrency must have on_full='wait' beside it. It is "
            f"{concurrency.on_full!r}."
        )
    return value


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST


# ----------------------------------------------------------------------------
# ``group``: whose job it is. Workers go through the groups of a queue in turn.
#
# The group of a job (``Job.group_key``) is the value of its key: the claim takes the groups in turn.

GROUP_LENGTH = 200


def checked_group(value: Any, func: Callable[..., Any], *, takes_context: bool) -> Key:
    """Return the ``group`` of a task. Raise InvalidTask if it does not fit its function."""
    if problem := key_problem("group", value):
        raise InvalidTask(problem)
    if value == ():
        raise InvalidTask("group=() would put all jobs into one group. Leave it out for no group.")
    check_key(value, "group", func, takes_context=takes_context)
    result: Key = value
    return result


def checked_group_key(value: Any) -> str | None:
    """Accept None, or the group of a call as a string that can be stored."""
    if value is not None and (problem := _problem(value)):
        raise InvalidTask(f"group_key {problem}")
    return None if value is None else str(value)


def group_key(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return the group of a call; None if it has none. Raise ``InvalidKey`` if it cannot be computed."""
    if task.group_key is not None:
        return str(task.group_key)
    if task.group is None:
        return None
    value = key_value(task, "group", task.group, args, kwargs)
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
