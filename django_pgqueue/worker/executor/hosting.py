"""Prepare a process before it runs its first task. Tasks are other people's code and may do anything."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from django.db import connections

from ...half_open import client_parameters
from . import fork, session_watch
from .connections import keep_open

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["prepare"]

#: Files that a connection needs when it is opened.
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl", "passfile")


def prepare(files: Callable[[], Iterable[int]]) -> None:
    """Prepare this process to run tasks. Call this once, after ``django.setup()``.

    ``files`` returns the file descriptors that belong to the worker when it is called (``fork.guard``).
    """
    _pin_paths()
    _notice_vanished_servers()
    _keep_streams()
    session_watch.install()
    keep_open()
    fork.guard(files)


def _pin_paths() -> None:
    """Make file paths absolute, so that reconnecting works after a task changed the working directory."""
    for alias in connections:
        options = connections.settings[alias].get("OPTIONS", {})
        for name in _FILES:
            path = options.get(name)
            if path and path != "system":  # sslrootcert=system is not a file
                options[name] = str(Path(path).absolute())


def _notice_vanished_servers() -> None:
    """Let the connections of tasks notice it when a server vanishes, unless OPTIONS say otherwise."""
    for alias in connections:
        if connections[alias].vendor == "postgresql":
            settings = connections.settings[alias]
            settings["OPTIONS"] = {**client_parameters(of_task=True), **settings.get("OPTIONS", {})}


def _keep_streams() -> None:
    """Keep tasks from closing the streams that the worker logs to: logging would raise, and so would print.

    Scripts that are called as tasks may close them, for instance: ``argparse.FileType`` returns standard
    output for ``-``, and they close it as they would close a file.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.close = stream.flush  # type: ignore[method-assign]
