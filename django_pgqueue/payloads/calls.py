"""The payload of one call: found among the arguments, and checked before anything reaches the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import router
from django.db.models.expressions import DatabaseDefault

from ..compat import InvalidTask
from .columns import key_values

__all__ = ["key_arguments", "payload_argument", "payload_of_call"]


def payload_of_call(task: Any, alias: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the payload of a call whose arguments fit the signature. Raise TypeError or ValueError unless it
    is a new row of the task's model, and InvalidTask if the model has no table in the job's database.
    """
    payload = payload_argument(task, args, kwargs)
    model, path = task.payload, task.module_path
    if not payload._state.adding:
        raise ValueError(
            f"This {model._meta.label} is saved already, so it has a job: {payload.pk}. Make a new instance. "
            "To run a job that is over again, use retry()."
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


def key_arguments(task: Any, payload: Any) -> dict[str, object]:
    """Return what keys are computed from, in place of the arguments of a call."""
    return key_values(payload, task.payload)
