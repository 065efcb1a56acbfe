"""The hooks of a project: callables that ``PGQUEUE`` names, which see every call and every attempt.

They are imported once. Without any, a call and a job pay for one look at the settings.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from django.core.signals import setting_changed

from .. import conf

if TYPE_CHECKING:
    from collections.abc import Callable


class Hook(NamedTuple):
    """A callable, and the path by which errors name it."""

    path: str
    call: Callable[[Any], Any]


def before_enqueue() -> tuple[Hook, ...]:
    """Return the hooks of ``BEFORE_ENQUEUE``. Raise ImproperlyConfigured if there is no such callable."""
    paths = conf.current().before_enqueue
    return _hooks("BEFORE_ENQUEUE", paths, "the call") if paths else ()


def around_attempt() -> tuple[Hook, ...]:
    """Return the hooks of ``AROUND_ATTEMPT``. Raise ImproperlyConfigured if there is no such callable."""
    paths = conf.current().around_attempt
    return _hooks("AROUND_ATTEMPT", paths, "the job") if paths else ()


@cache
def _hooks(setting: str, paths: tuple[str, ...], argument: str) -> tuple[Hook, ...]:
    return tuple(Hook(path, conf.callable_at(setting, path, argument)) for path in paths)


def _forget(*, setting: str, **_: Any) -> None:
    if setting == conf.NAME:
        _hooks.cache_clear()


setting_changed.connect(_forget, dispatch_uid=__name__)
