"""A worker process: a producer on the main thread, and the ways to stop it.

SIGTERM and SIGHUP stop it within the grace period, SIGINT without one. When its supervisor dies, it is killed
on Linux (``die_with``). On other systems, it notices that its link to the supervisor is closed, and stops
within the grace period, so no process is left behind.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
from functools import partial
from threading import Thread
from types import FrameType

from django.core.exceptions import ImproperlyConfigured

from ..formatting import get_logger
from ..postgres import aliases
from ..telemetry import sentry, tracing
from . import isolation
from .executor import fork
from .executor.runner import Runner
from .logs import configure_logging
from .options import FINISHED, RECYCLED, RETIRED, Assignment
from .producer.producer import Producer
from .spawn import ParentLink
from .started_jobs import StartedJobs

logger = get_logger(__name__)


def build_producer(assignment: Assignment) -> Producer:
    """Create and connect all components of a worker process."""
    options, file = assignment.options, assignment.started_jobs
    started_jobs = StartedJobs.private(options.slots) if file is None else StartedJobs.inherited(file)
    started_jobs.is_set_up = True
    isolate = partial(isolation.run, assignment.verbosity, assignment.databases)
    runner = Runner(options.alias, assignment.worker, started_jobs, isolate)
    return Producer(options, assignment.supervisor, runner)


def main(assignment_json: str, link: ParentLink) -> int:
    """Run until stopped, and return the exit code."""
    assignment = Assignment.from_json(assignment_json)
    configure_logging(assignment.verbosity)
    # The supervisor's connection parameters, before the first connection.
    if assignment.databases:
        aliases.apply(assignment.databases)
    # The supervisor cannot detect a change that was made before django.setup().
    ours = aliases.database_name(assignment.options.alias)
    if ours != assignment.database_name:
        raise ImproperlyConfigured(
            f"the supervisor uses the database {assignment.database_name!r}, but the settings of this worker "
            f"process name {ours!r}; change DATABASES in the settings module, or after django.setup()"
        )
    producer = build_producer(assignment)
    fork.prepare(lambda: {*producer.files(), link.file})

    def stop(number: int, frame: FrameType | None) -> None:
        producer.stop(0.0 if number == signal.SIGINT else producer.options.grace)

    # SIGINT, which only the supervisor sends, stops without a grace period. SIGTERM always stops within it,
    # even if it arrives more than once: systemd sends it to every process of a service.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, stop)

    def stop_with_supervisor() -> None:
        link.wait_for_end()
        if not producer.lifetime.stopping:
            logger.warning("the supervisor is gone: stopping this worker")
        producer.stop(producer.options.grace)

    Thread(target=stop_with_supervisor, name="pgqueue-supervisor-watch", daemon=True).start()
    # Modules and classes stay as long as the process, and no job runs while the collector looks at them.
    gc.collect()  # garbage that is frozen would never be freed
    gc.freeze()
    producer.run()
    lifetime = producer.lifetime
    code = RETIRED if lifetime.retired else RECYCLED if lifetime.replaced else FINISHED
    link.say(code, interrupted=producer.interrupted, executed=lifetime.executed)
    if producer.jobs.overdue:  # with the processes that they have started, they would run on
        sentry.flush()
        tracing.flush()
        logging.shutdown()
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(code)
    return code
