"""Stop a process of the worker, look at what it holds, and kill it or let it continue.

The process is stopped (SIGSTOP) while somebody looks, because otherwise it would finish some of its jobs
between the look and the SIGKILL.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from django.db import connection

from django_pgqueue.models import Worker

from .children import Child

LOOK_EVERY = 0.02  # seconds
STILLNESS = 1.0  # maximum seconds until the server has executed the last statement of a stopped process


def processes_of(child: Child) -> list[Worker]:
    """Return the worker processes of the child. The database may have others, which are not ours to kill."""
    here = Worker.objects.filter(host=socket.gethostname()[:255])
    return [worker for worker in here if child.started(worker.pid)]


def kill_if(worker: Worker, is_right: Callable[[], bool]) -> datetime | None:
    """Stop the process, and kill it if `is_right()` then. Return the time of the kill, or None."""
    killed_at = None
    with suppress(ProcessLookupError):  # the process has just ended
        os.kill(worker.pid, signal.SIGSTOP)
        try:
            _wait_for_stillness()
            if is_right():
                moment = now()
                os.kill(worker.pid, signal.SIGKILL)
                killed_at = moment
        finally:
            if killed_at is None:
                os.kill(worker.pid, signal.SIGCONT)
    return killed_at


def now() -> datetime:
    """Return the time of the database's clock, which all times of jobs come from."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (moment,) = cursor.fetchone()
    return moment  # type: ignore[no-any-return]


def _wait_for_stillness() -> None:
    """Return when the server has executed every statement that was sent before this call.

    Race: a process may be stopped between a claim or a report and the server's answer.
    """
    stopped_at = now()
    deadline = time.monotonic() + STILLNESS
    while time.monotonic() < deadline:
        time.sleep(LOOK_EVERY)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
                " AND state = 'active' AND pid <> pg_backend_pid() AND query_start <= %s)",
                [stopped_at],
            )
            (is_still,) = cursor.fetchone()
        if is_still:
            return
