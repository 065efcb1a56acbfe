"""The settings: one dict, ``PGQUEUE = {...}``, which is merged with the defaults into a frozen object.

`current()` returns the object, and `problems()` lists what is wrong with the dict, for the system check.
Durations are given as seconds or as a timedelta.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from difflib import get_close_matches
from functools import cache
from inspect import iscoroutinefunction, signature
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, NamedTuple, TypeVar

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from .formatting import did_you_mean
from .redaction_rules import DEFAULT_RULES, Rules, is_path, rules

T = TypeVar("T")

HUNDRED_YEARS = 36525 * 86400.0

#: What CONTEXT may name besides the paths of context variables.
BUILT_IN = ("language", "trace", "user")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def _near(word: Any, known: Iterable[str], what: str) -> str:
    near = get_close_matches(str(word), known := list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else f"the {what} are {', '.join(known)}"


def context_names(value: Any) -> tuple[str, ...]:
    """Accept names of what travels with jobs: some of `BUILT_IN`, and paths of context variables."""
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
        raise ValueError('a list, such as ["language", "trace", "shop.tenants.current_tenant"]')
    names = tuple(dict.fromkeys(value))
    for name in names:
        if name not in BUILT_IN and not is_path(name):
            hint = _near(name, BUILT_IN, "names")
            raise ValueError(f"names and paths of context variables, not {name!r}; {hint}")
    return names


def log_level(value: Any) -> int:
    """Accept the name of a level, True for INFO, or False for none; return its number, or 0 for none."""
    if isinstance(value, bool):
        return logging.INFO if value else 0
    if value not in _LEVELS:
        hint = _near(str(value).upper(), _LEVELS, "levels")
        raise ValueError(f"True, False, or the name of a level; {hint}")
    return int(getattr(logging, value))


def by_name(
    read: Callable[[Any], T], what: str, example: str, single: bool = False
) -> Callable[[Any], dict[str, T]]:
    """Accept a dict of names and values; or, if that is allowed, a single value for all of them."""

    def read_each(value: Any) -> dict[str, T]:
        if single and not isinstance(value, Mapping):
            value = {"*": value}
        if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
            raise ValueError(f"a dict of {what}, such as {example}")
        try:
            return {name: read(each) for name, each in value.items()}
        except ValueError as bad:
            first = "one value for all, or " if single else ""
            raise ValueError(f"{first}a dict of {what}; each value is {bad}") from None

    return read_each


def fit(is_fit: Callable[[Any], object], what: str) -> Callable[[Any], Any]:
    """Accept a value that passes a test, as it is."""

    def read(value: Any) -> Any:
        if not is_fit(value):
            raise ValueError(what)
        return value

    return read


def whole(low: int, high: int, what: str = "a whole number") -> Callable[[Any], int]:
    """Accept a whole number from `low` to `high`."""
    return fit(
        lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high,
        f"{what} from {low} to {high}",
    )


def whole_seconds(value: Any) -> int:
    """Accept whole seconds, as a number or a timedelta; return a number."""
    if isinstance(value, timedelta) and not value.microseconds:
        value = int(value.total_seconds())
    return whole(1, 2**31 - 1, "whole seconds or a timedelta,")(value)


def seconds(low: float, high: float = HUNDRED_YEARS) -> Callable[[Any], float]:
    """Accept a number of seconds or a timedelta; return seconds."""

    def read(value: Any) -> float:
        count = value.total_seconds() if isinstance(value, timedelta) else value
        number = isinstance(count, (int, float)) and not isinstance(count, bool)
        if not number or not math.isfinite(count) or not low <= count <= high:
            most = "100 years" if high == HUNDRED_YEARS else f"{high:g}"
            raise ValueError(f"seconds or a timedelta, from {low:g} to {most}")
        return float(count)

    return read


def period(value: Any) -> timedelta:
    """Accept seconds or a timedelta, at least one second; return a timedelta."""
    return timedelta(seconds=seconds(1)(value))


def or_none(read: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """Accept None, or what `read` accepts."""

    def read_or_none(value: Any) -> T | None:
        try:
            return None if value is None else read(value)
        except ValueError as bad:
            raise ValueError(f"None or {bad}") from None

    return read_or_none


def weight(value: Any) -> int:
    """Accept the weight of a queue or a group."""
    try:
        return whole(1, 1000)(value)
    except ValueError as bad:
        hint = "; to let no job start, pause the queue" if value == 0 else ""
        raise ValueError(f"{bad}{hint}") from None


def paths(example: str) -> Callable[[Any], tuple[str, ...]]:
    """Accept the path of a callable, or a list of paths."""

    def read(value: Any) -> tuple[str, ...]:
        given = (value,) if isinstance(value, str) else value
        if not isinstance(given, (list, tuple)) or not all(map(is_path, given)):
            raise ValueError(f'the path of a callable, or a list of them, such as ["{example}"]')
        return tuple(given)

    return read


def networks(value: Any) -> tuple[IPv4Network | IPv6Network, ...]:
    """Accept addresses and networks."""
    example = 'a list of addresses and networks, such as ["127.0.0.1", "10.0.0.0/8"]'
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise ValueError(example)
    try:
        return tuple(ip_network(each) for each in value)
    except ValueError as bad:
        raise ValueError(f"{example}; {bad}") from None


def aliases(value: Any) -> tuple[str, ...]:
    """Accept aliases of DATABASES. Whether they exist is checked where they are used."""
    names: Iterable[Any] = value if isinstance(value, (list, tuple)) else [None]
    if not all(isinstance(name, str) and name for name in names) or len({*names}) < len(value):
        raise ValueError('a list of different aliases of DATABASES, such as ["default", "s1"]')
    return tuple(names)


def modules(value: Any) -> tuple[str, ...]:
    """Accept names of modules in the apps."""
    names = [str(name) for name in value] if isinstance(value, (list, tuple)) else []
    if not names or not all(part.isidentifier() for part in ".".join(names).split(".")):
        raise ValueError('names of modules in the apps, such as ["tasks", "jobs"]')
    return tuple(value)


path = fit(is_path, 'the path of a callable, such as "shop.setup.django"')
alias = fit(lambda value: isinstance(value, str) and value, "an alias of DATABASES")
version = fit(
    lambda value: isinstance(value, str) and len(value) <= 50 and value.isprintable(),
    "a short text, at most 50 characters in one line, such as a release or a commit",
)
token = fit(
    lambda value: isinstance(value, str) and len(value) >= 16 and value.isascii(),
    "a secret of at least 16 ASCII characters",
)
queue_name = fit(
    lambda value: isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", value),
    "1 to 100 letters, digits, '_', '-' or '.'",
)
# The other options are read when tasks can be imported.
schedule = fit(
    lambda value: isinstance(value, Mapping) and isinstance(value.get("task"), str),
    "a dict with the path of a task",
)


def setting(default: T, read: Callable[[Any], Any]) -> T:
    """Declare a setting in a dataclass: its default, and what reads a value from PGQUEUE."""
    if isinstance(default, dict):
        return field(default_factory=dict, hash=False, metadata={"read": read})  # type: ignore[return-value]
    return field(default=default, metadata={"read": read})


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a queue is not healthy."""

    age: float | None = setting(300.0, or_none(seconds(0)))
    """The seconds that the oldest ready job may wait; None: any."""
    depth: int | None = setting(None, or_none(whole(0, 1_000_000)))
    """How many jobs may be ready; None: any."""
    workers: int = setting(1, whole(0, 10_000))
    """How many workers must claim its jobs."""


