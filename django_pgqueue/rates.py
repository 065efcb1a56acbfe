"""``Rate``: how many jobs of a task, or of each of its keys, may start in a period.

It is the limit that a ``Concurrency`` is, with another number: the key of a job is computed in the same way,
and the claim decides which jobs may start. Nothing here reads settings or the database.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any

from .compat import InvalidTask
from .concurrency import Concurrency, checked_rule, key_problem, name_problem
from .validation import CENTURY

__all__ = ["Rate", "checked_rate", "rate_problem"]

_MOST = 2**31 - 1


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
