"""The keys of a task: ``Concurrency`` and ``RateLimit``, under whose keys jobs wait, and groups.

The limit key of a job (``Job.limit_key``) is the name of a limit, or ``<name>/<value>``. Jobs with the same
key share the slots of the limit. The group of a job (``Job.group_key``) is whose job it is. Nothing here
reads settings or the database: the claim decides which jobs may start, and takes the groups in turn.

A key is declared in one way everywhere, also in ``Unique``: by the names of arguments, or by a callable.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID

from .. import conf
from ..compat import InvalidTask
from ..exceptions import InvalidKey
from ..formatting import storable
from .misuse import hints, rate_hint
from .options import CENTURY, is_whole, length, one_of, wrong
from .signatures import argument_names, bind_call, parameters_of_call

Key: TypeAlias = str | tuple[str, ...] | Callable[..., object] | None
"""The name of an argument; several names; ``()``, which is the same for all calls; or a callable that takes
the arguments of the call. What None means depends on the option."""

OnFull = Literal["wait", "cancel_new", "cancel_old"]

KEY_LENGTH = 200
_VALUES = (str, int, float, Decimal, UUID, date)


def check_form(option: str, key: Any) -> None:
    """Raise InvalidTask for what cannot be a key."""
    if key is None or callable(key) or (isinstance(key, str) and key):
        return
    if not isinstance(key, tuple) or not all(isinstance(name, str) and name for name in key):
        what = "the name of an argument, a tuple of names, or a callable that takes the arguments"
        raise wrong(option, what, key)
    if len({*key}) < len(key):
        raise InvalidTask(f"{option} names an argument twice: {key!r}.")


def check_key(key: Key, option: str, path: str, known: Collection[str] | None) -> None:
    """Raise InvalidTask if a key names an argument that is not ``known`` at the path; None: all are."""
    if key is None or callable(key) or known is None:
        return
    for name in (key,) if isinstance(key, str) else key:
        if name not in known:
            raise InvalidTask(
                f"{path}() has no argument {name!r}, which {option} names. Its arguments are: "
                f"{', '.join(known) or 'none'}. For one key of all calls, write name={name!r}, key=()."
            )


MOST_SEARCH = 8  # indexed arguments of a task; each makes an enqueue and a finish slower


def checked_search(task: Any) -> tuple[str, ...]:
    """Return the names of the arguments that a task indexes. Raise InvalidTask."""
    names = task.search
    is_names = isinstance(names, (list, tuple)) and all(isinstance(name, str) and name for name in names)
    if not is_names or len(names) > MOST_SEARCH or len({*names}) < len(names):
        raise wrong("search", f"a list of at most {MOST_SEARCH} names of arguments, each once", names)
    if names and task.payload is not None:
        raise InvalidTask("search is for arguments. With a payload, add an index to a field of its model.")
    known = argument_names(task) if names else None
    for name in names:
        if known is not None and name not in known:
            raise InvalidTask(
                f"{task.module_path}() has no argument {name!r}, which search names. Its arguments are: "
                f"{', '.join(known) or 'none'}."
            )
    return tuple(names)


def searched_places(task: Any) -> dict[str, int | None] | None:
    """Return the indexed arguments of a task, and the place of each if it may be positional; None: there are
    none. What REDACT hides is not among them, and nothing is if it has patterns or a callable.
    """
    redact = conf.current().redact
    if not task.search or not redact.are_names:
        return None
    by_place = [
        each.name for each in parameters_of_call(task.func, takes_context=task.takes_context).values()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]  # fmt: skip
    names = [name for name in task.search if not redact.hide(name)]
    return {name: by_place.index(name) if name in by_place else None for name in names} or None


def key_value(task: Any, what: str, key: Key, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
    """Return the value of a key that is not None or ``()``, for the arguments of a call: that of an argument,
    a JSON array of the values of several, or what a callable returns. Raise ``InvalidKey`` if it cannot be
    computed.
    """
    if callable(key):
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
    names = (key,) if isinstance(key, str) else key or ()
    # All arguments of a payload are in kwargs.
    bound = {} if kwargs.keys() >= {*names} else bind_call(task, args, kwargs)
    values = [kwargs[name] if name in kwargs else bound.get(name) for name in names]
    if isinstance(key, str):
        return values[0]
    plain = [str(value) if isinstance(value, (Decimal, UUID, date)) else value for value in values]
    try:
        return json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidKey(f"The {what} of {task.module_path} cannot be written as JSON: {error}.") from error


def as_text(value: object) -> str | None:
    """Return the value of a key as text; None if it is of another type."""
    if not isinstance(value, _VALUES) or isinstance(value, bool):
        return None
    # Of an enumeration, the value; its str() may be the name.
    return str.__str__(value) if isinstance(value, str) else str(value)


def text_problem(text: Any) -> str:
    """Return what is wrong with the text of a key, as the end of a sentence; "" if nothing is."""
    if not isinstance(text, str) or not text:
        return f"must be a string that is not empty. It is {text!r:.100}."
    if len(text) > KEY_LENGTH:
        return f"has {len(text)} characters, but the limit is {KEY_LENGTH}: {text[:60]}... Use a hash."
    if storable(text) != text:
        return f"has a character that cannot be stored: {text!r}."
    return ""


def checked_text(name: str, value: Any) -> str:
    """Accept a key that is given as a string. Raise InvalidTask."""
    if problem := text_problem(value):
        raise InvalidTask(f"{name} {problem}")
    return str(value)


def key_text(task: Any, what: str, value: object, prefix: str = "") -> str:
    """Return a key of a call as it is stored. Raise ``InvalidKey`` if that is not possible."""
    text = as_text(value)
    if text is None:
        raise InvalidKey(
            f"The {what} of {task.module_path} must be a string, a number, a date or a UUID, not "
            f"{value!r:.200}. Use a callable that returns one."
        )
    if problem := text_problem(f"{prefix}{text}"):
        raise InvalidKey(f"The {what} of {task.module_path} {problem}")
    return f"{prefix}{text}"


@hints
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
        if not is_whole(self.limit):
            hint = " To let no job start, pause the task instead." if self.limit == 0 else ""
            raise InvalidTask(
                f"The limit of concurrency must be a whole number of at least 1. It is {self.limit!r}.{hint}"
            )
        _check_limit(self)
        one_of("on_full", self.on_full, "wait", "cancel_new", "cancel_old")


@hints
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
        if problem := rate_problem(self.limit, self.per, self.burst):
            raise InvalidTask(problem)
        _check_limit(self)


def _check_limit(rule: Concurrency | RateLimit) -> None:
    check_form(f"{type(rule).__name__}(key=...)", rule.key)
    if rule.name is not None and (problem := name_problem(rule.name)):
        raise InvalidTask(f"The name of a limit {problem} It is {rule.name!r}.")


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


def rate_problem(limit: Any, per: timedelta, burst: Any) -> str:
    """Return what is wrong with a rate, as whole sentences; "" if nothing is."""
    if not is_whole(limit):
        hint = " To let no job start, pause the queue or the task." if limit == 0 else ""
        hint = f" Write {rate_hint(limit)}." if isinstance(limit, str) else hint
        return f"The limit of a rate must be a whole number of at least 1. It is {limit!r}.{hint}"
    if not is_whole(burst):
        return f"The burst of a rate must be a whole number of at least 1. It is {burst!r}."
    if burst * per.total_seconds() / limit > CENTURY.total_seconds():
        return f"The burst of a rate must be allowed again within 100 years. Lower it: burst={burst!r}."
    return ""


def checked_limits(task: Any, known: Collection[str] | None) -> tuple[Concurrency | None, RateLimit | None]:
    """Return ``concurrency`` and ``rate_limit`` of a task; a number means that of all its jobs. Raise
    InvalidTask if they do not fit its function, whose arguments are ``known``, or each other.
    """
    concurrency, rate, path = task.concurrency, task.rate_limit, task.module_path
    if isinstance(concurrency, int):
        concurrency = Concurrency(concurrency)
    if not isinstance(concurrency, Concurrency | None):
        raise wrong("concurrency", "a whole number or a Concurrency(...)", concurrency)
    if not isinstance(rate, RateLimit | None):
        raise InvalidTask(f"rate_limit must be a RateLimit(...): write {rate_hint(rate)}. It is {rate!r}.")
    for rule in (concurrency, rate):
        if rule is not None:
            kind = type(rule).__name__
            if rule.name is None and (problem := name_problem(path)):
                raise InvalidTask(
                    f"The path of the task is the name of its limit, which {problem} Set {kind}(name=...)."
                )
            check_key(rule.key, f"{kind}(key=...)", path, known)
    if concurrency is None or rate is None:
        return concurrency, rate
    if (rate.key, rate.name) != (concurrency.key, concurrency.name):
        raise InvalidTask(
            "A job has one key, so concurrency and rate_limit of a task must have the same key and name. "
            f"The key of concurrency is {concurrency.key!r} (name {concurrency.name!r}), that of rate_limit "
            f"{rate.key!r} (name {rate.name!r}). Limit one of them by the queue instead: set_limit()."
        )
    if concurrency.on_full != "wait":
        raise InvalidTask(
            "Jobs always wait for a rate, so concurrency must have on_full='wait' beside it. It is "
            f"{concurrency.on_full!r}."
        )
    return concurrency, rate


def limit_name(task: Any) -> str:
    """Return the name of the limit under which the keys of a task are."""
    rule = task.concurrency or task.rate_limit
    return str(task.module_path if rule is None or rule.name is None else rule.name)


def limit_numbers(task: Any) -> tuple[Any, ...]:
    """Return what a task declares about its limit: how many may run, ``on_full``, and the rate."""
    rule, rate = task.concurrency, task.rate_limit
    number, on_full = (None, "wait") if rule is None else (rule.limit, rule.on_full)
    return number, on_full, *((None,) * 3 if rate is None else (rate.limit, rate.per, rate.burst))


def checked_limit_key(task: Any, value: Any) -> str:
    """Accept the value of a key of a call, a string that may be empty. Raise InvalidTask, also if it begins
    with the name of the limit, as the key of a job does.
    """
    name = limit_name(task)
    if value != "" and checked_text("limit_key", value).startswith(f"{name}/"):
        raise InvalidTask(
            f"limit_key is the value of the key, without the name of the limit: write "
            f"{value.removeprefix(f'{name}/')!r} in place of {value!r}."
        )
    return str(value)


def limit_key(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return the key of a call; None if it has no limit. Raise ``InvalidKey`` if it cannot be computed."""
    rule, value = task.concurrency or task.rate_limit, task.limit_key  # with both, they have the same key
    if value is None and rule is None:
        return None
    name = limit_name(task)
    if value is None:
        if rule.key is None or rule.key == ():
            return name
        value = key_value(task, "limit key", rule.key, args, kwargs)
    return None if value is None else key_text(task, "limit key", value, f"{name}/")


def group_key(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return the group of a call; None if it has none. Raise ``InvalidKey`` if it cannot be computed."""
    if task.group_key is not None:
        return str(task.group_key)
    value = None if task.group is None else key_value(task, "group", task.group, args, kwargs)
    return None if value is None else key_text(task, "group", value)
