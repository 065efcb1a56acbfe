"""Check whether a task can be called with given arguments, by binding them to its signature.

The signature of the outermost function counts: a decorator that takes ``*args, **kwargs`` may add arguments
of its own, so the wrapped function says nothing about the call, unless the wrapper has a ``__signature__``.
The wrappers of `contextlib` (``transaction.atomic`` makes one) are known to pass on what they receive.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncContextDecorator, ContextDecorator
from functools import cache, lru_cache
from typing import Any

from ..compat import DjangoTask
from .misuse import hint_of_call


def check_call(task: DjangoTask[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise TypeError unless `task` takes these arguments, without the context, which the worker passes."""
    if message := _problem(task.func, task.takes_context + len(args), tuple(kwargs)):
        colon = "" if message.startswith(("missing", "got")) else ":"
        options = inspect.signature(task.using).parameters
        takes = argument_names(task) or ()
        hint = hint_of_call(task.func.__name__, options, args, kwargs, takes)
        raise TypeError(f"{task.module_path}(){colon} {message}{f'. {hint}' if hint else ''}")


@lru_cache(maxsize=4096)
def _problem(func: Callable[..., Any], count: int, names: tuple[str, ...]) -> str:
    """Return why no call with `count` positional arguments and keywords of these names is right; "" if it is.
    The values do not matter, so this is computed once for all calls alike.
    """
    signature = _signature(func)
    by_place = _positional_only(signature)
    if any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values()):
        names = tuple(name for name in names if name not in by_place)
    elif by_place.intersection(names):  # Python 3.13.0 lets them pass
        return "got some positional-only arguments passed as keyword arguments"
    try:
        signature.bind(*(None,) * count, **dict.fromkeys(names))
    except TypeError as error:
        return str(error)
    return ""


def bind_call(task: DjangoTask[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a correct call by name, with defaults, in the order of the signature."""
    signature = _signature(task.func)
    by_place = _positional_only(signature)
    odd = {name: kwargs[name] for name in kwargs if name in by_place}
    rest = {name: kwargs[name] for name in kwargs if name not in odd}
    bound = signature.bind(*(None,) * task.takes_context, *args, **rest)
    bound.apply_defaults()
    arguments = dict(list(bound.arguments.items())[task.takes_context :])
    if odd:
        last = next(reversed(arguments))
        arguments[last] = {**arguments[last], **odd}
    return arguments


def _positional_only(signature: inspect.Signature) -> set[str]:
    """Return the names that Python puts into ``**kwargs``, where `bind` refuses them or assigns them."""
    return {each.name for each in signature.parameters.values() if each.kind is each.POSITIONAL_ONLY}


def parameters_of_call(func: Callable[..., Any], *, takes_context: bool) -> dict[str, inspect.Parameter]:
    """Return the parameters of a call by name, without the context."""
    return dict(list(_signature(func).parameters.items())[takes_context:])


def argument_names(task: DjangoTask[..., Any]) -> list[str] | None:
    """Return the names that arguments of a call may have. None: it may have any, also for ``**kwargs``."""
    parameters = parameters_of_call(task.func, takes_context=task.takes_context).values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    return [each.name for each in parameters if each.kind is not each.VAR_POSITIONAL]


def show_options(
    function: Any, options: Mapping[str, Any], first: str, default: Any = inspect.Parameter.empty
) -> None:
    """Let ``help()`` show a function that takes its first parameter and ``**options``, with the defaults."""
    kind = inspect.Parameter.KEYWORD_ONLY
    function.__signature__ = inspect.Signature(
        [
            inspect.Parameter(first, inspect.Parameter.POSITIONAL_ONLY, default=default),
            *(inspect.Parameter(name, kind, default=value) for name, value in options.items()),
        ]
    )


@cache
def _signature(func: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of the call of `func` itself."""
    while getattr(func, "__code__", None) in _PASS_ON:
        func = func.__wrapped__  # type: ignore[attr-defined]
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        # An annotation may use a name that only type checkers import.
        return inspect.signature(func, follow_wrapped=False, annotation_format=Format.FORWARDREF)
    return inspect.signature(func, follow_wrapped=False)


_CONTEXT_DECORATORS: tuple[Any, ...] = (ContextDecorator(), AsyncContextDecorator())
#: The code of the wrappers that `contextlib` makes.
_PASS_ON = {decorate(lambda: None).__code__ for decorate in _CONTEXT_DECORATORS}
