"""The fingerprint of a failure: the same for failures with the same error at the same place in the code.

It consists of the class of the exception and of the function that raised it: the innermost one in the code of
the project, as "module:function". Each exception from which it was raised (``raise ... from``) adds its own.
The message, the line numbers, the folder of the project and the callers are left out. So different values,
later edits, another release folder and other tasks that call the same function do not split a group.

A failure without such a place has the fingerprint of its class and its task, which ``fingerprint_v1.sql``
computes in the same way. Errors that may strike anywhere, such as timeouts, have no place.
"""

from __future__ import annotations

import hashlib
import sysconfig
import traceback
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...exceptions import TaskTimeout, TooManyCrashes, UnknownTask, WorkerLost

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["fingerprint"]

_LONGEST_CHAIN = 10
_ANYWHERE = (TaskTimeout, TooManyCrashes, UnknownTask, WorkerLost, RecursionError, MemoryError)
_PACKAGE = f"{Path(__file__).parents[2]}/"
_STANDARD = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))
_INSTALLED = ("/site-packages/", "/dist-packages/")


def fingerprint(error: BaseException, task_path: str) -> str:
    """Return the fingerprint of a failure of this task: 40 hexadecimal digits."""
    lines: list[str] = []
    each: BaseException | None = error
    while each is not None and len(lines) < 2 * _LONGEST_CHAIN:  # it may be a circle
        lines += [_class(each), _place(each, task_path.partition(".")[0])]
        each = each.__cause__
    if isinstance(error, _ANYWHERE) or not any(lines[1::2]):
        lines = [_class(error), task_path]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "backslashreplace")).hexdigest()[:40]


def _class(error: BaseException) -> str:
    cls = type(error)
    return f"{cls.__module__}.{cls.__qualname__}"


def _place(error: BaseException, project: str) -> str:
    """Return the innermost function in the code of the project; empty if there is none.

    ``project``: the package of the task. It is the project's code even if it is installed like a library.
    """
    place = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__") or ""
        if _is_projects(frame.f_code.co_filename) or _is_in(module, project, frame):
            place = f"{module}:{frame.f_code.co_qualname}"
    return place


@lru_cache(maxsize=4096)
def _is_projects(filename: str) -> bool:
    if filename.startswith((_PACKAGE, "<frozen")):
        return False
    return not any(folder in filename for folder in _INSTALLED) and not filename.startswith(_STANDARD)


def _is_in(module: str, project: str, frame: FrameType) -> bool:
    return module.partition(".")[0] == project and not frame.f_code.co_filename.startswith(_PACKAGE)
