"""Management commands that start at once: forked from a process that has imported Django and done nothing.

An interpreter that imports Django takes ten times as long to start as a fork. multiprocessing's fork server
does the work; it lives as long as the test process that uses it. A forked command is like a started one but
for its command line in /proc, and its parent is the fork server.
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
    """A forked command; as much of ``subprocess.Popen`` as the tests use."""

    stdout = None

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        self._process = _CONTEXT.Process(target=_become, args=(arguments, environment, str(log)))
        self._process.start()
        self.pid: int = self._process.pid or 0

    def poll(self) -> int | None:
        """The exit code, or minus the signal; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code once it has ended. Raises ``TimeoutExpired``."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise TimeoutExpired("a forked command", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def fork_command(arguments: list[str], environment: dict[str, str], log: Path) -> Forked:
    """Run ``django-admin`` with these arguments in a new process that writes to ``log``."""
    log.touch()
    return Forked(arguments, environment, log)


def _become(arguments: list[str], environment: dict[str, str], log: str) -> NoReturn:
    """Be the command, as ``python -m django`` would be it."""
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
