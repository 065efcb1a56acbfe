"""What travels from an enqueue to the run of its job: the language, the trace, the user, context variables.

``capture`` collects what the setting CONTEXT names, as JSON, and ``restored`` sets it around the task. What a
job enqueues carries it on. A call that has nothing of this stores nothing.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils import translation
from django.utils.module_loading import import_string

from . import conf
from .conf import BUILT_IN
from .encoding import encode_context
from .monitoring import tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    _Collect = Callable[[dict[str, Any]], None]

__all__ = ["acting_as", "capture", "restored", "user_from", "variable"]

# A callable, so that a request whose view enqueues nothing reads neither the session nor the user.
_USER: ContextVar[Callable[[], Any] | None] = ContextVar("django_pgqueue.user", default=None)


@contextmanager
def acting_as(user: Any, /) -> Iterator[None]:
    """Enqueue the jobs of this block for `user`: a user, its primary key, or None for nobody.

    This is for code without a request, such as a management command. CONTEXT must contain "user".
    """
    with user_from(lambda: user):
        yield


@contextmanager
def user_from(get_user: Callable[[], Any], /) -> Iterator[None]:
    """Like `acting_as`, but ask for the user only if a job is enqueued in this block."""
    token = _USER.set(get_user)
    try:
        yield
    finally:
        _USER.reset(token)


def capture() -> str | None:
    """Return the context of this code as JSON; None if there is nothing to carry.

    Raise InvalidJSON if a context variable has a value that cannot be written as JSON, or if all of it
    together is too large.
    """
    context: dict[str, Any] = {}
    for collect in _plan(conf.current().context):
        collect(context)
    return encode_context(context) if context else None


@contextmanager
def restored(context: Mapping[str, Any]) -> Iterator[None]:
    """Run a block with the context of a job.

    The caller runs it in a ``contextvars`` context of its own, so only the language needs to be restored.
    """
    if "user" in context:
        user = context["user"]
        _USER.set(lambda: user)
    if "trace" in context:
        tracing.CARRIER.set(context["trace"])
    for path, value in context.get("vars", {}).items():
        # A variable that is no longer in CONTEXT is not set: its module may no longer exist.
        if path in conf.current().context:
            variable(path).set(value)
    language = context.get("language")
    with translation.override(language, deactivate=True) if language else nullcontext():
        yield


def variable(path: str) -> ContextVar[Any]:
    """Return the context variable at `path`. Raise ImproperlyConfigured if there is none."""
    try:
        found = import_string(path)
    except ImportError as error:
        raise ImproperlyConfigured(
            f"{conf.NAME}['CONTEXT'] names {path!r}, which cannot be imported: {error}. Write the path of a "
            "ContextVar at the top level of a module."
        ) from error
    if not isinstance(found, ContextVar):
        raise ImproperlyConfigured(
            f"{conf.NAME}['CONTEXT'] names {path!r}, which is of type {type(found).__qualname__}. Write the "
            "path of a ContextVar."
        )
    return found


@lru_cache(maxsize=8)
def _plan(names: tuple[str, ...]) -> tuple[_Collect, ...]:
    """Return the functions that collect what CONTEXT names, so that it is looked up only once."""
    paths = [name for name in names if name not in BUILT_IN]
    plan: list[_Collect] = [collect for name, collect in _COLLECT.items() if name in names]
    if paths:
        plan.append(_collect_variables([(path, variable(path)) for path in paths]))
    return tuple(plan)


def _collect_language(context: dict[str, Any]) -> None:
    if settings.USE_I18N:
        language = translation.get_language()
        if language and language != settings.LANGUAGE_CODE:
            context["language"] = language


def _collect_trace(context: dict[str, Any]) -> None:
    carrier = tracing.carrier()
    if carrier is not None:
        context["trace"] = carrier


def _collect_user(context: dict[str, Any]) -> None:
    get_user = _USER.get()
    user = get_user() if get_user is not None else None
    key = getattr(user, "pk", None) if hasattr(user, "is_authenticated") else user
    if key is not None:
        context["user"] = key if isinstance(key, int) else str(key)


def _collect_variables(found: list[tuple[str, ContextVar[Any]]]) -> _Collect:
    unset = object()

    def collect(context: dict[str, Any]) -> None:
        values = {path: value for path, each in found if (value := each.get(unset)) is not unset}
        if values:
            context["vars"] = values

    return collect


_COLLECT = {"language": _collect_language, "trace": _collect_trace, "user": _collect_user}
