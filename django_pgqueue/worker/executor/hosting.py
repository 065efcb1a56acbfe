"""What a process does before it runs its first task: tasks are somebody else's code, and may do anything."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from django.db import connections

from . import fork, session_watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["prepare"]

#: Files that a connection needs when it is opened.
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl", "passfile")


def prepare(files: Callable[[], Iterable[int]]) -> None:
    """Make this process fit to run tasks. Once, after ``django.setup()``.

    ``files`` tells which files, at the moment of the call, are the worker's own (``fork.guard``).
    """
    _pin_paths()
    _keep_streams()
    session_watch.install()
    fork.guard(files)


def _pin_paths() -> None:
    """A task that changes the working directory must not harm reconnections."""
    for alias in connections:
        options = connections.settings[alias].get("OPTIONS", {})
        for name in _FILES:
            path = options.get(name)
            if path and path != "system":  # sslrootcert=system is no file
                options[name] = str(Path(path).absolute())


def _keep_streams() -> None:
    """A task that closes what it prints to must not close what the worker logs to: logging raises then.

    Scripts that are called as tasks do, for instance: ``argparse.FileType`` gives them standard output for
    ``-``, and they close it as they would close a file. The next job that prints would fail.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.close = stream.flush  # type: ignore[method-assign]
