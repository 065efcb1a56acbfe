"""Which alias of DATABASES a row is changed with, and which aliases are one database.

A router may read from a replica (``db_for_read``) and write to its primary (``db_for_write``). A row
remembers the alias that it was read from, which may refuse every change, and may be behind. So whatever
changes a row, waits for it, or names it for others asks ``write_alias``.

A router that returns the same alias for every row does not know that a row comes from a database of its own,
where another row has the same key. Such a row is changed where it was read.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Protocol

from django.core.exceptions import ObjectDoesNotExist
from django.db import connections, router

from .settings import parameters

_SEARCH_PATH = re.compile(r"search_path\s*=\s*(\S+)")


class Row(Protocol):
    """A row of a model of this package."""

    pk: Any
    BORN: ClassVar[str]
    """The column whose value tells this row from one with the same key in another database."""
    _meta: ClassVar[Any]
    _state: Any


def write_alias(row: Row) -> str:
    """Return the alias to change a row with: the one that the router names for it, as for ``row.save()``.

    Read the row there if the router names another database than the one that the row was read from: if it is
    not there, the database is no replica, and the alias is that of the row.
    """
    model, read = row._meta.concrete_model, row._state.db
    alias: str = router.db_for_write(model, instance=row)
    if read is None or same_database(read, alias) or _is_in(alias, row):
        return alias
    return str(read)


def same_database(one: str, other: str) -> bool:
    """Return whether two aliases name one database and one schema, perhaps with other roles or OPTIONS."""
    return one == other or _place(one) == _place(other)


def _is_in(alias: str, row: Row) -> bool:
    try:
        born = getattr(row, row.BORN)
    except ObjectDoesNotExist:  # only its key is known, and it is no longer kept
        return False
    rows = row._meta.concrete_model._base_manager.using(alias)
    return bool(rows.filter(**{"pk": row.pk, row.BORN: born}).exists())


def _place(alias: str) -> tuple[str, ...]:
    if alias not in connections.settings:
        return (alias,)
    values = parameters(alias)
    options = values.get("OPTIONS") or {}
    path = _SEARCH_PATH.search(str(options.get("options") or ""))
    names = (values.get(name) for name in ("ENGINE", "HOST", "PORT", "NAME"))
    return (*(str(name or "") for name in names), str(options.get("service") or ""), path[1] if path else "")