_OF_THRESHOLDS = {each.name: each.metadata["read"] for each in fields(Thresholds)}


def _threshold_values(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ValueError(f"a dict of thresholds, not {given!r}")
    values = {}
    for name, value in given.items():
        if name not in _OF_THRESHOLDS:
            raise ValueError(f"without {name!r}; {_near(name, _OF_THRESHOLDS, 'thresholds')}")
        try:
            values[name] = _OF_THRESHOLDS[name](value)
        except ValueError as bad:
            raise ValueError(f"as {name!r} {bad}") from None
    return values


def thresholds(value: Any) -> dict[str, Thresholds]:
    """Accept a dict of queues and their thresholds. What a queue does not set is that of ``"*"``."""
    example = '{"*": {"age": 300}, "mail": {"age": 60, "workers": 2}}'
    read = by_name(_threshold_values, "queues and their thresholds", example)(value)
    others = Thresholds(**read.get("*", {}))
    return {name: replace(others, **values) for name, values in read.items()}


class Hook(NamedTuple):
    """A callable of the project, and the path by which errors name it."""

    path: str
    call: Callable[..., Any]


def before_enqueue() -> tuple[Hook, ...]:
    """Return the hooks of BEFORE_ENQUEUE. Raise ImproperlyConfigured if one of them is no such callable."""
    return _hooks("BEFORE_ENQUEUE", current().before_enqueue, "the call")


def around_attempt() -> tuple[Hook, ...]:
    """Return the hooks of AROUND_ATTEMPT. Raise ImproperlyConfigured if one of them is no such callable."""
    return _hooks("AROUND_ATTEMPT", current().around_attempt, "the job")


@cache
def _hooks(name: str, paths: tuple[str, ...], argument: str) -> tuple[Hook, ...]:
    return tuple(Hook(path, callable_at(name, path, argument)) for path in paths)


def object_at(setting: str, path: str) -> Any:
    """Return what a setting names. Raise ImproperlyConfigured if it cannot be imported."""
    try:
        return import_string(path)
    except Exception as error:  # its module may raise anything
        names = f"{NAME}['{setting}'] names {path!r}, which"
        raise ImproperlyConfigured(f"{names} cannot be imported: {error}") from error


def callable_at(setting: str, path: str, *arguments: str) -> Callable[..., Any]:
    """Return what a setting names. Raise ImproperlyConfigured if it cannot be called with these arguments."""
    names = f"{NAME}['{setting}'] names {path!r}, which"
    found = object_at(setting, path)
    if not callable(found):
        kind = type(found).__qualname__
        raise ImproperlyConfigured(f"{names} is of type {kind} and cannot be called.")
    if iscoroutinefunction(found):
        raise ImproperlyConfigured(f"{names} is async. Write a plain function.")
    try:
        signature(found).bind(*arguments)
    except TypeError as error:
        expected = f"with {' and '.join(arguments)}" if arguments else "without arguments"
        raise ImproperlyConfigured(f"{names} cannot be called {expected}: {error}.") from error
    except ValueError:  # a callable without a known signature
        pass
    given: Callable[..., Any] = found
    return given


def check_installed() -> None:
    """Raise ImproperlyConfigured if the app is missing in INSTALLED_APPS, as soon as the registry knows."""
    if apps.apps_ready and not apps.is_installed(__package__):
        raise ImproperlyConfigured(
            'django_pgqueue is not installed: add "django_pgqueue" to INSTALLED_APPS, and run: manage.py '
            "migrate"
        )


NAME = "PGQUEUE"
#: Seconds between two looks of an idle worker that receives no notifications, if the setting is None.
POLL_INTERVAL = 1.0
#: The setting that must not be shown.
SECRET = "MONITORING_TOKEN"  # noqa: S105 - its name
_MAX_JSONB = 2**28 - 1  # the most that PostgreSQL can store in one jsonb string


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings in use. Durations are float seconds, except for the two retentions (timedeltas)."""

    max_attempts: int = setting(5, whole(1, 2**31 - 1))
    """The number of attempts if the task sets none (1 for tasks made with Django's own decorator)."""
    backoff_base: float = setting(15.0, seconds(0))
    """The wait before the first retry; it doubles with each further retry."""
    backoff_ceiling: float = setting(3600.0, seconds(0))
    """The longest wait before a retry."""
    timeout: int | None = setting(None, or_none(whole_seconds))
    """How many whole seconds an attempt may run if the task sets no timeout."""
    timeout_grace: float = setting(10.0, seconds(0, 86400))
    """How long a task may continue after its `TaskTimeout` before its process is replaced."""
    max_json_bytes: int = setting(2**20, whole(2, _MAX_JSONB))
    """The maximum size of arguments, or of a result, as JSON."""
    max_error_bytes: int = setting(16 * 2**10, whole(256, _MAX_JSONB))
    """The maximum size of one stored error, including its traceback."""
    keep_errors: int = setting(20, whole(1, 1000))
    """How many of a job's first errors, and how many of its last errors, are kept."""
    retention: timedelta = setting(timedelta(days=7), period)
    """How long done and cancelled jobs are kept."""
    failed_retention: timedelta = setting(timedelta(days=30), period)
    """How long failed jobs are kept."""
    statistics_retention: timedelta = setting(timedelta(days=90), period)
    """How long the statistics by hour are kept."""
    reindex: bool = setting(False, fit(lambda value: isinstance(value, bool), "True or False"))
    """Whether workers rebuild indexes that are mostly empty."""
    heartbeat: float = setting(1.0, seconds(0.1, 3600))
    """The time between two heartbeats of a worker."""
    lease: float = setting(30.0, seconds(0.5, 86400))
    """The age of the last heartbeat at which a worker counts as dead if nothing else shows that it is."""
    poll_interval: float | None = setting(None, or_none(seconds(0.05, 60)))
    """The time between two looks of an idle worker. None: `POLL_INTERVAL`, longer if it is notified."""
    grace: float = setting(30.0, seconds(0, 86400))
    """How long running jobs may take to finish after a worker was asked to stop."""
    idle_connection_timeout: float | None = setting(60.0, or_none(seconds(1, 86400)))
    """How long a worker keeps an unused connection of Django open; None: `CONN_MAX_AGE` applies."""
    crash_limit: int = setting(3, whole(1, 1000))
    """How many times a job may crash its worker before it fails."""
    unknown_task_timeout: float = setting(3600.0, seconds(0))
    """How long a job waits for a worker that knows its task before it fails."""
    group_weights: Mapping[str, int] = setting({}, by_name(weight, "groups and their weights", '{"acme": 5}'))
    """How many jobs of a group start in its turn; of others, one."""
    aging: float | None = setting(None, or_none(seconds(1)))
    """The seconds of waiting that count as one level of priority; None: a job keeps its priority."""
    task_modules: tuple[str, ...] = setting(("tasks",), modules)
    """The names of the modules of each app that declare tasks."""
    shards: tuple[str, ...] = setting((), aliases)
    """The databases that share the jobs, by their aliases; empty: only the ones that tasks and TASKS name."""
    replicas: Mapping[str, str] = setting({}, by_name(alias, "aliases", '{"default": "replica"}'))
    """The alias of the replica that pages of the admin read from if they only read, by the alias of its
    primary."""
    setup: str | None = setting(None, or_none(path))
    """The path of what sets up Django in worker processes; None: what `worker.spawn` finds."""
    before_enqueue: tuple[str, ...] = setting((), paths("shop.hooks.note_tenant"))
    """The paths of callables that see, and may replace, each call before it is checked and enqueued."""
    around_attempt: tuple[str, ...] = setting((), paths("shop.hooks.tenant_of_job"))
    """The paths of callables whose context managers surround each attempt; the first is the outermost."""
    schedules: Mapping[str, Mapping[str, Any]] = setting(
        {},
        by_name(
            schedule, "names and schedules", '{"night": {"task": "shop.tasks.report", "cron": "0 3 * * *"}}'
        ),
    )
    """Schedules by name; `schedules.declare` reads their options."""

    bulk_queue: str | None = setting(None, or_none(queue_name))
    """The queue of the jobs that run an action of the admin on many jobs; None: "default"."""

    context: tuple[str, ...] = setting(("language", "trace"), context_names)
    """What travels with a job: "language", "trace", "user", and paths of context variables."""
    capture_logs: Mapping[str, int] = setting(
        {}, by_name(log_level, "queues and levels", '{"reports": "INFO"}', single=True)
    )
    """The queues whose jobs keep what they log, with the lowest level; "*" is for all others."""
    log_lines: int = setting(200, whole(2, 100_000))
    """How many lines of an attempt are kept: the first and the last ones."""
    log_bytes: int = setting(32 * 2**10, whole(256, 2**24))
    """The maximum size of the lines that are kept of an attempt."""
    redact: Rules = setting(DEFAULT_RULES, rules)
    """What is redacted of arguments, results and texts wherever they are shown."""

    version: str = setting("", version)
    """The version of the project that runs, which is noted with each failure."""
    alerts: tuple[str, ...] = setting((), paths("shop.alerts.mail"))
    """The paths of callables that receive alerts."""
    alerts_interval: float = setting(30.0, seconds(1, 86400))
    """The time between two checks for new problems."""
    alerts_clear_after: float = setting(300.0, seconds(0, 86400))
    """How long a problem must be gone until its end is reported."""
    health: Mapping[str, Thresholds] = setting({}, thresholds)
    """When queues are not healthy, by name; "*" is for all others."""
    monitoring_token: str | None = setting(None, or_none(token))
    """The secret with which a monitoring system may read the views of metrics and health."""
    monitoring_networks: tuple[IPv4Network | IPv6Network, ...] = setting((), networks)
    """The addresses that may read them without it."""

    @property
    def shortest_poll(self) -> float:
        """The seconds between two looks of a worker that does not rely on notifications."""
        return self.poll_interval or POLL_INTERVAL


_READERS = {each.name.upper(): each.metadata["read"] for each in fields(Settings)}


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in the PGQUEUE dict; `key` is "" if the problem is the dict itself."""

    key: str
    message: str
    hint: str
    is_value: bool = True
    """True for a bad value, False for a key that does not exist."""


@cache
def current() -> Settings:
    """Return the settings, until PGQUEUE is overridden. Raise ImproperlyConfigured with all its problems."""
    values, wrong = _read(getattr(settings, NAME, {}))
    if wrong:
        raise ImproperlyConfigured("\n".join(f"{problem.message} {problem.hint}" for problem in wrong))
    return Settings(**values)


def problems() -> list[Problem]:
    """List all problems of PGQUEUE: unknown keys, bad values, values that contradict each other."""
    return _read(getattr(settings, NAME, {}))[1]


def _forget(*, setting: str, **_: Any) -> None:
    if setting == NAME:
        current.cache_clear()
        _hooks.cache_clear()


setting_changed.connect(_forget, dispatch_uid=__name__)


def _read(given: Any) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values of `given` by attribute name, and its problems."""
    if not isinstance(given, Mapping):
        return {}, [Problem("", f"{NAME} must be a dict, not {given!r}.", f"Write {NAME} = {{...}}.")]
    values: dict[str, Any] = {}
    wrong: list[Problem] = []
    for key, value in given.items():
        if key not in _READERS:
            hint = did_you_mean(str(key).upper(), _READERS, f"The settings are {', '.join(_READERS)}.")
            wrong.append(Problem(str(key), f"{NAME} has no setting {key!r}.", hint, False))
            continue
        try:
            values[key.lower()] = _READERS[key](value)
        except ValueError as bad:
            shown = "not usable" if key == SECRET else repr(value)
            message = f"{NAME}[{key!r}] is {shown}."
            wrong.append(Problem(key, message, f"It takes {bad}; the default is {_default(key)}."))
    return values, wrong or _contradictions(Settings(**values))


def _contradictions(read: Settings) -> list[Problem]:
    wrong = []
    if read.backoff_ceiling < read.backoff_base:
        message = f"({read.backoff_ceiling:g} s) is less than BACKOFF_BASE ({read.backoff_base:g} s)."
        hint = "The ceiling is the longest wait before a retry, and the base is the shortest."
        wrong.append(Problem("BACKOFF_CEILING", f"{NAME}['BACKOFF_CEILING'] {message}", hint))
    if read.lease < 3 * read.heartbeat:
        message = f"({read.lease:g} s) is less than three times HEARTBEAT ({read.heartbeat:g} s)."
        hint = "A worker whose heartbeat is only late would lose its jobs while it runs them."
        wrong.append(Problem("LEASE", f"{NAME}['LEASE'] {message}", hint))
    return wrong


def _default(key: str) -> str:
    value = getattr(Settings(), key.lower())
    return f"{value.days} days" if isinstance(value, timedelta) else repr(value)
