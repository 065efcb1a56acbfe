"""The exception of a failed attempt, on its way from the job's thread to the log.

It refers to the frames of the task, and so to the values of the task's variables. To free them soon, only the
``Result`` refers to it, until the line is logged.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

__all__ = ["Failure", "RemoteError", "remote_error"]


class Failure(NamedTuple):
    """Why an attempt failed."""

    error: BaseException
    scope: Any = None  # the Sentry scope in which the job ran; see sentry.py


class RemoteError(Exception):
    """Stands for an exception that was raised in the process of an isolated job.

    Each one gets a subclass with the name of the original class, because an instance of the original may be
    impossible to create here. Its cause contains the original traceback as text.
    """


class _RemoteTraceback(Exception):
    """The traceback from the other process, as ``concurrent.futures`` shows it."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def remote_error(entry: str) -> RemoteError:
    """Return an exception for an entry of ``Job.errors`` (JSON)."""
    told = json.loads(entry)
    module, _, name = told["class"].rpartition(".")
    error: RemoteError = type(name, (RemoteError,), {"__module__": module})(told["message"])
    error.__cause__ = _RemoteTraceback(told["traceback"])
    return error
