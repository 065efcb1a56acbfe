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
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from .misuse import hint_of_call

if TYPE_CHECKING:
    from ..compat import DjangoTask


def check_call(task: DjangoTask[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise TypeError unless `task` can be called with these arguments.

    They do not include the context argument, which the worker passes. A function whose signature cannot be
    read accepts anything.
    """
    parameters = _parameters_of(task.func, task.takes_context)
    if parameters is None:
        return
    if parameters.any_keyword:
        # Any name may go there. `bind` refuses names of positional-only parameters or assigns them to these
        # parameters, although Python accepts them in ``**kwargs``.
        kwargs = {name: kwargs[name] for name in kwargs if name in parameters.free_until}
    if parameters.fit(args, kwargs):
        return
    message = "got some positional-only arguments passed as keyword arguments"  # Python 3.13.0 misses this
    try:
        parameters.signature.bind(*parameters.context, *args, **kwargs)
    except TypeError as error:
        message = str(error)
    colon = "" if message.startswith(("missing", "got")) else ":"
    hint = _hint(task, parameters, args, kwargs)
    raise TypeError(f"{task.module_path}(){colon} {message}{hint}")


def _hint(task: Any, parameters: Parameters, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return what to write if options were passed as arguments: ``enqueue(send, 1, countdown=3)``."""
    options = inspect.signature(task.using).parameters
    if hint := hint_of_call(task.func.__name__, options, args, kwargs, parameters.free_until):
        return f". {hint}"
    return ""


def bind_call(task: DjangoTask[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a correct call by name, with defaults, in the order of the signature."""
    parameters = _parameters_of(task.func, task.takes_context)
    assert parameters is not None
    # These names are accepted only by ``**kwargs``, see check_call().
    odd = {name: kwargs[name] for name in kwargs if name in parameters.positional_only}
    rest = {name: kwargs[name] for name in kwargs if name not in odd}
    bound = parameters.signature.bind(*parameters.context, *args, **rest)
    bound.apply_defaults()
    arguments = dict(list(bound.arguments.items())[len(parameters.context) :])
    if odd:
        last = next(reversed(arguments))
        arguments[last] = {**arguments[last], **odd}
    return arguments


def parameters_of_call(
    func: Callable[..., Any], *, takes_context: bool
) -> dict[str, inspect.Parameter] | None:
    """Return the parameters of a call by name, without the context. None: the signature cannot be read."""
    parameters = _parameters_of(func, takes_context)
    if parameters is None:
        return None
    return dict(list(parameters.signature.parameters.items())[len(parameters.context) :])


def argument_names(func: Callable[..., Any], *, takes_context: bool) -> list[str] | None:
    """Return the names that arguments of a call may have. None: it may have any, also for ``**kwargs``."""
    parameters = (parameters_of_call(func, takes_context=takes_context) or {}).values()
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


def signature_of(func: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of the call of `func` itself. Raise TypeError or ValueError if it has none."""
    while getattr(func, "__code__", None) in _PASS_ON:
        func = func.__wrapped__  # type: ignore[attr-defined]
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        # An annotation may use a name that only type checkers import.
        return inspect.signature(func, follow_wrapped=False, annotation_format=Format.FORWARDREF)
    return inspect.signature(func, follow_wrapped=False)


class Parameters(NamedTuple):
    """The parts of a signature, which recognize a correct call in a fraction of the time that `bind` takes.

    For an incorrect call, `inspect.Signature.bind` says what is wrong.
    """

    signature: inspect.Signature
    context: tuple[None, ...]
    """The placeholder for the context argument: one None, or nothing."""
    least: float
    most: float
    """The minimum and maximum number of arguments of a call without keywords."""
    required: tuple[str, ...]
    """The positional parameters without a default, which come first."""
    free_until: dict[str, float]
    """The names that may be keywords, each with the number of positional arguments that leaves it free."""
    required_keywords: frozenset[str]
    """The keyword-only parameters without a default."""
    any_keyword: bool
    """Whether there is a ``**kwargs``, which accepts any other name."""
    positional_only: frozenset[str]
    """The parameters whose names cannot be keywords."""

    @classmethod
    def of(cls, signature: inspect.Signature, *, takes_context: bool) -> Parameters:
        """Make the parts of a signature."""
        every = signature.parameters.values()
        positional = [
            each for each in every if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        ]
        keywords = [each for each in every if each.kind is each.KEYWORD_ONLY]
        places = {
            each.name: at for at, each in enumerate(positional) if each.kind is not each.POSITIONAL_ONLY
        }
        required = tuple(each.name for each in positional if each.default is each.empty)
        required_keywords = frozenset(each.name for each in keywords if each.default is each.empty)
        any_number = any(each.kind is each.VAR_POSITIONAL for each in every)
        return cls(
            signature,
            context=(None,) if takes_context else (),
            least=inf if required_keywords else len(required) - takes_context,
            most=inf if any_number else len(positional) - takes_context,
            required=required,
            free_until={**places, **dict.fromkeys((each.name for each in keywords), inf)},
            required_keywords=required_keywords,
            any_keyword=any(each.kind is each.VAR_KEYWORD for each in every),
            positional_only=frozenset(each.name for each in every if each.kind is each.POSITIONAL_ONLY),
        )

    def fit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Return whether a call with these arguments is correct, not counting those for ``**kwargs``."""
        if not kwargs:
            return self.least <= len(args) <= self.most
        given = len(self.context) + len(args)
        for name in kwargs:
            if self.free_until.get(name, -1) < given:
                return False
        for name in self.required[given:]:
            if name not in kwargs:
                return False
        return len(args) <= self.most and self.required_keywords <= kwargs.keys()


@cache
def _parameters_of(func: Callable[..., Any], takes_context: bool) -> Parameters | None:
    try:
        return Parameters.of(signature_of(func), takes_context=takes_context)
    except (TypeError, ValueError):
        return None


def _nothing() -> None: ...


_CONTEXT_DECORATORS: tuple[Any, ...] = (ContextDecorator(), AsyncContextDecorator())
#: The code of the wrappers that `contextlib` makes.
_PASS_ON = {decorate(_nothing).__code__ for decorate in _CONTEXT_DECORATORS}
