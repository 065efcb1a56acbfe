"""Start management commands quickly, by forking a process that has imported Django and done nothing else.

A new interpreter that imports Django takes ten times as long to start as a fork. This uses the fork server of
multiprocessing, which lives as long as the test process that uses it. A forked command differs from a started
one only in its command line in /proc, and in its parent, which is the fork server.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from pathlib import Path
from subprocess import TimeoutExpired
from typing import NoReturn

__all__ = ["Forked", "fork_command"]

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.support.preloaded"])


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
    sys.argv = ["django", *arguments]
    sys.orig_argv[:] = [sys.executable, "-m", "django", *arguments]
    from django.core.management import execute_from_command_line

    execute_from_command_line()
    sys.exit()
