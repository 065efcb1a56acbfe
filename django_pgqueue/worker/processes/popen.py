"""Helpers for ``Popen``: the environment of a new process, and whether a process has ended.

Where ``waitid`` exists, the state of a process can be read without reaping it. A process that has ended keeps
its id, and the id of its group, until ``Popen.wait``. macOS has ``waitid`` since Python 3.13. Before that,
``Popen`` and ``ps`` are used, and the id becomes free a moment earlier.
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
    """Return our environment with the path on which this process finds the project's modules."""
    # An empty entry means the reader's working directory. A task may have changed ours in the meantime.
    path = os.pathsep.join(entry or _HERE for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path, **test_environment()}


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has ended, whether or not it was waited for."""
    if not HAS_WAITID:
        return process.poll() is not None
    return process.returncode is not None or _last_change(process.pid) in {
        os.CLD_EXITED,
        os.CLD_KILLED,
        os.CLD_DUMPED,
    }


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process exists but is stopped until it gets SIGCONT."""
    if HAS_WAITID:
        return _last_change(process.pid) == os.CLD_STOPPED
    state = subprocess.run(
        ["ps", "-o", "state=", "-p", str(process.pid)], capture_output=True, text=True, check=False
    )
    return state.stdout.startswith("T")


def how_it_ended(code: int) -> str:
    """Describe the end of a process. ``code`` is that of ``Popen``: the exit code, or the negated signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"signal {-code}"


def _last_change(pid: int) -> int | None:
    """Return the last state change of the process; None if there was none."""
    flags = os.WEXITED | os.WSTOPPED | os.WCONTINUED | os.WNOHANG | os.WNOWAIT
    try:
        found = os.waitid(os.P_PID, pid, flags)
    except ChildProcessError:  # somebody else has waited for it, so its exit code is lost
        return os.CLD_EXITED
    return None if found is None else found.si_code
