"""A program of the benchmarks that runs beside the workers and is told by lines what to do."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Program", "ProgramError", "beside"]

ROOT = Path(__file__).resolve().parent.parent


class ProgramError(Exception):
    """The program ended too early. The text is the end of what it printed as errors."""


class Program:
    """The running program."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def answer(self) -> list[str]:
        """Wait for its next line and return the words."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ProgramError(self._log.read_text(errors="replace")[-3000:])
        return line.split()

    def tell(self, line: str) -> None:
        """Send it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()


@contextmanager
def beside(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[Program]:
    """Run the program; kill it at the end."""
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield Program(process, log)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
