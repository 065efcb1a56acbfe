"""Turn an exception into an entry of ``Job.errors``: printable, limited in size, and with a fingerprint."""

from __future__ import annotations

import hashlib
import json
import traceback
from typing import TYPE_CHECKING

from ..tracebacks import format_error

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["describe", "error_entry", "fingerprint"]

_CUT = "\n... {} bytes left out ...\n"


def describe(error: BaseException) -> str:
    """Return ``str(error)``, or a replacement if that raises."""
    try:
        return str(error)
    except BaseException as second:  # its __str__ may raise anything, including SystemExit
        return f"<str() of this {type(error).__qualname__} raised {type(second).__qualname__}>"


def error_entry(error: BaseException, worker: int, attempt: int, limit: int) -> str:
    """Return the entry as JSON, with at most about ``limit`` bytes of text. The database adds the times."""
    cls = type(error)
    return json.dumps(
        {
            "class": _printable(f"{cls.__module__}.{cls.__qualname__}"),
            "message": _shorten(_printable(describe(error)), limit // 4),
            "traceback": _shorten(_printable(_format(error)), limit - limit // 4),
            "worker": str(worker),
            "attempt": attempt,
        }
    )


def fingerprint(error: BaseException, task_path: str) -> str:
    """Return a value that is the same for failures of one task with the same class and functions.

    The message and the line numbers are left out, so that different values and later edits do not split a
    group.
    """
    places = [
        f"{frame.f_code.co_filename}:{frame.f_code.co_name}"
        for frame, _ in traceback.walk_tb(user_frames(error))
    ]
    cls = type(error)
    text = "\n".join([task_path, f"{cls.__module__}.{cls.__qualname__}", *places])
    return hashlib.sha1(text.encode("utf-8", "backslashreplace"), usedforsecurity=False).hexdigest()


def user_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback without the worker's frames, which do not help the author of the task."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_globals.get("__package__") == __package__:
        found = found.tb_next
    return found or error.__traceback__


def _format(error: BaseException) -> str:
    try:
        return format_error(error, user_frames(error))
    except BaseException as second:  # formatting an exception may raise, too
        return f"<this {type(error).__qualname__} cannot be printed: {type(second).__qualname__}>"


def _printable(text: str) -> str:
    """Escape the characters that jsonb refuses: NUL and lone surrogates."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def _shorten(text: str, limit: int) -> str:
    """Cut the text to ``limit`` bytes. Keep more of the end, because the end of a traceback matters most."""
    data = text.encode()
    if len(data) <= limit:
        return text
    head = limit // 4
    tail = limit - head
    left_out = len(data) - limit
    first, last = (part.decode(errors="ignore") for part in (data[:head], data[len(data) - tail :]))
    return first + _CUT.format(left_out) + last
