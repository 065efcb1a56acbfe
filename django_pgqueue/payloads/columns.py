"""The columns of a payload that may be a concurrency key or a group.

A plain INSERT makes a job, too, so the database must compute the same key as Python. It can do so for columns
whose values have the same text in both: whole numbers, strings and UUIDs, and foreign keys to such columns.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["StandIn", "column_of", "key_values"]

_TYPES = (models.IntegerField, models.CharField, models.TextField, models.UUIDField)


class StandIn:
    """Takes the place of a task's function where keys are checked: its arguments are the columns."""

    def __init__(self, func: Callable[..., Any], model: type[models.Model], *, takes_context: bool) -> None:
        self.__module__ = func.__module__
        self.__qualname__ = self.__name__ = func.__name__
        names = [*(["context"] if takes_context else []), *sorted(_key_fields(model))]
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        )

    def __call__(self) -> None:
        """Never called."""


def column_of(model: type[models.Model], name: str) -> str:
    """Return the column of a field that is a key."""
    column: str = _key_fields(model)[name].column
    return column


def key_values(payload: models.Model, model: type[models.Model]) -> dict[str, object]:
    """Return the values that may be keys, by the names of their fields, as the database will have them."""
    fields = _key_fields(model)
    return {name: field.to_python(getattr(payload, field.attname)) for name, field in fields.items()}


def _key_fields(model: type[models.Model]) -> dict[str, Any]:
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
