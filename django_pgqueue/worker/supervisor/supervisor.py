"""The supervisor starts the worker processes, watches them, and does the maintenance. It runs no tasks
itself. To stop, it forwards the signal, waits for the processes until the grace period ends, and kills them.

Because it runs no tasks, a task that holds the GIL of its process cannot delay the heartbeats for that
process. A suspended process (SIGSTOP) does not count as alive: the supervisor sends no heartbeats for it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, MutableMapping
from dataclasses import replace
from pathlib import Path
from threading import current_thread, main_thread
from time import monotonic

from ...encoding import whole_number
from ...formatting import counted, first_few, get_logger
from ...postgres import aliases
from ..options import FINISHED, RECYCLED, RETIRED, Assignment, WorkerOptions, new_id
from ..waker import StopSignals, Waker
from .child import DRAINING, STARTING, WORKING, Child, End, reap_orphans
from .heartbeat import Heartbeat

logger = get_logger(__name__)

KILL_AFTER = 5.0  # seconds after the end of the grace period
DIE_WITHIN = 5.0  # seconds to wait for the end of a killed process
STILLBIRTHS = 5  # give up after this many processes in a row that ended before they had registered
WRITE_EVERY = 5.0  # seconds between two writes of the alive file
MICROSECONDS = 1_000_000
SEND_TIMEOUT = 1.0  # seconds
MORE_TO_CONNECT = 30.0  # seconds that an attempt to connect may take longer than its pause
_NEVER = float("inf")
LOOK_EVERY = 0.2  # seconds between two checks whether a new process has registered


class Supervisor:
    """Runs worker processes until asked to stop. ``run`` returns the exit code of the command.

    ``notify`` is called with the messages for the user who stops the command. By default, they are logged.
    ``signals`` and ``service`` are given if other supervisors of this process share them (``fleet``).

    Raises ``ImproperlyConfigured`` if a changed connection parameter cannot be sent to the processes.
    """

    def __init__(
        self,
        options: WorkerOptions,
        verbosity: int = 1,
        notify: Callable[[str], None] = logger.info,
        signals: StopSignals | None = None,
        service: Service | None = None,
    ) -> None:
        self.options = options
        self._notify = notify
        self._waker = Waker()
        self._children = [Child() for _ in range(options.processes)]
        self.signals = signals or StopSignals(self._waker.interrupt)
        self._forwarded = 0
        self._stop_by = _NEVER
        self._service = service or Service(options.alive_file)
        self._next_sign = _NEVER  # when its loop must go on to show that it lives
        self._heartbeat = Heartbeat(options)
        self.interrupted = 0  # jobs
        self.executed = 0  # jobs, by the processes that have ended
        self.failure = ""  # why it ended, if its exit code is 1
        # Made once, so that a process that starts later gets the same databases.
        self._assignment = Assignment(
            options, 0, new_id(), verbosity,
            database_name=aliases.database_name(options.alias), databases=aliases.changed(),
        )  # fmt: skip

    def run(self, check: Callable[[], None]) -> int:
        """Run until stopped; in a burst, until no process finds a job that is due.

        Call this on the main thread. It calls ``check`` when it is connected to the primary and before it
        starts a process. Raises what ``check`` raises, and ``psycopg.OperationalError`` if there is no server
        within a minute of the start. If the server goes away later, it waits until the server is back.
        """
        self.signals.catch(signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
        self.signals.notice(signal.SIGCHLD)
        try:
            return self.serve(check)
        finally:
            self._service.remove()

    def serve(self, check: Callable[[], None]) -> int:
        """Do what ``run`` does, on any thread, which gets no signals. The processes die with this thread."""
        try:
            if self._begin(check):
                while self._turn():
                    self._sleep(self._pause())
        finally:
            self._kill_all()
            self._heartbeat.close()
        return 1 if self.failure else 0

    def release(self) -> None:
        """After ``run``, in a process that continues: restore the signal handlers and close the files.

        A process that ends keeps the handlers, so that a late signal cannot change its exit code.
        """
        self.signals.release()
        self.close()

    def close(self) -> None:
        """Close the files, after the end."""
        self._waker.close()
        for child in self._children:
            child.jobs.close_file()

    def wake(self) -> None:
        """End a sleep of its loop. Safe in a signal handler."""
        self._waker.interrupt()

    def pids(self) -> set[int]:
        """Return the processes that have not been reaped."""
        return {child.pid for child in list(self._children) if child.pid is not None}

    def _begin(self, check: Callable[[], None]) -> bool:
        """Connect, and return whether to start processes."""
        return self._heartbeat.start(check, self._wait_for_primary, lambda: self.signals.count > 0)

    def _sign(self, now: float, status: str) -> None:
        """Show what it does, and that its loop lives."""
        self._service.sign(now, status)
        self._next_sign = self._service.next_sign

    def _wait_for_primary(self, seconds: float) -> None:
        self._sign(monotonic(), "waiting for the server to be ready and the primary")
        self._service.starting(seconds)
        self._sleep(seconds)

    def _sleep(self, seconds: float) -> None:
        self._waker.sleep(seconds, lambda: self.signals.count > self._forwarded, *self._heartbeat.files)

    # -- one turn

    def _turn(self) -> bool:
        """Return False when there is nothing left to do."""
        if self.signals.count > self._forwarded:
            self._forward()
        for child in list(self._children):
            self._watch(child)
        # The main thread of a fleet does it: a process of another shard is no orphan.
        if os.getpid() == 1 and current_thread() is main_thread():
            reap_orphans(self.pids)
        if all(child.over for child in self._children):
            return False
        now = monotonic()
        if now >= self._stop_by:
            logger.warning("killing the processes that did not stop within the grace period")
            return False
        self._heartbeat.serve(self._children)
        if all(child.registered or child.over for child in self._children) and not self._forwarded:
            self._service.ready()
        self._sign(now, self._status())
        return True

    def _pause(self) -> float:
        now = monotonic()
        times = [child.start_at for child in self._children if child.pid is None]
        times += [now + LOOK_EVERY for child in self._children if child.pid and not child.registered]
        times += [self._stop_by, self._next_sign, now + self._heartbeat.seconds_left(now)]
        return max(0.0, min(times) - now)

    def _forward(self) -> None:
        self._forwarded = self.signals.count
        is_first = self._forwarded == 1
        grace = self.options.grace if is_first else 0.0
        self._stop_by = min(self._stop_by, monotonic() + grace + KILL_AFTER)
        # Before the signals, because the processes that have ended are left out.
        begun = [child.jobs.begun() for child in self._children if child.pid is not None]
        self._service.stopping(grace + KILL_AFTER + DIE_WITHIN)
        # Two pending signals of one kind arrive as one, so a stop without a grace period sends two kinds.
        numbers = [signal.SIGTERM] if grace else [signal.SIGTERM, signal.SIGINT]
        for child in self._children:
            child.retire()
            for number in numbers:
                child.send_signal(number)
        # The signals go first: they must not wait until the database has named the jobs.
        self._notify(stopping(self._running(*begun), grace if is_first else None, self.signals.last))

    def _running(self, *begun: list[int] | None) -> str:
        """Describe the jobs that processes have ``begun`` and that still run; empty if there are none."""
        known = [jobs for jobs in begun if jobs is not None]
        if len(known) < len(begun):  # one of them had too many to record
            return "the running jobs"
        jobs = [job for each in known for job in each]
        named = self._heartbeat.running(jobs)
        if named is None:
            return running_jobs([f"job {job}" for job in jobs])
        return running_jobs([f"{path} {age:.0f} s" for path, age in named])

    def _status(self) -> str:
        """Return what the processes do, in a line."""
        taken = [child for child in self._children if child.pid is not None]
        if self._forwarded:
            return f"stopping; {counted(len(taken), 'process', 'processes')} left"
        at_work = sum(child.registered and child.state in (STARTING, WORKING) for child in taken)
        slow = sum(child.state is STARTING and child.is_slow for child in taken)
        draining = sum(child.state is DRAINING for child in taken)
        return "; ".join(filter(None, [
            f"{at_work} of {counted(len(self._children), 'process', 'processes')} at work",
            f"{slow} slow to start" if slow else "",
            f"{draining} draining" if draining else "",
            "" if self._heartbeat.session else "no connection to the database",
        ]))  # fmt: skip

    # -- the processes

    def _watch(self, child: Child) -> None:
        if child.pid is None:
            if monotonic() >= child.start_at:
                self._start(child)
            return
        end = child.poll()
        if end is None:
            child.look(lambda: self._running(child.jobs.begun()) or "its last reports")
            self._kill_if_overdue(child)
            return
        self.executed += end.farewell.executed
        if self.signals.count:
            self.interrupted += end.interrupted
        if end.farewell.code not in (FINISHED, RECYCLED, RETIRED):
            self._crashed(child, end)
            return
        if end.farewell.code == RECYCLED:
            logger.info("process %s has ended and is replaced", end.pid)
        if end.farewell.code == RETIRED and not self.signals.count:
            logger.info("process %s was asked to stop with its supervisor", end.pid)
            self.signals.ask()
        if self.signals.count or (end.farewell.code == FINISHED and self.options.burst):
            child.retire()
        else:
            child.start_at = 0.0

    def _start(self, child: Child) -> None:
        try:
            child.start(replace(self._assignment, worker=new_id()))
        except OSError as error:  # out of memory, processes or files; this must not affect running processes
            logger.error("cannot start a process: %s", error)
            self._failed(child, str(error), 0.0, registered=False)

    def _crashed(self, child: Child, end: End) -> None:
        # The signal to stop kills a process that has not set its handler yet.
        stopped = self.signals.count and end.signal in (signal.SIGTERM, signal.SIGINT)
        level = logging.INFO if stopped else logging.ERROR
        logger.log(level, "process %s ended with %s after %.1f s", end.pid, end.how, end.lived)
        blames_nobody = stopped or end.was_killed
        self._heartbeat.process_ended(
            child, [] if blames_nobody else None, f"its process ended with {end.how}"
        )
        self._failed(child, end.how, end.lived, registered=end.registered)

    def _failed(self, child: Child, how: str, lived: float, *, registered: bool) -> None:
        child.put_off(lived, registered=registered)
        if self.signals.count:
            child.retire()
        # If other processes work, the cause may be temporary, such as low memory or a deployment in progress.
        elif child.stillbirths >= STILLBIRTHS and not self._is_at_work():
            self.failure = f"worker processes failed to start {STILLBIRTHS} times in a row: {how}"
            logger.critical("%s", self.failure)
            self.signals.ask()
            child.retire()

    def has_registered(self) -> bool:
        """Return whether a process has registered, and so claims jobs."""
        return any(child.registered for child in list(self._children))

    _is_at_work = has_registered

    def _kill_if_overdue(self, child: Child) -> None:
        """Kill a process that cannot replace itself after a timeout because a task holds its GIL."""
        jobs = child.jobs.overdue(monotonic() - self.options.grace - KILL_AFTER)
        extended = self._heartbeat.extended(jobs)
        jobs = [job for job in jobs if job not in extended]
        if not jobs:
            return
        logger.error("killing process %s, which cannot end its overdue jobs %s", child.pid, jobs)
        child.kill(shows_stacks=True)
        if child.wait(DIE_WITHIN) is not None:
            self._heartbeat.process_ended(
                child, jobs, "it did not end after its timeout, so its process was killed"
            )
            child.start_at = 0.0

    def _kill_all(self) -> None:
        """Kill the processes that are still alive, so that their jobs are requeued."""
        for child in self._children:
            child.kill()
        for child in self._children:
            if (end := child.wait(DIE_WITHIN)) is not None:
                self.interrupted += end.interrupted
                self._heartbeat.process_ended(child, [], "its worker was stopped")
            elif child.pid is not None:  # it is waiting for a disk that does not answer
                logger.error("process %s cannot be killed; its jobs will be recovered later", child.pid)


def stopped(interrupted: int) -> str:
    """Return the message at the end of a requested stop that has ``interrupted`` so many jobs."""
    if interrupted:
        return f"Stopped: interrupted {counted(interrupted, 'running job')}."
    return "Stopped: all started jobs have finished."


def running_jobs(names: list[str]) -> str:
    """Return how many jobs run, and the first of their ``names``; empty if there are none."""
    return f"{counted(len(names), 'running job')} ({first_few(names)})" if names else ""


def stopping(jobs: str, grace: float | None, number: signal.Signals | None) -> str:
    """Return the message for a stop, by the signal ``number`` if any. ``grace``: None for the second one."""
    requeued = f" {jobs[:1].upper()}{jobs[1:]} will be requeued and start over later." if jobs else ""
    if grace is None:
        return f"Stopping now.{requeued}"
    if not jobs:
        return "Stopping: no jobs are running."
    if not grace:
        return f"Stopping now, without a grace period.{requeued}"
    # SIGHUP means that the terminal is gone, and it does not count as the first of two requests.
    again = "" if number in {None, signal.SIGHUP} else " Send the signal again to stop now."
    if number == signal.SIGINT:
        again = " Press Ctrl-C again to stop now."
    return f"Stopping: waiting up to {grace:g} s for {jobs}.{again}"


class Service:
    """Shows that the supervisor lives, and what it does: to systemd, and in a file for a liveness probe. This
    is done by its loop, so one that hangs shows no sign of life.

    systemd (``Type=notify``, ``WatchdogSec=``) reads datagrams of text on the socket that ``NOTIFY_SOCKET``
    names; see ``sd_notify(3)``. The probe of a container looks at the age of the file, not at its text: a
    restart does not help if the server is away.
    """

    def __init__(self, alive_file: str = "", environment: MutableMapping[str, str] = os.environ) -> None:
        """Remove the variables from ``environment``, so that child processes do not speak for the service."""
        self._address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = whole_number(environment.pop("WATCHDOG_USEC", "")) or 0
        is_for_us = environment.pop("WATCHDOG_PID", "") in {"", str(os.getpid())}
        self._path = Path(alive_file) if alive_file else None
        self._has_watchdog = bool(self._address and microseconds and is_for_us)
        intervals = [microseconds / MICROSECONDS / 2] * self._has_watchdog + [WRITE_EVERY] * bool(alive_file)
        self._interval = min(intervals, default=_NEVER)
        self.next_sign = 0.0 if intervals else _NEVER  # when ``sign`` must be called next
        self._status = ""
        self._is_ready = False
        self._failures: set[str] = set()

    def sign(self, now: float, status: str) -> None:
        """Show what the supervisor does, and that it lives, where it is time."""
        if status != self._status:
            self._status = status
            self._notify(f"STATUS={status}")
        if now < self.next_sign:
            return
        self.next_sign = now + self._interval
        if self._has_watchdog:
            self._notify("WATCHDOG=1")
        if self._path is not None:
            self._write(self._path, status)

    def ready(self) -> None:
        """Report once that the service has started."""
        if not self._is_ready:
            self._is_ready = True
            self._notify("READY=1")

    def starting(self, seconds: float) -> None:
        """Extend ``TimeoutStartSec=`` until the next call, which comes in ``seconds``."""
        self._notify(_extended(seconds + MORE_TO_CONNECT))

    def stopping(self, seconds: float) -> None:
        """Report that the service stops, and extend ``TimeoutStopSec=`` to the seconds that this may take."""
        self._notify(f"STOPPING=1\n{_extended(seconds)}")

    def remove(self) -> None:
        """Remove the file."""
        if self._path is not None:
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                self._failed(f"cannot remove {self._path}", error)

    def _write(self, path: Path, text: str) -> None:
        # Renamed, so that a probe never reads an empty file.
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            beside.write_text(f"{text}\n", encoding="utf-8")
            beside.replace(path)
        except OSError as error:
            self._failed("cannot write the file that shows that the worker lives", error)

    def _notify(self, message: str) -> None:
        if not self._address:
            return
        # An address that begins with @ is an abstract socket: its first byte is sent as 0.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.settimeout(SEND_TIMEOUT)
                line.sendto(message.encode(), address)
        except OSError as error:
            self._failed(f"cannot notify systemd at {self._address!r}", error)

    def _failed(self, what: str, error: OSError) -> None:
        if what not in self._failures:
            self._failures.add(what)
            logger.error("%s: %s", what, error)


def _extended(seconds: float) -> str:
    return f"EXTEND_TIMEOUT_USEC={int(seconds * MICROSECONDS)}"
