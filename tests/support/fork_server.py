"""Start management commands and their worker processes quickly, by forking a process that has imported Django
and done nothing else.

A new interpreter that imports Django takes ten times as long to start as a fork. Commands are forked by the
fork server of multiprocessing, which lives as long as the test process that uses it. A forked command differs
from a started one only in its command line in /proc, and in its parent, which is the fork server.

A command forks a `Nursery` before it sets up Django. This one forks the worker processes, which become
children of the command as if it had started them. They differ from started ones only in their command line.
Commands that are started, and those that run in the process of a test, start interpreters; and so do all
commands of the fault suite, whose tasks and faults reach into the process.
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
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import F_DUPFD_CLOEXEC, fcntl
from pathlib import Path
from subprocess import TimeoutExpired
from threading import Lock
from typing import Any, NoReturn

_CONTEXT = multiprocessing.get_context("forkserver")
#: What every forked command has already imported: of Django, psycopg and others, what reads no settings.
_CONTEXT.set_forkserver_preload([
    "asyncio", "cronsim", "django.contrib.postgres.apps", "django.core.management",
    "django.core.management.commands.check", "django.db.backends.postgresql.base",
    "django.db.migrations.executor", "django.db.models", "django.template.defaultfilters",
    "django.template.loader", "django.urls", "django.utils.translation.trans_real", "django.views.debug",
    "environ", "logging.config", "psycopg",
])  # fmt: skip


class Forked:
    """A forked command, with the part of the interface of ``subprocess.Popen`` that the tests use."""

    stdout = None

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        self._process = _CONTEXT.Process(target=_become, args=(arguments, environment, str(log)))
        self._process.start()
        self.pid: int = self._process.pid or 0

    def poll(self) -> int | None:
        """Return the exit code, or the negative number of the signal, or None while the command runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the command has ended, and return its exit code. Raises ``TimeoutExpired``."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise TimeoutExpired("a forked command", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal to the command if it is still running."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def fork_command(arguments: list[str], environment: dict[str, str], log: Path) -> Forked:
    """Run ``django-admin`` with these arguments in a new process that writes to ``log``."""
    log.touch()
    return Forked(arguments, environment, log)


def _become(arguments: list[str], environment: dict[str, str], log: str) -> NoReturn:
    """Run the command in this process, as ``python -m django`` would."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    os.environ.clear()
    os.environ.update(environment)
    sys.pycache_prefix = environment.get("PYTHONPYCACHEPREFIX")
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    if sys.platform == "linux" and "TEST_INTERPRETERS" not in environment:
        Nursery.open()
    sys.argv = ["django", *arguments]
    sys.orig_argv[:] = [sys.executable, "-m", "django", *arguments]
    from django.core.management import execute_from_command_line

    execute_from_command_line()
    sys.exit()


_WORKER = ["-m", "django_pgqueue.worker", "worker"]  # and the parent's id
_PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h
_LARGEST = 1 << 20  # bytes of a request


class Nursery:
    """A process that forks worker processes for its parent, the command."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._lock = Lock()

    @classmethod
    def open(cls) -> None:
        """Fork the nursery, and let this process start its worker processes there."""
        line, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if not os.fork():
            line.close()
            _serve(its_end)
        its_end.close()
        nursery = cls(line)

        class Popen(subprocess.Popen[Any]):
            def _execute_child(self, args: Any, executable: Any, *others: Any) -> None:
                _, _, pass_fds, _, env, *_ = others
                if executable is None and args[0] == sys.executable and args[-4:-1] == _WORKER:
                    self.pid = nursery.fork(args, env, [others[8], *pass_fds])
                    self._child_created = True
                else:
                    super()._execute_child(args, executable, *others)  # type: ignore[misc]

        subprocess.Popen = Popen  # type: ignore[misc]

    def fork(self, command: list[str], environment: dict[str, str], files: list[int]) -> int:
        """Return the id of a new worker process. The first of the files is its standard input, and the others
        have the same numbers there.
        """
        request = json.dumps([command, environment, files]).encode()
        with self._lock, _adopting():
            socket.send_fds(self._line, [request], files)
            return int(self._line.recv(32))


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
    """Fork worker processes until the command has ended. Return only in such a process, as `_become` does."""
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
            os._exit(0)  # so that the command adopts the other one
        while os.getppid() == between:
            time.sleep(0.0005)
        os.setpgid(0, 0)
        line.send(str(os.getpid()).encode())
        line.close()
        _become_worker(request, files)


def _become_worker(request: bytes, files: list[int]) -> NoReturn:
    """Run the worker process in this one, as the command would with a new interpreter."""
    command, environment, numbers = json.loads(request)
    kept = [fcntl(file, F_DUPFD_CLOEXEC, 1 + max(numbers)) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(kept, [0, *numbers[1:]], strict=True):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = dict.fromkeys([*environment["PYTHONPATH"].split(os.pathsep), *sys.path])
    sys.argv = command[-3:]
    sys.orig_argv[:] = command
    runpy.run_module("django_pgqueue.worker", run_name="__main__", alter_sys=True)
    sys.exit()
