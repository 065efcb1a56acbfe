"""Keeps a worker alive whose jobs run on the main thread of this process, which a debugger may stop.

It has a thread and connections of its own. It registers the worker, sends its heartbeats, does the upkeep
that a supervisor does, and tells the main thread about requests to cancel a job or to end. So a job that is
stopped at a breakpoint keeps its lease, however long somebody looks at it.

A debugger that stops all threads, as that of VS Code does, leaves threads alone that are marked as its own.
"""

from __future__ import annotations

import logging
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg

from .. import conf
from ..session import connect
from .executor.progress import WRITE_EVERY
from .options import new_id
from .producer.progress_writer import ProgressWriter
from .registry import Registration
from .supervisor.heartbeat import Heartbeat
from .waker import Waker

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..session import Session
    from .executor.progress import Changed
    from .options import WorkerOptions

__all__ = ["Keeper"]

logger = logging.getLogger(__name__)

# A single statement (``Session.run``).
_ASKED_SQL = """
    SELECT worker.drain <> '', ARRAY(
        SELECT job.id FROM pgqueue_job_live AS job
        WHERE job.status = 'running' AND job.worker = worker.id AND job.cancel_requested_at IS NOT NULL
    ) FROM pgqueue_worker AS worker WHERE worker.id = %s
"""


class Keeper:
    """``begun`` returns the jobs that run now. ``on_cancel`` is called with a job that is to be cancelled, as
    often as it is asked for, and ``on_drain`` if the worker is asked to end, both on the keeper's thread.

    It stands for the only process of a supervisor (``supervisor/child.py``).
    """

    lives = True

    def __init__(
        self,
        options: WorkerOptions,
        *,
        begun: Callable[[], list[int]],
        on_cancel: Callable[[int], object],
        on_drain: Callable[[], None],
    ) -> None:
        self._progress: ProgressWriter | None = None
        self.worker = new_id()
        self._alias = options.alias
        self._begun = begun
        self._on_cancel = on_cancel
        self._on_drain = on_drain
        self._registration = Registration(options, self.worker, new_id())
        self._heartbeat = Heartbeat(options.alias, fires=options.schedules and not options.burst)
        self._fires_once = options.schedules and options.burst
        self._session: Session | None = None
        self._waker = Waker()
        self._is_over = False
        self._thread = Thread(target=self._keep, name="pgqueue-keeper", daemon=True)
        # What pydevd looks at, on which the debuggers of VS Code and PyCharm are built.
        self._thread.pydev_do_not_trace = True  # type: ignore[attr-defined]
        self._thread.is_pydev_daemon_thread = True  # type: ignore[attr-defined]

    @property
    def begun(self) -> list[int]:
        """The jobs that run now."""
        return self._begun()

    @property
    def lost_its_lock(self) -> bool:
        """Whether the session that holds the lock of the worker is lost."""
        return self._session is None or not self._session.holds_lock

    def write_progress_of(self, changed: Changed) -> None:
        """Write what the running job tells, from now on."""
        self._progress = ProgressWriter(changed)

    def start(self, check: Callable[[], None]) -> None:
        """Register the worker, and keep it alive from now on. ``check`` is called once the server is there.

        Raise what ``check`` raises, and ``psycopg.Error`` if the server cannot be used.
        """
        self._heartbeat.enter(lambda seconds: self._waker.sleep(seconds, lambda: False), lambda: False)
        check()
        self._heartbeat.begin()
        if self._fires_once:
            self._heartbeat.fire_once()
        self._register()
        self._thread.start()

    def stop(self) -> None:
        """Sign off. Jobs that the worker still holds are recovered by others."""
        self._is_over = True
        self._waker.interrupt()
        if self._thread.is_alive():
            self._thread.join()
        try:
            if self._session is not None:
                self._registration.sign_off(self._session)
                self._session.close()
        except psycopg.Error as error:
            logger.warning("the worker could not sign off: %s", error)
        self._heartbeat.end()
        self._waker.close()

    def _keep(self) -> None:
        while not self._is_over:
            children: Any = [self]
            self._heartbeat.serve(children)
            self._serve()
            now = monotonic()
            pause = min(self._heartbeat.seconds_left(now), conf.current().heartbeat)
            if self._progress is not None and self._begun():
                pause = min(pause, WRITE_EVERY, self._progress.seconds_left(now))
            self._waker.sleep(pause, lambda: self._is_over, *self._heartbeat.files)

    def _serve(self) -> None:
        try:
            if self._session is None or self._registration.due(monotonic()):
                self._register()
            assert self._session is not None
            for asked_to_end, cancelled in self._session.rows(_ASKED_SQL, (self.worker,)):
                for job in cancelled:
                    self._on_cancel(job)
                if asked_to_end:
                    self._on_drain()
            if self._progress is not None:
                self._progress.write_if_due(self._session, monotonic())
        except psycopg.Error as error:
            logger.warning(
                "the connection that keeps this worker alive failed, and is opened again: %s", error
            )
            if self._session is not None:
                self._session.close()
            self._session = None

    def _register(self) -> None:
        if self._session is None:
            self._session = connect(self._alias)
        self._registration.renew(self._session, monotonic(), "SELECT 1", None)
