"""A condition for jobs in whose arguments a text occurs, as far as the admin shows them.

The database can compare the names of REDACT (``visible.sql``). It knows nothing of patterns and callables of
Python, so with them arguments are not searched at all.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db.models import BooleanField, Expression, F

from ... import conf
from ...redaction import names_of_call
from ...redaction_rules import coarse_expression, name_expression
from ..lists.names import task_paths

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql.compiler import SQLCompiler

__all__ = ["Shows", "hidden_places"]

_HERE = Path(__file__).parent
_VALUE_SQL = (_HERE / "visible.sql").read_text(encoding="utf-8")
_ARGS_SQL = (_HERE / "visible_args.sql").read_text(encoding="utf-8")
_HAS_NAMES = "jsonb_path_exists({value}, %(path)s::jsonpath)"
_HAS_PLACES = "coalesce((%(hidden)s::jsonb -> {task} ->> 'any')::boolean, true)"
_PARAMETER = re.compile(r"%\((\w+)\)s")


class Shows(Expression):
    """Whether a text is in the column ``args`` or ``kwargs``, as far as it is shown."""

    def __init__(self, column: str, text: str, alias: str) -> None:
        super().__init__(output_field=BooleanField())
        self.columns: list[Any] = [F(column), F("task_path")]
        self.is_args = column == "args"
        names = conf.current().redact.names
        self.values = {
            "like": _like(text),
            "like_json": _like(json.dumps(text, ensure_ascii=False)[1:-1]),
            "names": name_expression(names),
            "path": f'$.** ? (@.type() == "object").keyvalue() ? (@.key like_regex '
            f'{json.dumps(coarse_expression(names))} flag "i")',
            "hidden": json.dumps(hidden_places(alias)) if self.is_args else "{}",
        }

    def get_source_expressions(self) -> list[Any]:
        """Return the columns."""
        return self.columns

    def set_source_expressions(self, exprs: Any) -> None:
        """Set the columns, when Django has found their table."""
        self.columns = list(exprs)

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, tuple[Any, ...]]:
        """Return the condition, with the parameters in the order in which they occur."""
        value, task = (compiler.compile(column)[0] for column in self.columns)
        coarse, shown = _HAS_NAMES, "{value}"
        if self.is_args:
            coarse, shown = f"{_HAS_PLACES} OR {_HAS_NAMES}", _ARGS_SQL
        coarse, shown = (part.format(value=value, task=task) for part in (coarse, shown))
        sql = _VALUE_SQL.format(value=value, coarse=coarse, shown=shown)
        parameters = tuple(self.values[name] for name in _PARAMETER.findall(sql))
        return f"({_PARAMETER.sub('%s', sql)})", parameters


def _like(text: str) -> str:
    """Return a pattern in which no character of the text has a special meaning."""
    return "%" + re.sub(r"([\\%_])", r"\\\1", text) + "%"


def hidden_places(alias: str) -> dict[str, dict[str, Any]]:
    """Return which positional arguments are redacted, by task: some places, and all from one on. Of a task
    that is not in it, none are searched.
    """
    hide = conf.current().redact.hide
    found = {}
    for path in task_paths(alias):
        names = names_of_call(path)
        places = [place for place, name in enumerate(names.each) if hide(name)]
        beyond = len(names.each) if names.rest and hide(names.rest) else None
        found[path] = {"places": places, "from": beyond, "any": bool(places) or beyond is not None}
    return found
