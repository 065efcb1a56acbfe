"""What models share: their ``Meta``, a plain array, and JSON that may come from SQL.

Django's ``ArrayField`` would require every project to install ``django.contrib.postgres``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from ..encoding import load


class PostgresMeta:
    """The base of the ``Meta`` of all tables."""

    required_db_vendor = "postgresql"


class ViewMeta(PostgresMeta):
    """The ``Meta`` of tables that the admin shows, where no user adds, changes or deletes a row."""

    default_permissions = ("view",)


class InternalMeta(PostgresMeta):
    """The ``Meta`` of tables that permissions are not about."""

    default_permissions = ()


def both(value: Any) -> dict[str, Any]:
    """Return the arguments of a field for its default in Python and in SQL."""
    return {"default": value, "db_default": value}


class ArrayColumn(models.Field):  # type: ignore[type-arg]  # Django's is not generic
    """A list in a column of PostgreSQL's type ``element[]``, converted by psycopg. It is never editable."""

    def __init__(self, element: str, *args: Any, **kwargs: Any) -> None:
        self.element = element
        kwargs["editable"] = False
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        """Return the constructor's arguments, for migrations."""
        name, path, args, kwargs = super().deconstruct()
        del kwargs["editable"]
        return name, path, [self.element, *args], kwargs

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        """Return the type of the column."""
        return f"{self.element}[]"

    def value_to_string(self, obj: Any) -> str | None:  # type: ignore[override]  # dumps accept None
        """Return the list as JSON, for ``dumpdata``."""
        value = self.value_from_object(obj)
        return None if value is None else json.dumps(value, ensure_ascii=False)

    def to_python(self, value: Any) -> Any:
        """Return the list, also for its JSON, which ``loaddata`` reads. Raise ``ValidationError``."""
        if not isinstance(value, str):
            return value
        try:
            found = json.loads(value)
        except ValueError:
            found = None
        if not isinstance(found, list):
            raise ValidationError(f"{self.name}: {value!r:.100} is not a list in JSON.")
        return found


class _JSONColumn(models.JSONField):
    """Django's ``JSONField``, which also reads what only SQL can store. Migrations see a ``JSONField``."""

    def from_db_value(self, value: Any, expression: Any, connection: BaseDatabaseWrapper) -> Any:
        """Return the value, with a text in place of a number or a value that Python does not read."""
        try:
            return super().from_db_value(value, expression, connection)
        except (ValueError, RecursionError):
            return load(value)

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        """Return the constructor's arguments, for migrations."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", list(args), dict(kwargs)


if TYPE_CHECKING:
    JSONColumn = models.JSONField  # so that the columns have its types
else:
    JSONColumn = _JSONColumn
