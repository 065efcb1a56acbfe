"""A plain array column. Django's ``ArrayField`` would require every project to install
``django.contrib.postgres``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    Field = models.Field[Any, Any]
else:
    Field = models.Field


class ArrayColumn(Field):
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
