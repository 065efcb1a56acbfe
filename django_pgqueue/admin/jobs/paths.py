"""A search term that names a place in the arguments, and the value there: ``kwargs.order_id=17``, or
``args.0.customer="Ann Lee"``.

The value is a number, a text, ``true``, ``false`` or ``null``, as the page of a job shows it. In quotation
marks, it is a text in any case. Lists and objects are not compared: a part of them may be redacted, and would
be found out. For the same reason, a place that has a redacted name on its way is never found (``visible``).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db.models import F, Func, Q, TextField, Value

from ... import conf
from ...models.fields import ArrayColumn
from .visible import hidden_places

if TYPE_CHECKING:
    from django.db.models import QuerySet

__all__ = ["ArgumentPath", "at_path", "read_path"]

_KEY = r"""\.(?:"[^"]*"|[^.="\s]+)"""
_TERM = re.compile(rf"(args|kwargs)((?:{_KEY})+)\s*=\s*(\S.*)", re.DOTALL)
_PLAIN = ("string", "number", "boolean")


class ArgumentPath(NamedTuple):
    """A place in the arguments, and the value there."""

    column: str
    keys: tuple[str, ...]
    """The names and numbers on the way from the column to the value."""
    text: str
    is_quoted: bool


def read_path(term: str) -> ArgumentPath | None:
    """Return what a term names; None if it does not name a place and a value."""
    match = _TERM.fullmatch(term.strip())
    if match is None:
        return None
    column, way, text = match.groups()
    keys = tuple(key[1:].strip('"') for key in re.findall(_KEY, way))
    if column == "args" and not (keys[0].isascii() and keys[0].isdecimal() and len(keys[0]) < 5):
        return None
    quoted = _unquoted(text)
    return ArgumentPath(column, keys, text if quoted is None else quoted, quoted is not None)


def at_path(jobs: QuerySet[Any], path: ArgumentPath) -> QuerySet[Any]:
    """Return the jobs that have the value there, as far as the admin shows it."""
    if any(conf.current().redact.hide(key) for key in path.keys):
        return jobs.none()
    if path.column == "args":
        jobs = jobs.filter(task_path__in=_tasks_that_show(jobs.db, int(path.keys[0])))
    way = Value(list(path.keys), output_field=ArrayColumn("text"))
    kind = Func(
        Func(F(path.column), way, template="(%(expressions)s)", arg_joiner=" #> "), function="jsonb_typeof"
    )
    text = Func(F(path.column), way, template="(%(expressions)s)", arg_joiner=" #>> ")
    found = Q(_kind__in=_PLAIN[:1] if path.is_quoted else _PLAIN, _text=path.text)
    if path.text == "null" and not path.is_quoted:
        found |= Q(_kind="null")
    kind.output_field = text.output_field = TextField()
    matching: QuerySet[Any] = jobs.alias(_kind=kind, _text=text).filter(found)
    return matching


def _tasks_that_show(alias: str, place: int) -> list[str]:
    """Return the tasks whose positional argument at this place is not redacted."""
    tasks = []
    for task, hidden in hidden_places(alias).items():
        beyond = hidden["from"]
        if place not in hidden["places"] and (beyond is None or place < beyond):
            tasks.append(task)
    return tasks


def _unquoted(text: str) -> str | None:
    """Return the text of a JSON string; None for any other value, and for what PostgreSQL cannot store."""
    try:
        value = json.loads(text)
        if isinstance(value, str) and "\0" not in value:
            value.encode()
            return value
    except ValueError:
        pass
    return None
