"""What ``@task(payload=Receipt)`` accepts, and which task a payload model belongs to.

A row must be a complete call: who inserts it may be SQL. So the function takes the payload and nothing else,
and keys come from columns. A model belongs to one task, because the row does not say which.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from ..compat import InvalidTask
from ..signatures import parameters_of_call
from .columns import StandIn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["check_unique_of_call", "checked", "key_function", "task_of_model"]

_tasks: WeakValueDictionary[type[Any], Any] = WeakValueDictionary()


def checked(task: Any) -> type[Any] | None:
    """Return the payload model of a task. Raise InvalidTask if it does not fit the task, or is none."""
    model = task.payload
    if model is None:
        return None
    path = f"{task.func.__module__}.{task.func.__qualname__}"
    _check_model(path, model)
    _check_function(path, task)
    _check_keys(path, task)
    other = _tasks.get(model)
    if other is not None and other.module_path != path:
        raise InvalidTask(
            f"{path}: {model._meta.label} is the payload of {other.module_path} already. A row does not say "
            "whose call it is, so each task needs a model of its own: put the common fields into an abstract "
            "subclass of JobPayload."
        )
    if other is None or other.func is not task.func:  # a copy of a task does not take its place
        _tasks[model] = task
    return model  # type: ignore[no-any-return]


def key_function(task: Any) -> Callable[..., Any]:
    """Return what keys are checked against: the function of the task, or the columns of its payload."""
    func: Callable[..., Any] = task.func
    if task.payload is None:
        return func
    return StandIn(func, task.payload, takes_context=task.takes_context)


def task_of_model(model: type[Any]) -> Any:
    """Return the task whose payload a model is; None if none is declared, or it was not imported."""
    return _tasks.get(model)


def check_unique_of_call(task: Any, unique: Any) -> None:
    """Raise InvalidTask for a ``Unique`` of a call that names arguments: a payload is no JSON."""
    if task.payload is not None and unique.key is None and not callable(unique.by):
        raise InvalidTask(
            f"{task.module_path} takes a payload, so its calls have no arguments to compare. Use "
            "using(unique_key=...), Unique(by=callable), which is called with the payload, or a "
            "UniqueConstraint of its model."
        )


def _check_model(path: str, model: Any) -> None:
    if not isinstance(model, type) or not getattr(model, "is_job_payload", False):
        raise InvalidTask(f"{path}: payload must be a model that inherits from JobPayload. It is {model!r}.")
    meta: Any = model._meta  # type: ignore[attr-defined]
    if meta.abstract:
        raise InvalidTask(f"{path}: {model.__qualname__} is abstract, so it has no rows. Inherit from it.")
    if meta.proxy:
        base = meta.concrete_model.__qualname__
        raise InvalidTask(f"{path}: {model.__qualname__} is a proxy. Use payload={base}.")
    if meta.pk.name != "job":
        raise InvalidTask(
            f"{path}: the primary key of {meta.label} is {meta.pk.name!r}, not the field 'job' of "
            "JobPayload. Do not override it, and do not inherit from a payload that is not abstract: inherit "
            "from an abstract subclass of JobPayload."
        )


def _check_function(path: str, task: Any) -> None:
    parameters = parameters_of_call(task.func, takes_context=task.takes_context)
    if parameters is None:
        return
    kinds = [each.kind for each in parameters.values()]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(kinds) != 1 or kinds[0] not in positional:
        raise InvalidTask(
            f"{path}() takes {', '.join(parameters) or 'nothing'}, but a task with a payload takes the "
            "payload and nothing else. Make the other arguments fields of the model."
        )


def _check_keys(path: str, task: Any) -> None:
    if task.unique is not None:
        raise InvalidTask(
            f"{path}: a row that is inserted is a job, so unique= cannot apply to it. Use a UniqueConstraint "
            "of the model, or unique= of a call: task.using(unique_key=...)."
        )
    keys = {"concurrency": task.concurrency, "rate": task.rate}
    for option, key in {
        **{name: getattr(rule, "key", None) for name, rule in keys.items()},
        "group": task.group,
    }.items():
        if callable(key):
            raise InvalidTask(
                f"{path}: the key of {option} is a callable, but the database makes jobs of rows, too. Name "
                "a column of the payload, or give the key to the call: task.using(...)."
            )
