"""One worker process: a producer on the main thread, and what ends it.

SIGTERM and SIGHUP stop it within the grace, SIGINT without a grace. When its supervisor dies, it is killed on
Linux (``die_with``); elsewhere it sees that its link to the supervisor is closed and stops within the grace.
No process is left behind.
"""

from __future__ import annotations

import logging
import os
import signal
from threading import Thread
from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured

from .. import database_settings
from . import sentry
from .executor import hosting
from .executor.isolation import Isolation
from .executor.runner import Runner
from .executor.task_signals import Announcer
from .logs import configure_logging
from .options import FINISHED, RECYCLED, Assignment, new_id
from .processes.memory import read_memory
from .processes.started_jobs import StartedJobs
from .producer.producer import Producer
from .waker import Waker

if TYPE_CHECKING:
    from types import FrameType

    from .processes.parent_link import ParentLink

__all__ = ["build_producer", "main"]

logger = logging.getLogger(__name__)


def build_producer(assignment: Assignment, databases: str = "") -> Producer:
    """Everything that a worker process consists of, wired.

    ``databases``: the connection parameters to hand on to processes of its own (``database_settings``).
    """
    options, worker = assignment.options, assignment.worker
    file = assignment.started_jobs
    started_jobs = StartedJobs.private(options.threads) if file is None else StartedJobs.inherited(file)
    isolation = Isolation(options.alias, worker, assignment.verbosity, databases)
    return Producer(
        options,
        worker=worker,
        supervisor=assignment.supervisor,
        lease_base=new_id(),
        runner=Runner(options.alias, worker, Announcer(), started_jobs, isolation),
        waker=Waker(),
        started_jobs=started_jobs,
    )


def main(assignment_json: str, link: ParentLink) -> int:
    """Run until stopped; returns the exit code."""
    assignment = Assignment.from_json(assignment_json)
    configure_logging(assignment.verbosity)
    databases = _enter_databases(assignment)
    producer = build_producer(assignment, databases)
    hosting.prepare(lambda: {*producer.files(), link.file})
    _stop_on_signals(producer)
    watch = Thread(
        target=_stop_with_supervisor, args=(producer, link), name="pgqueue-supervisor-watch", daemon=True
    )
    watch.start()
    producer.run()
    code = RECYCLED if producer.lifetime.replaced else FINISHED
    link.finished(code)
    if producer.in_flight.overdue:
        _end_at_once(code)
    return code


def _enter_databases(assignment: Assignment) -> str:
    """Use the supervisor's connection parameters, before the first connection. Returns what was sent."""
    databases = "" if assignment.databases is None else read_memory(assignment.databases)
    if databases:
        database_settings.apply(databases)
    # What was changed before Django's setup leaves no trace, and is seen only here.
    ours = database_settings.database_name(assignment.options.alias)
    if ours != assignment.database_name:
        raise ImproperlyConfigured(
            f"the supervisor works on the database {assignment.database_name!r}, but the settings that this "
            f"worker process has read name {ours!r}; change DATABASES in the settings module, or after "
            "django.setup()"
        )
    return databases


def _stop_on_signals(producer: Producer) -> None:
    """SIGINT stops without a grace; only the supervisor sends it. SIGTERM never does, however often it comes:
    systemd and others send it to every process of a service, and the supervisor sends it, too.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        producer.stop(0.0 if number == signal.SIGINT else producer.options.grace)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, stop)


def _stop_with_supervisor(producer: Producer, link: ParentLink) -> None:
    link.wait_for_end()
    if not producer.lifetime.stopping:
        logger.warning("the supervisor is gone; this worker stops")
    producer.stop(producer.options.grace)


def _end_at_once(code: int) -> None:
    """What is overdue runs on until this process is gone, and so does what it has started."""
    sentry.flush()
    logging.shutdown()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(code)
