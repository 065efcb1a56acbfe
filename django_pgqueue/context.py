"""What travels from an enqueue to the run of its job: language, trace, user, tenant, context variables.

``capture`` collects what the setting CONTEXT names, as JSON, and ``restored`` sets it and the tenant around
the task. What a job enqueues carries it on. A call that has nothing of this stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils import translation

from . import conf
from .conf import BUILT_IN
from .encoding import encode_context
from .tasks.options import tenant as checked_tenant
from .telemetry import tracing

__all__ = [
    "acting_as", "capture", "current_tenant", "for_tenant", "holding", "restored", "user_from", "variable",
]  # fmt: skip

_T = TypeVar("_T")

# A callable, so that a request whose view enqueues nothing reads neither the session nor the user.
_USER: ContextVar[Callable[[], Any] | None] = ContextVar("django_pgqueue.user", default=None)
_TENANT: ContextVar[str | None] = ContextVar("django_pgqueue.tenant", default=None)


def acting_as(user: Any, /) -> AbstractContextManager[None]:
    """Enqueue the jobs of this block for `user`: a user, its primary key, or None for no user.

    This is for code without a request, such as a management command. CONTEXT must contain "user".
    """
    return user_from(lambda: user)


@contextmanager
def holding(variable: ContextVar[_T], value: _T) -> Iterator[None]:
    """Give a context variable a value in a block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def user_from(get_user: Callable[[], Any], /) -> AbstractContextManager[None]:
    """Like `acting_as`, but ask for the user only if a job is enqueued in this block."""
    return holding(_USER, get_user)


def for_tenant(tenant: str | None, /) -> AbstractContextManager[None]:
    """Enqueue the jobs of this block for `tenant`; None: for no tenant. Raise InvalidTask for a bad name.

    ``task.using(tenant=...)`` takes its place. A job passes its tenant to the jobs that it enqueues.
    """
    return holding(_TENANT, None if tenant is None else checked_tenant("tenant", tenant))


def current_tenant() -> str | None:
    """Return the tenant for which this code enqueues: that of `for_tenant`, or of the running job."""
    return _TENANT.get()


def capture() -> str | None:
    """Return the context of this code as JSON; None if there is nothing to carry.

    Raise InvalidJSON if a context variable has a value that cannot be written as JSON, or if all of it
    together is too large.
    """
    names = conf.current().context
    context = {name: value for name, read in _READ.items() if name in names and (value := read()) is not None}
    values = {path: value for path, each in _variables(names) if (value := each.get(_UNSET)) is not _UNSET}
    if values:
        context["vars"] = values
    return encode_context(context) if context else None


def restored(context: Mapping[str, Any], tenant: str | None) -> AbstractContextManager[None]:
    """Set a job's context and tenant in a ``contextvars`` context of the caller's. Return a block in its
    language.
    """
    _TENANT.set(tenant)
    if not context:
        return _NOTHING
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
    return translation.override(language, deactivate=True) if language else _NOTHING


def variable(path: str) -> ContextVar[Any]:
    """Return the context variable at `path`. Raise ImproperlyConfigured if there is none."""
    found = conf.object_at("CONTEXT", path)
    if not isinstance(found, ContextVar):
        raise ImproperlyConfigured(
            f"{conf.NAME}['CONTEXT'] names {path!r}, which is of type {type(found).__qualname__}. Write the "
            "path of a ContextVar."
        )
    return found


@lru_cache(maxsize=8)
def _variables(names: tuple[str, ...]) -> list[tuple[str, ContextVar[Any]]]:
    """Return the variables that CONTEXT names, which are looked up only once."""
    return [(name, variable(name)) for name in names if name not in BUILT_IN]


def _language() -> str | None:
    language = translation.get_language() if settings.USE_I18N else None
    return language if language and language != settings.LANGUAGE_CODE else None


def _user() -> int | str | None:
    get_user = _USER.get()
    user = get_user() if get_user is not None else None
    key = getattr(user, "pk", None) if hasattr(user, "is_authenticated") else user
    return key if key is None or isinstance(key, int) else str(key)


_UNSET: Any = object()
_NOTHING = nullcontext()
_READ: dict[str, Callable[[], Any]] = {"language": _language, "trace": tracing.carrier, "user": _user}
