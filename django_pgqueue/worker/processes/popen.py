"""Around ``Popen``: the environment for a process that we start, and what has become of it.

The news is not taken away from ``Popen``: where ``waitid`` exists one can look and leave everything as it
was. A process that has ended keeps its number, and with it the number of its group, until ``Popen.wait``.
macOS has it since Python 3.13; before, ``Popen`` and ``ps`` must do, and the number is free a moment earlier.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from .testing import test_environment

__all__ = ["child_environment", "has_ended", "how_it_ended", "is_stopped"]

HAS_WAITID = hasattr(os, "waitid")

_HERE = str(Path.cwd())


def child_environment() -> dict[str, str]:
    """Ours, with the path by which this process finds the project's modules, whatever started it."""
    # An empty entry means the working directory of whoever reads it; a task may have changed ours since.
    path = os.pathsep.join(entry or _HERE for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path, **test_environment()}


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended, waited for or not."""
    if not HAS_WAITID:
        return process.poll() is not None
    return process.returncode is not None or _last_change(process.pid) in {
        os.CLD_EXITED,
        os.CLD_KILLED,
        os.CLD_DUMPED,
    }


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """Whether it exists, but does nothing until it gets SIGCONT."""
    if HAS_WAITID:
        return _last_change(process.pid) == os.CLD_STOPPED
    state = subprocess.run(
        ["ps", "-o", "state=", "-p", str(process.pid)], capture_output=True, text=True, check=False
    )
    return state.stdout.startswith("T")


def how_it_ended(code: int) -> str:
    """In words; ``code`` as ``Popen`` has it: the exit code, or minus the signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"signal {-code}"


def _last_change(pid: int) -> int | None:
    """What happened to it last; None: nothing yet."""
    flags = os.WEXITED | os.WSTOPPED | os.WCONTINUED | os.WNOHANG | os.WNOWAIT
    try:
        found = os.waitid(os.P_PID, pid, flags)
    except ChildProcessError:  # somebody else has waited for it: its exit code is lost
        return os.CLD_EXITED
    return None if found is None else found.si_code
