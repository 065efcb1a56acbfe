"""Redact arguments, results and texts of jobs before they are shown, as the setting REDACT says.

    redact(job.result, job.task_path)                         any JSON value
    args, kwargs = redact_call(job.args, job.kwargs, path)    arguments: positional ones by their parameter
    redact_text(error["message"], path)                       a text: an error, a traceback, a line of a log
    beginning(start_of_a_text, length, path)                  a text of which no more was read

The stored values never change, and the values that are passed in do not either. Whatever shows arguments or
results calls one of these: the admin, the commands, the shell, the log, and ``repr()`` of a result.

If the callable of the project raises, or returns what is not JSON, ``FAILED`` is shown, and never the value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from time import monotonic
from typing import Any, NamedTuple

from . import conf
from .encoding import TOO_DEEP
from .exceptions import UnknownTask
from .formatting import get_logger
from .redaction_rules import DEFAULT_NAMES, Rules
from .tasks.paths import HAND_OVER, import_task
from .tasks.signatures import parameters_of_call

__all__ = [
    "DEFAULT_NAMES", "FAILED", "REDACTED", "Names", "beginning", "names_of_call", "redact", "redact_call",
    "redact_text", "restore",
]  # fmt: skip

REDACTED = "[redacted]"
FAILED = "[redaction failed]"

logger = get_logger(__name__)

_PAUSE = 60.0  # seconds, because an import may be slow, and a page shows many jobs
_MOST_PATHS = 4096
_not_before: dict[str, float] = {}  # when the paths that could not be imported are tried again


class Names(NamedTuple):
    """The names of the positional parameters of a task."""

    each: tuple[str, ...] = ()
    rest: str = ""  # the name of the parameter for all further ones; empty if there is none

    def at(self, place: int) -> str:
        """Return the name of the parameter that takes the argument at this place; empty if none does."""
        return self.each[place] if place < len(self.each) else self.rest


def redact(value: Any, task_path: str = "") -> Any:
    """Return a JSON value as it may be shown. For the arguments of a job, use ``redact_call``."""
    rules = conf.current().redact
    try:
        if rules.function:
            return _by_function(rules.function, value, task_path)
        return _by_rules(value, rules)
    except RecursionError:
        return TOO_DEEP


def redact_call(
    args: Sequence[Any], kwargs: Mapping[str, Any], task_path: str
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call as they may be shown. Positional ones are named if the task is known.
    The arguments of a call on its way to another database are redacted as they will be there.
    """
    if task_path == HAND_OVER and len(args) > 1 and isinstance(call := args[1], dict):
        path, options = str(call.get("task_path")), redact(call.get("options"))
        inner = redact_call(call.get("args") or [], call.get("kwargs") or {}, path)
        return [args[0], {**call, "args": inner[0], "kwargs": inner[1], "options": options}, *args[2:]], {
            **kwargs
        }
    rules, names = conf.current().redact, names_of_call(task_path) if args else Names()
    try:
        if rules.function:
            shown = _by_function(rules.function, dict(kwargs), task_path) if kwargs else {}
            if not isinstance(shown, dict):
                shown = dict.fromkeys(kwargs, _mark(shown))
            return _args_by_function(rules.function, args, names, task_path), shown
        return list(_by_rules(dict(enumerate(args)), rules, names).values()), _by_rules(kwargs, rules)
    except RecursionError:
        return [TOO_DEEP] * len(args), dict.fromkeys(kwargs, TOO_DEEP)


def redact_text(text: str, task_path: str = "") -> str:
    """Return a text as it may be shown: patterns are replaced in it, and names do not matter."""
    rules = conf.current().redact
    if not text or rules.are_names:
        return text
    shown = redact(text, task_path)
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def beginning(text: str, read: int, task_path: str = "", shown: int | None = None) -> str:
    """Redact a text of which at most ``read`` characters were read, and shorten it to ``shown`` characters
    only then. What a pattern is to find may have been cut off, so that nothing is shown of such a text.
    """
    if len(text) >= read and not conf.current().redact.are_names:
        return ""
    return redact_text(text, task_path)[:shown]


