"""``Unique``: which calls of a task count as the same, how long, and what happens to the second one.

The database keeps the promise, with a unique index on the key that is stored with the job
(``_pgqueue_insert_unique``). This module validates the declaration and builds the keys.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from ..compat import DjangoTask, InvalidTask
from ..exceptions import InvalidKey
from ..formatting import storable
from .keys import KEY_LENGTH, Key, as_text, check_form, check_key, checked_text, key_value
from .misuse import hints
from .options import length, one_of
from .signatures import argument_names, bind_call, parameters_of_call

Scope = Literal["waiting", "live"]
OnConflict = Literal["existing", "replace", "earliest", "raise"]
EnqueueOutcome = Literal["created", "existing", "replaced"]
"""What an enqueue returned: a new job, the other job as it is, or the other job with the new arguments."""

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode


@hints
@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """Says that a call of a task is not enqueued again while there is a job of the same call.

    `key`: the part of a call that must be the same. None: all arguments; the name of an argument, or a tuple
    of names: these arguments; ``()``: any call; a callable: its return value for the arguments of the call.
    `name`: replaces the path of the task, so that tasks with the same name and values exclude each other.

    `scope`: "waiting" until the job starts, "live" until it has finished. `window`: also for this long
    (seconds or a timedelta) after it was enqueued, whatever became of it. `on_conflict`: "existing" returns
    the other job, "replace" gives it the arguments and options of this call if it has not started, "earliest"
    makes it due at the earlier of the two times, and "raise" raises `JobExists`.
    """

    key: Key = None
    name: str | None = None
    scope: Scope = "waiting"
    window: timedelta | None = None
    on_conflict: OnConflict = "existing"

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            key: Key = None,
            name: str | None = None,
            scope: Scope = "waiting",
            window: timedelta | float | None = None,
            on_conflict: OnConflict = "existing",
        ) -> None: ...

    def __post_init__(self) -> None:
        check_form("Unique(key=...)", self.key)
        if self.name is not None:
            checked_text("The name of Unique()", self.name)
        one_of("scope", self.scope, "waiting", "live")
        if self.window is not None:
            object.__setattr__(self, "window", length("window", self.window))
        one_of("on_conflict", self.on_conflict, "existing", "replace", "earliest", "raise")


def check_unique(task: Any, value: Any) -> Unique | None:
    """Return the value for a task; True is ``Unique()``. Raise InvalidTask if it does not fit the task."""
    if value is True:
        value = Unique()
    names_arguments = isinstance(value, Unique) and not callable(value.key) and value.key != ()
    if names_arguments and task.payload is not None:  # a payload is no JSON
        raise InvalidTask(
            f"{task.module_path} takes a payload, so its calls have no arguments to compare. Use "
            "using(unique_key=...), Unique(key=callable), which is called with the payload, or a "
            "UniqueConstraint of its model."
        )
    if value is None or value is False:
        return None
    if not isinstance(value, Unique):
        ours = "Unique(key=...)" if callable(value) else "Unique(scope='live')"
        if isinstance(value, (str, list, tuple)):
            ours = f"Unique(key={tuple(value) if isinstance(value, list) else value!r})"
        raise InvalidTask(f"unique must be True or a Unique(...), such as {ours}. It is {value!r}.")
    if callable(value.key) or value.key == ():
        return value
    parameters = parameters_of_call(task.func, takes_context=task.takes_context)
    check_key(value.key, "Unique(key=...)", task.module_path, argument_names(task))
    named = (value.key,) if isinstance(value.key, str) else value.key
    for name in parameters if named is None else named:
        default = parameters[name].default if name in parameters else None
        try:
            _encode(None if default is inspect.Parameter.empty else default)
        except (TypeError, ValueError, RecursionError):
            raise InvalidTask(
                f"The default of {name!r} of {task.module_path}, {default!r:.100}, cannot be written as "
                "JSON, so it cannot be part of a unique key. Name the other arguments with key=(...), or use "
                "None as the default."
            ) from None
    return value


def unique_key(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the key of a call of a unique task, whose arguments have been checked. Raise InvalidKey if there
    is none.

    It is readable (``shop.tasks.reindex/7``) unless it would be longer than a job can store. Then a hash
    takes the place of its end. A key that was given for this call is used as it is.
    """
    unique: Unique = task.unique
    if task.unique_key is not None:
        return str(task.unique_key)
    name = task.module_path if unique.name is None else unique.name
    if unique.key == ():
        key = str(name)
    elif unique.key is None:
        bound = bind_call(task, args, kwargs)
        key = f"{name}({', '.join(f'{each}={_encode(value)}' for each, value in bound.items())})"
    else:
        value = key_value(task, "unique key", unique.key, args, kwargs)
        if value is None and callable(unique.key):
            raise InvalidKey(
                f"The callable for the unique key of {task.module_path} returned None. Return what the job "
                "is unique by, such as a string."
            )
        key = f"{name}/{_text(task, value)}"
    if len(key) <= KEY_LENGTH:
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()
    return f"{key[: KEY_LENGTH - len(digest) - 1]}#{digest}"


def unique_options(unique: Unique) -> dict[str, Any]:
    """Return the ``options`` of the SQL functions, without the key."""
    window = {} if unique.window is None else {"unique_window": unique.window.total_seconds()}
    return {"unique_scope": unique.scope, "on_conflict": unique.on_conflict, **window}


def _text(task: DjangoTask[..., Any], value: object) -> str:
    try:
        text = as_text(value)
        text = _encode(value) if text is None else text
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidKey(
            f"The unique key of {task.module_path} is {value!r:.100}, which cannot be written as JSON "
            f"({error}). Use a callable that returns a string or a number, or a list of them: key=lambda ..."
        ) from error
    if storable(text) != text:
        raise InvalidKey(
            f"The unique key of {task.module_path} has a character that cannot be stored: {text!r:.100}."
        )
    return text
