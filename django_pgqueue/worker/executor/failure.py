"""The exception of a failed attempt, on its way from the job's thread to the log.

It holds the frames of the task, and with them whatever the task had in its hands. So it travels in the
``Result`` alone, and is gone when the line is written.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

__all__ = ["Failure", "RemoteError", "remote_error"]


class Failure(NamedTuple):
    """Why an attempt failed."""

    error: BaseException
    scope: Any = None  # of Sentry, in which the job ran; see worker/sentry.py


class RemoteError(Exception):
    """Stands for an exception that was raised in the process of an isolated job.

    Its class is made for the occasion and has the name of the original, which may be one that cannot be made
    again here. The original's traceback is its cause, as text.
    """


class _RemoteTraceback(Exception):
    """The traceback from the other process, as ``concurrent.futures`` shows it."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def remote_error(entry: str) -> RemoteError:
    """The exception that an entry of ``Job.errors`` (JSON) tells of."""
    told = json.loads(entry)
    module, _, name = told["class"].rpartition(".")
    error: RemoteError = type(name, (RemoteError,), {"__module__": module})(told["message"])
    error.__cause__ = _RemoteTraceback(told["traceback"])
    return error
