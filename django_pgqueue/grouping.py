"""``group``: whose job it is. Workers go through the groups of a queue in turn.

The group of a job (``Job.group_key``) is the value of an argument, what a callable makes of the arguments,
or a string at the call. Nothing here reads settings or the database: the claim takes the groups in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from .compat import InvalidTask
from .concurrency import argument_value, as_text, called_value, can_be_stored, check_argument
from .exceptions import InvalidKey

__all__ = ["GROUP_LENGTH", "Group", "checked", "checked_key", "group_key"]

Group: TypeAlias = str | Callable[..., object]
"""The name of an argument, or a callable that takes the arguments of the call and returns the group."""

GROUP_LENGTH = 200


def checked(value: Any, func: Callable[..., Any], *, takes_context: bool) -> Group | None:
    """Return the ``group`` of a task. Raise InvalidTask if it does not fit its function."""
    if value is None:
        return None
    if not callable(value) and not (isinstance(value, str) and value):
        raise InvalidTask(
            f"group must be the name of an argument, or a callable that takes the arguments. It is {value!r}."
        )
    check_argument(value, "group", func, takes_context=takes_context)
    result: Group = value
    return result


def checked_key(value: Any) -> str | None:
    """Accept None, or the group of a call as a string that can be stored."""
    if value is not None and (problem := _problem(value)):
        raise InvalidTask(f"group {problem}")
    return None if value is None else str(value)


def group_key(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return the group of a call; None if it has none. Raise ``InvalidKey`` if it cannot be computed."""
    if task.group_key is not None:
        return str(task.group_key)
    if task.group is None:
        return None
    value = (
        argument_value(task, task.group, args, kwargs)
        if isinstance(task.group, str)
        else called_value(task, "group", task.group, args, kwargs)
    )
    if value is None:
        return None
    text = as_text(value)
    if text is None:
        raise InvalidKey(
            f"The group of {task.module_path} must be a string, a number, a date or a UUID, not "
            f"{value!r:.200}. Use a callable that returns one: group=lambda ..."
        )
    if problem := _problem(text):
        raise InvalidKey(f"The group of {task.module_path} {problem}")
    return text


def _problem(text: Any) -> str:
    if not isinstance(text, str) or not text:
        return f"must be a string that is not empty. It is {text!r:.100}."
    if len(text) > GROUP_LENGTH:
        return f"has {len(text)} characters, but the limit is {GROUP_LENGTH}: {text[:60]}... Use a hash."
    if not can_be_stored(text):
        return f"has a character that cannot be stored: {text!r}."
    return ""
