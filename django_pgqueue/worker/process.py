"""One worker process: a pump on the main thread, and what ends it.

SIGTERM, SIGINT and SIGHUP stop it within the grace, a second SIGTERM or SIGINT at once. When its supervisor
is gone it is killed on Linux (``die_with``); elsewhere it sees the end of its link to it and stops within
the grace: no process is left behind.
"""

from __future__ import annotations

import logging
import os
import signal
from threading import Thread
from typing import TYPE_CHECKING

from .executor import hosting
from .executor.isolation import Quarantine
from .executor.runner import Runner
from .executor.task_signals import Announcer
from .logs import configure_logging
from .options import FINISHED, RECYCLED, Assignment, new_id
from .processes.started_jobs import Board
from .producer.producer import Pump
from .waker import Waker

if TYPE_CHECKING:
    from types import FrameType

    from .processes.parent_link import ParentLink

__all__ = ["build_pump", "main"]

logger = logging.getLogger(__name__)


def build_pump(assignment: Assignment) -> Pump:
    """Everything that a worker process consists of, wired."""
    options, worker = assignment.options, assignment.worker
    file = assignment.board
    board = Board.private(options.threads) if file is None else Board.inherited(file)
    quarantine = Quarantine(options.alias, worker, assignment.verbosity)
    return Pump(
        options,
        worker=worker,
        supervisor=assignment.supervisor,
        lease_base=new_id(),
        runner=Runner(options.alias, worker, Announcer(), board, quarantine),
        waker=Waker(),
        board=board,
    )


def main(assignment_json: str, link: ParentLink) -> int:
    """Run until stopped; returns the exit code."""
    assignment = Assignment.from_json(assignment_json)
    configure_logging(assignment.verbosity)
    pump = build_pump(assignment)
    hosting.prepare(lambda: {*pump.files(), link.file})
    _stop_on_signals(pump)
    watch = Thread(
        target=_stop_with_supervisor, args=(pump, link), name="pgqueue-supervisor-watch", daemon=True
    )
    watch.start()
    pump.run()
    code = RECYCLED if pump.lifetime.replaced else FINISHED
    link.finished(code)
    if pump.holding.overdue:
        _end_at_once(code)
    return code


def _stop_on_signals(pump: Pump) -> None:
    """SIGINT means at once, and comes from the supervisor alone. SIGTERM does not, however often it comes:
    systemd and others send it to every process of a service, and the supervisor sends it besides.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        pump.stop(0.0 if number == signal.SIGINT else pump.options.grace)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, stop)


def _stop_with_supervisor(pump: Pump, link: ParentLink) -> None:
    link.wait_for_end()
    if not pump.lifetime.stopping:
        logger.warning("the supervisor is gone; this worker stops")
    pump.stop(pump.options.grace)


def _end_at_once(code: int) -> None:
    """What is overdue runs on until this process is gone, and so does what it has started."""
    logging.shutdown()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(code)
