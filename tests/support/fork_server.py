"""Start management commands and their worker processes quickly, by forking a process that has imported Django
and done nothing else.

A new interpreter that imports Django takes ten times as long to start as a fork. Commands are forked by the
fork server of multiprocessing, which lives as long as the test process that uses it. A forked command differs
from a started one only in its command line in /proc, and in its parent, which is the fork server.

A command forks a `Nursery` before it sets up Django. This one forks what the command starts: the worker
processes, or the command that a reloader runs. They become children of the command as if it had started them,
and fork the processes of isolated jobs in the same way. They differ from started ones only in their command
line and in /proc/<pid>/environ. Commands that are started start interpreters; and so do all commands of the
fault suite, whose tasks and faults reach into the process. Those that run in the process of a test start
interpreters unless the test has ``forks_here``.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import F_DUPFD_CLOEXEC, fcntl
from functools import cache
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from subprocess import TimeoutExpired
from threading import Lock
from typing import Any, NoReturn

_CONTEXT = multiprocessing.get_context("forkserver")
#: What every forked command has already imported: of Django, psycopg, this package and others, what reads no
#: settings.
_CONTEXT.set_forkserver_preload([
    "asyncio", "cronsim", "django.contrib.postgres.apps", "django.core.management",
    "django.core.management.commands.check", "django.db.backends.postgresql.base",
    "django.db.migrations.executor", "django.db.models", "django.template.defaultfilters",
    "django.template.loader", "django.urls", "django.utils.translation.trans_real", "django.views.debug",
    "django_pgqueue.checks.backends", "django_pgqueue.jobs.payloads", "django_pgqueue.jobs.results",
    "django_pgqueue.management._reload", "django_pgqueue.operations", "django_pgqueue.postgres.roles",
    "django_pgqueue.schedules.declare", "django_pgqueue.schedules.fire", "django_pgqueue.worker.logs",
    "django_pgqueue.worker.supervisor.child", "environ", "logging.config", "psycopg",
])  # fmt: skip


class Forked(ForkServerProcess):
    """A forked command, with the part of the interface of ``subprocess.Popen`` that the tests use."""

    stdout = None
    pid: int

    def poll(self) -> int | None:
        """Return the exit code, or the negative number of the signal, or None while the command runs."""
        return self.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the command has ended, and return its exit code. Raises ``TimeoutExpired``."""
        self.join(timeout)
        if self.exitcode is None:
            raise TimeoutExpired("a forked command", timeout or 0.0)
        return self.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal to the command if it is still running."""
        if self.poll() is None:
            os.kill(self.pid, number)


def fork_command(command: list[str], environment: dict[str, str], log: Path) -> Forked:
    """Run ``python -m`` with this module and these arguments in a new process that writes to ``log``."""
    log.touch()
    forked = Forked(target=_become, args=([sys.executable, "-m", *command], environment, str(log)))
    forked.start()
    return forked


def _become(command: list[str], environment: dict[str, str], log: str) -> NoReturn:
    """Run the command in this process, as a new interpreter would."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    sys.pycache_prefix = environment.get("PYTHONPYCACHEPREFIX")
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    if sys.platform == "linux" and "TEST_INTERPRETERS" not in environment:
        Nursery.open()
    _run(command, environment)


def _run(command: list[str], environment: dict[str, str]) -> NoReturn:
    """Run ``python -m`` in this process, with this environment."""
    os.environ.clear()
    os.environ.update(environment)
    path = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = dict.fromkeys([*filter(None, path), *sys.path])
    sys.stdin = os.fdopen(0, closefd=False)  # multiprocessing has closed it
    sys.orig_argv[:] = command
    sys.argv = command[command.index("-m") + 1 :]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    sys.exit()


_FORKED = {"django", "django_pgqueue.worker"}  # modules
_EXECUTABLE = sys.executable
_PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h
_LARGEST = 1 << 20  # bytes of a request


class Nursery:
    """A process that forks worker processes for its parent, the command."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    @classmethod
    def open(cls) -> None:
        """Fork the nursery, and let this process start its worker processes there."""
        line, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if not os.fork():
            line.close()
            _serve(its_end)
        its_end.close()
        subprocess.Popen = popen(lambda: cls(line))  # type: ignore[assignment,misc]

    @classmethod
    def beside(cls) -> Nursery:
        """Let the fork server fork a nursery for this process, which may have set up Django."""
        line, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        _CONTEXT.Process(target=_serve, args=(its_end,), daemon=True).start()
        its_end.close()
        return cls(line)

    def fork(self, command: list[str], environment: dict[str, str], files: dict[int, int]) -> int:
        """Return the id of a new process. ``files``: its open files, and ours by that number there."""
        request = json.dumps([command, environment, list(files)]).encode()
        with _adopting():
            socket.send_fds(self._line, [request], list(files.values()))
            return int(self._line.recv(32))


def popen(nursery: Callable[[], Nursery]) -> type[subprocess.Popen[Any]]:
    """Return a class that lets a nursery, made when it is needed, start processes of this package."""
    lock, made = Lock(), cache(nursery)

    def fork(*request: Any) -> int:
        with lock:
            return made().fork(*request)

    class Popen(subprocess.Popen[Any]):
        def _execute_child(self, args: Any, executable: Any, *others: Any) -> None:
            _, _, pass_fds, _, env, _, _, _, stdin, _, _, stdout, _, stderr, *_ = others
            is_python = executable is None and args[0] == _EXECUTABLE and "-m" in args
            if is_python and args[args.index("-m") + 1] in _FORKED and stdin != -1 == stdout == stderr:
                given = {0: stdin, 1: 1, 2: 2, **{file: file for file in pass_fds}}
                self.pid = fork(args, env, given)
                self._child_created = True
            else:
                super()._execute_child(args, executable, *others)  # type: ignore[misc]

    return Popen


#: For the process of the tests, which has set up Django.
POPEN = popen(Nursery.beside)


@contextmanager
def _adopting() -> Iterator[None]:
    """Become the parent of the processes of children that end meanwhile."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(0))


def _serve(line: socket.socket) -> None:
    """Fork processes until the other end is closed. Return only in such a process, as `_become` does."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.closerange(3, line.fileno())  # nobody waits for this process to close what it has inherited
    os.closerange(line.fileno() + 1, 1024)
    while True:
        request, files, *_ = socket.recv_fds(line, _LARGEST, 8)
        if not request:
            os._exit(0)
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            for file in files:
                os.close(file)
            continue
        between = os.getpid()
        if os.fork():
            os._exit(0)  # so that the starter adopts the other one
        while os.getppid() == between:
            time.sleep(0.0005)
        os.setpgid(0, 0)
        line.send(str(os.getpid()).encode())
        line.close()
        _become_started(request, files)


def _become_started(request: bytes, files: list[int]) -> NoReturn:
    """Run what was to be started in this process, as a new interpreter would."""
    command, environment, numbers = json.loads(request)
    kept = [fcntl(file, F_DUPFD_CLOEXEC, 1 + max(numbers)) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(kept, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)
    if "isolated" not in command:  # such a process starts nothing
        Nursery.open()
    _run(command, environment)
