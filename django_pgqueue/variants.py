"""The values of a task: those of its declaration, and those that ``task.using(...)`` changes for one call.

Each value is validated and returned in the form in which the task stores it. In a call, None leaves an option
unchanged.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from . import concurrency as keys
from . import grouping, links, validation
from .payloads import declare as payloads
from .rates import checked_rate
from .unique import Unique, check_unique, with_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .compat import DjangoTask

__all__ = ["changed_values", "checked_values", "differences", "field_names", "set_values"]


@cache
def field_names(cls: type[Any]) -> tuple[str, ...]:
    """Return the names of the fields of a class of tasks."""
    return tuple(each.name for each in fields(cls))


def set_values(task: DjangoTask[..., Any], **values: Any) -> None:
    """Set fields of a task that is being made. Later it is immutable."""
    for name, value in values.items():
        object.__setattr__(task, name, value)


def checked_values(task: Any) -> dict[str, Any]:
    """Return the values of a task that is being declared. Raise InvalidTask for invalid ones."""
    takes_context = validation.flag("takes_context", task.takes_context)
    atomic = validation.flag("atomic", task.atomic)
    validation.check_function(task.func, takes_context=takes_context, atomic=atomic)
    run_after, delta = validation.run_after(task.run_after)
    payload, func = payloads.checked(task), payloads.key_function(task)
    return {
        "priority": validation.priority(task.priority),
        "queue_name": validation.queue_name(task.queue_name),
        "backend": validation.alias("backend", task.backend),
        "database": validation.alias("database", task.database),
        "run_after": run_after,
        "run_after_delta": validation.run_after(task.run_after_delta)[1] if delta is None else delta,
        "max_attempts": validation.whole("max_attempts", task.max_attempts),
        "timeout": validation.whole("timeout", task.timeout),
        "backoff": validation.backoff(task.backoff),
        "retry_on": validation.exception_types("retry_on", task.retry_on),
        "fail_on": validation.exception_types("fail_on", task.fail_on),
        "expires_after": validation.expires_after(task.expires_after),
        "on_lost": validation.on_lost(task.on_lost),
        "concurrency": keys.checked(task.concurrency, func, takes_context=takes_context),
        "concurrency_key": keys.checked_key(task.concurrency_key),
        "rate": checked_rate(task.rate, task.concurrency, func, takes_context=takes_context),
        "group": grouping.checked(task.group, func, takes_context=takes_context),
        "group_key": grouping.checked_key(task.group_key),
        "unique": check_unique(task.unique, task.func, takes_context=takes_context),
        "links": links.check_links(task.links),
        "capture_logs": validation.capture_logs(task.capture_logs),
        "metadata": validation.metadata(task.metadata),
        "payload": payload,
    }


def changed_values(task: DjangoTask[..., Any], *, unique_key: str | None, **given: Any) -> dict[str, Any]:
    """Return the new values of the fields of `task`. Raise InvalidTask for invalid ones."""
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if value is not None:
            changes.update(_CHANGES[name](task, value))
    # Not in the table: the key goes into the new `unique` of the call, or into that of the task.
    if unique_key is not None:
        changes["unique"] = with_key(changes.get("unique", getattr(task, "unique", None)), unique_key)
    changes = links.changed_links(task, changes)
    links.check_conflict(
        changes.get("links", getattr(task, "links", None)),
        changes.get("unique", getattr(task, "unique", None)),
    )
    return changes


def differences(one: DjangoTask[..., Any], other: DjangoTask[..., Any]) -> dict[str, Any]:
    """Return the values of `other` that `one` does not have."""
    names = (each.name for each in fields(other) if each.compare and each.name != "func")
    return {name: getattr(other, name) for name in names if getattr(other, name) != getattr(one, name)}


def _unique(task: Any, value: Any) -> Mapping[str, Any]:
    if isinstance(value, Unique) and getattr(task, "payload", None) is not None:
        payloads.check_unique_of_call(task, value)
    return {"unique": check_unique(value, task.func, takes_context=task.takes_context)}


def _run_after(task: Any, value: Any) -> Mapping[str, Any]:
    moment, delta = validation.run_after(value)
    return {"run_after": moment, "run_after_delta": delta}


_CHANGES: dict[str, Any] = {
    "priority": lambda task, value: {"priority": validation.priority(value)},
    "queue_name": lambda task, value: {"queue_name": validation.queue_name(value)},
    "run_after": _run_after,
    "backend": lambda task, value: {"backend": validation.alias("backend", value)},
    "metadata": lambda task, value: {"metadata": {**task.metadata, **validation.metadata(value)}},
    "concurrency_key": lambda task, value: {"concurrency_key": keys.checked_key(value)},
    "group": lambda task, value: {"group_key": grouping.checked_key(value)},
    "unique": _unique,
    "database": lambda task, value: {"database": validation.alias("database", value)},
    "after": lambda task, value: {"after": links.after(value)},
    "if_failed": lambda task, value: {"if_failed": links.if_failed(value)},
    "batch": lambda task, value: {"batch": links.batch(value)},
}