def restore(given: Any, shown: Any, stored: Any) -> Any:
    """Return what a redacted form means: what is as it was ``shown`` stands for what is ``stored``."""
    if given == shown:
        return stored
    if isinstance(given, dict) and isinstance(shown, dict) and isinstance(stored, dict):
        both = shown.keys() & stored.keys()
        return {
            key: restore(value, shown[key], stored[key]) if key in both else value
            for key, value in given.items()
        }
    lists = isinstance(given, list) and isinstance(shown, list) and isinstance(stored, list)
    if lists and len(given) == len(shown) == len(stored):
        return [restore(*each) for each in zip(given, shown, stored, strict=True)]
    return given


def names_of_call(task_path: str) -> Names:
    """Return the names of the positional parameters of a task; none for a minute if it cannot be imported."""
    if _not_before.get(task_path, 0.0) > monotonic():
        return Names()
    try:
        task = import_task(task_path)
    except UnknownTask:
        if len(_not_before) > _MOST_PATHS:
            _not_before.clear()
        _not_before[task_path] = monotonic() + _PAUSE
        return Names()
    return _names(task.func, task.takes_context)


@lru_cache(maxsize=_MOST_PATHS)
def _names(func: Callable[..., Any], takes_context: bool) -> Names:
    parameters = parameters_of_call(func, takes_context=takes_context).values()
    each = (each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD))
    rest = (each.name for each in parameters if each.kind is each.VAR_POSITIONAL)
    return Names(tuple(parameter.name for parameter in each), next(rest, ""))


def _by_rules(value: Any, rules: Rules, names: Names | None = None) -> Any:
    """Redact by names and patterns. ``names``: the names of the numbers that are the keys of ``value``."""
    if isinstance(value, Mapping):
        shown = {}
        for key, each in value.items():
            name = str(key) if names is None else names.at(key)
            is_hidden = each is not None and not isinstance(each, bool) and rules.hide(name)
            shown[key] = REDACTED if is_hidden else _by_rules(each, rules)
        return shown
    if isinstance(value, (list, tuple)):
        return [_by_rules(each, rules) for each in value]
    if isinstance(value, str):
        for pattern in rules.patterns:
            value = pattern.sub(REDACTED, value)
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return REDACTED if any(pattern.search(str(value)) for pattern in rules.patterns) else value
    return value


def _by_function(path: str, value: Any, task_path: str) -> Any:
    try:
        function = conf.callable_at("REDACT", path, "the value", "the path of the task")
        shown = function(deepcopy(value), task_path)
        json.dumps(shown)
    except Exception as error:
        # Not the text of the error: it may contain the value.
        _tell(path, type(error).__name__)
        return FAILED
    return shown


def _args_by_function(path: str, args: Sequence[Any], names: Names, task_path: str) -> list[Any]:
    """Pass the arguments by name, if all names are known, and return what became of each of them."""
    count = len(args)
    if not args:
        return []
    if len(names.each) < count and not names.rest:
        shown = _by_function(path, list(args), task_path)
        return shown if isinstance(shown, list) and len(shown) == count else [_mark(shown)] * count
    named: dict[str, Any] = dict(zip(names.each, args, strict=False))
    further = list(args[len(names.each) :])
    if further:
        named[names.rest] = further
    shown = _by_function(path, named, task_path)
    if not isinstance(shown, dict):
        return [_mark(shown)] * count
    rest = shown.get(names.rest) if further else []
    if not isinstance(rest, list) or len(rest) != len(further):
        rest = [_mark(rest)] * len(further)
    return [*(shown.get(name, REDACTED) for name in names.each[:count]), *rest]


def _mark(shown: Any) -> Any:
    """Return what stands for each argument if the callable has returned one value for all of them."""
    return shown if isinstance(shown, str) else REDACTED


@lru_cache(maxsize=256)
def _tell(path: str, error: str) -> None:
    """Log a problem once."""
    logger.error("%s, which %s['REDACT'] names, raised %s. The value is not shown.", path, conf.NAME, error)
