"""What ``@task(payload=Receipt)`` accepts, and which task a payload model belongs to.

A row must be a complete call: who inserts it may be SQL, so the function takes the payload and nothing else,
and keys come from columns. A model belongs to one task, because the row does not say which.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from django.db import models, router
from django.db.models.expressions import DatabaseDefault

from ..compat import InvalidTask
from .signatures import parameters_of_call

tasks_of_models: WeakValueDictionary[type[Any], Any] = WeakValueDictionary()
"""The task whose payload a model is, as far as tasks were imported."""


def checked(task: Any) -> type[Any] | None:
    """Return the payload model of a task. Raise InvalidTask if it does not fit the task, or is none."""
    model = task.payload
    if model is None:
        return None
    path = task.module_path
    _check_model(path, model)
    parameters = parameters_of_call(task.func, takes_context=task.takes_context)
    kinds = [each.kind for each in parameters.values()]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(kinds) != 1 or kinds[0] not in positional:
        raise InvalidTask(
            f"{path}() takes {', '.join(parameters) or 'nothing'}, but a task with a payload takes the "
            "payload and nothing else. Make the other arguments fields of the model."
        )
    _check_keys(path, task)
    other = tasks_of_models.get(model)
    if other is not None and other.module_path != path:
        raise InvalidTask(
            f"{path}: {model._meta.label} is the payload of {other.module_path} already. A row does not say "
            "whose call it is, so each task needs a model of its own: put the common fields into an abstract "
            "subclass of JobPayload."
        )
    if other is None or other.func is not task.func:  # a copy of a task does not take its place
        tasks_of_models[model] = task
    return model  # type: ignore[no-any-return]


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


def _check_keys(path: str, task: Any) -> None:
    if task.unique is not None:
        raise InvalidTask(
            f"{path}: a row that is inserted is a job, so unique= cannot apply to it. Use a UniqueConstraint "
            "of the model, or unique= of a call: task.using(unique_key=...)."
        )
    keys = {name: getattr(getattr(task, name), "key", None) for name in ("concurrency", "rate_limit")}
    for option, key in {**keys, "group": task.group}.items():
        if callable(key) or (isinstance(key, tuple) and key):
            what = "a callable" if callable(key) else "several fields"
            raise InvalidTask(
                f"{path}: the key of {option} is {what}, but the database makes jobs of rows, too. Name one "
                "field of the payload, or give the key to the call: task.using(...)."
            )


# A plain INSERT makes a job, too, so the database must compute the same limit key or group as Python. It can
# do so for columns whose values have the same text in both, and for foreign keys to such columns.
_TYPES = (models.IntegerField, models.CharField, models.TextField, models.UUIDField)


def key_arguments(task: Any, payload: models.Model) -> dict[str, object]:
    """Return what keys are computed from: the fields that may be keys, by name, with their stored values."""
    fields = key_fields(task.payload)
    return {name: field.to_python(getattr(payload, field.attname)) for name, field in fields.items()}


def key_fields(model: type[models.Model]) -> dict[str, Any]:
    """Return the fields that may be keys, by name: a foreign key by that of its column."""
    fields = [field for field in model._meta.local_concrete_fields if not field.primary_key]
    return {field.attname: field for field in fields if isinstance(_target(field), _TYPES)}


def _target(field: Any) -> Any:
    """Return the field whose values a foreign key has; itself for any other field."""
    while field.remote_field is not None:
        # While apps load, the other model may be a name. Its key is a whole number, unless it says otherwise.
        if isinstance(field.remote_field.model, str):
            return models.BigIntegerField()
        field = field.target_field
    return field


def payload_of_call(task: Any, alias: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the payload of a call whose arguments fit the signature. Raise TypeError or ValueError unless it
    is a new row of the task's model, and InvalidTask if the model has no table in the job's database.
    """
    payload = payload_argument(task, args, kwargs)
    model, path = task.payload, task.module_path
    if not payload._state.adding:
        raise ValueError(
            f"This {model._meta.label} is saved already, so it has a job: {payload.pk}. Make a new instance. "
            "To run a finished job again, use retry()."
        )
    if not isinstance(payload.job_id, DatabaseDefault | None):
        raise ValueError(
            f"This {model._meta.label} has the key {payload.job_id!r} before it has a job. Leave out job and "
            "job_id: the enqueue sets them."
        )
    if not router.allow_migrate_model(alias, model):
        raise InvalidTask(
            f"The job of {path} would be in the database {alias!r}, but the database routers keep "
            f"{model._meta.label} out of it. A payload and its job must be in the same database."
        )
    return payload


def payload_argument(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the only argument of a call that fits the signature. Raise TypeError if its class is wrong."""
    (payload,) = [*args, *kwargs.values()]
    if not isinstance(payload, task.payload):
        what = "its class" if isinstance(payload, type) else repr(payload)
        label = task.payload._meta.label
        raise TypeError(f"{task.module_path}() takes an instance of {label}, not {what:.200}.")
    return payload
