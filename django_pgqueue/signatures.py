"""Whether a task can be called with given arguments: they are bound to its signature, as in a call.

A function counts as it is called: a decorator that takes ``*args, **kwargs`` may add arguments of its own,
so what it wraps says nothing about the call, unless the wrapper has a ``__signature__``. The wrappers of
`contextlib` (``transaction.atomic`` makes one) are known to pass on what they get.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncContextDecorator, ContextDecorator
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .compat import DjangoTask

__all__ = ["check_call", "signature_of"]


def check_call(task: DjangoTask[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise TypeError unless `task` can be called with these arguments.

    The context argument is not among them: the worker passes it. A function whose signature cannot be read
    takes anything.
    """
    parameters = _parameters_of(task.func, task.takes_context)
    if parameters is None:
        return
    if parameters.any_keyword:
        # What goes there is never wrong. `bind` refuses the names of positional-only parameters, which Python
        # takes as well, or passes them to those.
        kwargs = {name: kwargs[name] for name in kwargs if name in parameters.free_until}
    if parameters.fit(args, kwargs):
        return
    message = "got some positional-only arguments passed as keyword arguments"  # Python 3.13.0 overlooks it
    try:
        parameters.signature.bind(*parameters.context, *args, **kwargs)
    except TypeError as error:
        message = str(error)
    colon = "" if message.startswith(("missing", "got")) else ":"
    raise TypeError(f"{task.module_path}(){colon} {message}")


def signature_of(func: Callable[..., Any]) -> inspect.Signature:
    """The signature by which `func` itself is called. Raises TypeError or ValueError if it has none."""
    while getattr(func, "__code__", None) in _PASS_ON:
        func = func.__wrapped__  # type: ignore[attr-defined]
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        # An annotation may name what only type checkers import.
        return inspect.signature(func, follow_wrapped=False, annotation_format=Format.FORWARDREF)
    return inspect.signature(func, follow_wrapped=False)


class Parameters(NamedTuple):
    """A signature, taken apart, to tell a right call in a fraction of the time that `bind` takes.

    What is wrong with another call `inspect.Signature.bind` says.
    """

    signature: inspect.Signature
    context: tuple[None, ...]
    """What stands for the context argument: one None, or nothing."""
    least: float
    most: float
    """How many arguments a call without keywords has."""
    required: tuple[str, ...]
    """The positional parameters without a default, which come first."""
    free_until: dict[str, float]
    """The names that may be keywords, each with how many positional arguments leave it free."""
    required_keywords: frozenset[str]
    """The keyword-only parameters without a default."""
    any_keyword: bool
    """Whether there is a ``**kwargs``, which takes whatever else is named."""

    @classmethod
    def of(cls, signature: inspect.Signature, *, takes_context: bool) -> Parameters:
        """Take a signature apart."""
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
        )

    def fit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call with these arguments is right, those for a ``**kwargs`` left out."""
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
