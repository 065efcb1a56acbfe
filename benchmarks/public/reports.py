"""How a job tells the adapter when it was produced, started and finished: a record of 24 bytes in a FIFO.

A write of so few bytes is atomic, so all threads of all worker processes can share the FIFO. The three times
are seconds since the epoch: all processes of a run use the clock of the same machine.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

VARIABLE = "BENCH_REPORTS"  # names the FIFO to the worker processes
_RECORD = struct.Struct("ddd")
_BLOCK = 65_536 // _RECORD.size * _RECORD.size


class Report(NamedTuple):
    """The times of one job."""

    produced: float
    started: float
    finished: float


def report(produced: float, started: float) -> None:
    """Report a job that has just finished, from a worker process."""
    os.write(_outlet(), _RECORD.pack(produced, started, time.time()))


@cache
def _outlet() -> int:
    return os.open(os.environ[VARIABLE], os.O_WRONLY)


class Inlet:
    """The end of the FIFO that the adapter reads."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "reports"
        os.mkfifo(self._path, mode=0o600)
        # Opened for both, so that the end of a worker process is not the end of the FIFO.
        self._file = os.open(self._path, os.O_RDWR)

    @property
    def environment(self) -> Mapping[str, str]:
        """What the environment of the worker processes needs."""
        return {VARIABLE: str(self._path)}

    def read(self, seconds: float) -> Iterator[Report]:
        """Wait at most so long, and return what has been reported."""
        if select.select([self._file], [], [], seconds)[0]:
            yield from map(Report._make, _RECORD.iter_unpack(os.read(self._file, _BLOCK)))
