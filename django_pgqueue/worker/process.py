"""One worker process: a pump on the main thread, and what ends it.

SIGTERM and SIGINT stop it within the grace, a second one at once. When its supervisor is gone, which shows as
the end of its standard input, it stops in the same way: no process is left behind.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING

from .options import WorkerOptions
from .pump import Pump
from .runner import Runner
from .signals import Announcer
from .verbosity import configure_logging
from .waker import Waker

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["FINISHED", "RECYCLED", "Assignment", "build_pump", "main"]

logger = logging.getLogger(__name__)

#: Exit codes: it was stopped or its burst is over; it wants to be replaced by a fresh process.
FINISHED = 0
RECYCLED = 64


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a supervisor tells a worker process."""

    options: WorkerOptions
    worker: int
    supervisor: int
    verbosity: int = 1

    def to_json(self) -> str:
        """As text, for the command line."""
        return json.dumps([self.options.to_json(), self.worker, self.supervisor, self.verbosity])

    @classmethod
    def from_json(cls, text: str) -> Assignment:
        """The inverse of ``to_json``."""
        options, worker, supervisor, verbosity = json.loads(text)
        return cls(WorkerOptions.from_json(options), worker, supervisor, verbosity)


def new_id() -> int:
    """A random id that never was and never will be again, for a worker or as the base of its leases."""
    # 62 bits: a lease is the base plus a counter, and must not leave the range of bigint.
    return secrets.randbits(62)


def build_pump(assignment: Assignment) -> Pump:
    """Everything that a worker process consists of, wired."""
    options = assignment.options
    return Pump(
        options,
        worker=assignment.worker,
        supervisor=assignment.supervisor,
        lease_base=new_id(),
        runner=Runner(options.alias, assignment.worker, Announcer()),
        waker=Waker(),
    )


def main(assignment_json: str) -> int:
    """Run until stopped; returns the exit code."""
    assignment = Assignment.from_json(assignment_json)
    configure_logging(assignment.verbosity)
    pump = build_pump(assignment)
    _stop_on_signals(pump)
    Thread(target=_stop_with_supervisor, args=(pump,), name="pgqueue-supervisor-watch", daemon=True).start()
    pump.run()
    return RECYCLED if pump.recycled else FINISHED


def _stop_on_signals(pump: Pump) -> None:
    asked = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        pump.stop(0.0 if asked else pump.options.grace)
        asked = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def _stop_with_supervisor(pump: Pump) -> None:
    """The supervisor holds the other end of our standard input; it says nothing, but its end does."""
    while os.read(0, 1024):
        pass
    if not pump.stopping:
        logger.warning("the supervisor is gone; this worker stops")
    pump.stop(pump.options.grace)
