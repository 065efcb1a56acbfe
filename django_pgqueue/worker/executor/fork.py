"""Handle tasks that fork: the child belongs to the task, and nothing in it may act as the worker.

In the child, before any code of the task runs there:
- SIGTERM, SIGINT and SIGHUP get their default behavior. The worker's handlers would ignore them, and
  ``Pool.terminate()`` would wait forever.
- The database sockets and the worker's pipes are replaced by /dev/null. A child that outlives its worker
  would keep the worker's lock and the transactions of all its jobs alive. They are not closed: their numbers
  would be reused for other files, which code with the old number would then close. Django opens new
  connections in the child on demand.

A child that reaches the end of its task's body, in any way, ends there: it has no job to report. The child of
an async task ends where it would wait for its loop, a copy that shares its selector with the original: other
jobs would run their next step twice.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from django.db import connections

from ...postgres.liveness import client_parameters
from .connections import OPENED, watch_connections

T = TypeVar("T")

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FORKING = threading.local()
#: Files that a connection needs when it is opened.
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl", "passfile")
#: In a child only: these are kept forever, so that they are not closed by the garbage collector.
_INHERITED: list[Any] = []
_is_child = False


def call_body(function: Callable[..., T], args: Any, kwargs: Any) -> T:
    """Call a task's function. In a process that it has forked, this does not return."""
    try:
        return function(*args, **kwargs)
    finally:
        if _is_child:
            _end(sys.exception())


async def await_body(function: Callable[..., Coroutine[Any, Any, T]], args: Any, kwargs: Any) -> T:
    """Like ``call_body``, for a coroutine function."""
    try:
        return await _Steps(function(*args, **kwargs))
    finally:
        if _is_child:
            _end(sys.exception())


class _Steps(Generator[Any, Any, T]):
    """The steps of a coroutine from one wait for the loop to the next. A child ends at its first wait.

    ``__next__`` is written out, so that tracebacks contain only one frame before the frames of the task.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def __next__(self) -> Any:
        return _waits(self._coroutine.send(None))

    def send(self, value: Any) -> Any:
        return _waits(self._coroutine.send(value))

    def throw(self, *error: Any) -> Any:
        return _waits(self._coroutine.throw(*error))


#: The code that calls the body of a task. What comes behind it on a stack is of the task.
BODY = {each.__code__ for each in (call_body, await_body, _Steps.__next__, _Steps.send, _Steps.throw)}


def awaited_by(awaitable: Any) -> Any:
    """Return the coroutine that an awaitable of this module steps through; None for others."""
    return awaitable._coroutine if isinstance(awaitable, _Steps) else None


def _waits(awaited: Any) -> Any:
    if _is_child:
        _end(RuntimeError("a process forked by an async task cannot await, because the loop is its parent's"))
    return awaited


def _before() -> None:
    # Race: a signal that reaches the child before its handlers are reset would be lost.
    _FORKING.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    # Data in the buffers would be written twice.
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def _in_child(files: Callable[[], Iterable[int]]) -> None:
    global _is_child
    if _is_child:  # a child of a child, which has inherited nothing of the worker
        _unblock()
        return
    _is_child = True
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _let_go_of({*files()})
    finally:
        _unblock()


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _FORKING.blocked)


def _let_go_of(files: set[int]) -> None:
    """Drop the files and connections of the thread that forked, because they belong to the parent."""
    for raw in OPENED:
        _INHERITED.append(raw)
        with suppress(Exception):  # it is closed or broken
            files.add(raw.fileno())
    nothing = os.open(os.devnull, os.O_RDWR)
    for file in files:
        os.dup2(nothing, file, inheritable=file == 0)
    os.close(nothing)
    for connection in connections.all(initialized_only=True):
        if connection.connection is None or not hasattr(connection.connection, "pgconn"):
            continue
        # As after close(): inside the parent's transaction queries raise, and after it Django reconnects.
        connection.connection = None
        connection.closed_in_transaction = connection.in_atomic_block
    # The threads that maintain a pool do not exist here. A new pool is made when it is needed.
    pools = {id(pools): pools for c in connections.all() if (pools := getattr(c, "_connection_pools", None))}
    for of_class in pools.values():
        _INHERITED.extend(of_class.values())
        of_class.clear()


def _end(error: BaseException | None = None) -> NoReturn:
    """End this process like the interpreter would, but without the exit handlers of the worker it copies."""
    code = 0
    try:
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
            if code and not isinstance(error.code, int):
                sys.stderr.write(f"{error.code}\n")
        elif error is not None:
            code = 1
            traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code & 0xFF)


def prepare(files: Callable[[], Iterable[int]]) -> None:
    """Prepare this process for tasks, once, after ``django.setup()``. ``files``: the worker's descriptors."""
    _set_options()
    # Tasks must not close the streams that the worker logs to: logging would raise, and so would print().
    # Scripts that are called as tasks may: ``argparse.FileType`` returns standard output for ``-``.
    for stream in (sys.stdout, sys.stderr):
        stream.close = stream.flush  # type: ignore[method-assign]
    watch_connections()
    os.register_at_fork(before=_before, after_in_parent=_unblock, after_in_child=lambda: _in_child(files))


def _set_options() -> None:
    """Let the connections of tasks notice it when a server vanishes, unless OPTIONS say otherwise."""
    for alias in connections:
        if connections[alias].vendor == "postgresql":
            settings = connections.settings[alias]
            options = {**client_parameters(of_task=True), **settings.get("OPTIONS", {})}
            for name in _FILES:
                if (path := options.get(name)) and path != "system":  # sslrootcert=system is not a file
                    # Connecting again must work after a task has changed the working directory.
                    options[name] = str(Path(path).absolute())
            settings["OPTIONS"] = options
