"""Turn an exception into an entry of ``Job.errors``: printable, and limited in size."""

from __future__ import annotations

import hashlib
import json
import sysconfig
import traceback
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

from ... import conf
from ...exceptions import TaskTimeout, TooManyCrashes, UnknownTask, WorkerLost
from ...formatting import shorten, storable
from ...tasks.retry import leaves
from ..logs import format_error

LONGEST_CLASS = 255  # characters of the name of an exception class, which code may make
_LONGEST_CHAIN = 100


def describe(error: BaseException) -> str:
    """Return ``str(error)``, or a replacement if that raises."""
    try:
        return str(error)
    except BaseException as second:  # its __str__ may raise anything, including SystemExit
        return f"<str() of this {type(error).__qualname__} raised {type(second).__qualname__}>"


def error_entry(error: BaseException, worker: int, attempt: int, **more: Any) -> str:
    """Return the entry as JSON. The database adds the times. ``more``: the job's step and progress."""
    limit = conf.current().max_error_bytes
    try:
        printed = format_error(error, user_frames(error))
    except BaseException as second:  # formatting an exception may raise, too
        printed = f"<this {type(error).__qualname__} cannot be printed: {type(second).__qualname__}>"
    return json.dumps(
        {
            "class": storable(_class(error)[:LONGEST_CLASS]),
            "message": shorten(storable(describe(error)), limit // 4),
            "traceback": shorten(storable(printed), limit - limit // 4),
            "worker": str(worker),
            "attempt": attempt,
            **({"version": version} if (version := conf.current().version) else {}),
            **more,
        },
        ensure_ascii=False,  # so that the session sees characters that the server cannot hold
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
    queue = [error]
    for each in islice(queue, _LONGEST_CHAIN):  # grows meanwhile, and may be a circle
        if each is None:
            continue
        step: str = vars(each).get("_pgqueue_step", "")
        if step:
            return step
        if isinstance(each, BaseExceptionGroup):
            queue += each.exceptions
        queue.append(each.__context__ if each.__cause__ is None else each.__cause__)
    return ""


# The fingerprint of a failure: the same for failures with the same error at the same place in the code. It
# consists of the class of the exception and of the function that raised it: the innermost one in the code of
# the project, as "module:function". Each exception from which it was raised (``raise ... from``) adds its
# own, and so does each one in a group, so different values, later edits, another release folder and other
# tasks that call the same function do not split a group. A failure without such a place has the fingerprint
# of its class and its task, which ``_pgqueue_fingerprint`` computes in the same way. Errors that may strike
# anywhere, such as timeouts, have no place.

_CHAIN_IN_FINGERPRINT = 10
_ANYWHERE = (TaskTimeout, TooManyCrashes, UnknownTask, WorkerLost, RecursionError, MemoryError)
_PACKAGE = f"{Path(__file__).parents[2]}/"
_STANDARD = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))
_INSTALLED = ("/site-packages/", "/dist-packages/")


def fingerprint(error: BaseException, task_path: str) -> str:
    """Return the fingerprint of a failure of this task: 40 hexadecimal digits."""
    project = task_path.partition(".")[0]
    lines: list[str] = []
    each: BaseException | None = error
    for _ in range(_CHAIN_IN_FINGERPRINT):  # it may be a circle
        if each is None:
            break
        lines += [_class(each), _place(each, project)]
        if isinstance(each, BaseExceptionGroup):
            # Neither their number nor their order counts: both depend on when the others were cancelled.
            for pair in sorted({(_class(leaf), _place(leaf, project)) for leaf in leaves(each)}):
                lines += pair
        each = each.__cause__
    if all(isinstance(leaf, _ANYWHERE) for leaf in leaves(error)) or not any(lines[1::2]):
        lines = [_class(error), task_path]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "backslashreplace")).hexdigest()[:40]


def _class(error: BaseException) -> str:
    cls = type(error)
    return f"{cls.__module__}.{cls.__qualname__}"


def _place(error: BaseException, project: str) -> str:
    """Return the innermost function in the project's code, or in ``project``, the task's package; or none."""
    place = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__") or ""
        file = frame.f_code.co_filename
        if _is_projects(file) or (module.partition(".")[0] == project and not file.startswith(_PACKAGE)):
            place = f"{module}:{frame.f_code.co_qualname}"
    return place


@lru_cache(maxsize=4096)
def _is_projects(filename: str) -> bool:
    if filename.startswith((_PACKAGE, "<frozen")):
        return False
    return not any(folder in filename for folder in _INSTALLED) and not filename.startswith(_STANDARD)


class RemoteError(Exception):
    """Stands for an exception of an isolated job, with its traceback as a note.

    Each gets a subclass with the name of the original class, of which an instance may be impossible here.
    """


def remote_error(entry: str) -> RemoteError:
    """Return an exception for an entry of ``Job.errors`` (JSON)."""
    stored = json.loads(entry)
    module, _, name = stored["class"].rpartition(".")
    error: RemoteError = type(name, (RemoteError,), {"__module__": module})(stored["message"])
    error.add_note(stored["traceback"].rstrip())
    return error
