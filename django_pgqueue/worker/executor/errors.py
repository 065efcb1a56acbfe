"""Turn an exception into an entry of ``Job.errors``: printable, and limited in size."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ... import conf
from ..tracebacks import format_error, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

__all__ = ["describe", "error_entry", "note_step", "step_of", "user_frames"]

LONGEST_CLASS = 255
"""Characters of the name of an exception class. Code that makes classes may make any name."""
_LONGEST_CHAIN = 100


def describe(error: BaseException) -> str:
    """Return ``str(error)``, or a replacement if that raises."""
    try:
        return str(error)
    except BaseException as second:  # its __str__ may raise anything, including SystemExit
        return f"<str() of this {type(error).__qualname__} raised {type(second).__qualname__}>"


def error_entry(
    error: BaseException, worker: int, attempt: int, limit: int, more: Mapping[str, Any] | None = None
) -> str:
    """Return the entry as JSON, with at most about ``limit`` bytes of text. The database adds the times.

    ``more``: the step and the progress of the job, if there are any.
    """
    cls = type(error)
    return json.dumps(
        {
            "class": _printable(f"{cls.__module__}.{cls.__qualname__}"[:LONGEST_CLASS]),
            "message": shorten(_printable(describe(error)), limit // 4),
            "traceback": shorten(_printable(_format(error)), limit - limit // 4),
            "worker": str(worker),
            "attempt": attempt,
            **({"version": version} if (version := conf.current().version) else {}),
            **(more or {}),
        }
    )


def user_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback without the worker's frames, which do not help the author of the task."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_globals.get("__package__") == __package__:
        found = found.tb_next
    return found or error.__traceback__


def note_step(error: BaseException, name: str) -> None:
    """Remember in which step of the job an exception was raised."""
    with suppress(AttributeError, TypeError):  # its class may refuse attributes
        error._pgqueue_step = name  # type: ignore[attr-defined]


def step_of(error: BaseException | None) -> str:
    """Return the step in which an exception, or one that it goes back to, was raised; otherwise nothing."""
    for _ in range(_LONGEST_CHAIN):  # it may be a circle
        if error is None:
            break
        step: str = vars(error).get("_pgqueue_step", "")
        if step:
            return step
        error = error.__context__ if error.__cause__ is None else error.__cause__
    return ""


def _format(error: BaseException) -> str:
    try:
        return format_error(error, user_frames(error))
    except BaseException as second:  # formatting an exception may raise, too
        return f"<this {type(error).__qualname__} cannot be printed: {type(second).__qualname__}>"


def _printable(text: str) -> str:
    """Escape the characters that jsonb refuses: NUL and lone surrogates."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
