"""The worker of several shards: a supervisor for each, on a thread of its own. A connection that hangs holds
up only the thread of its shard, so the heartbeats of the others go on.

The main thread does what there is once in a process: it catches the signals, which all supervisors share, and
shows that the worker lives. It also moves processes, as a process serves one shard:

    idle       a process of this shard has no job
    waits      all of its processes have jobs, and others have been due for a second, at two looks in a row
    a move     the process ends as after SIGTERM, and the shard that waits gets one when it has ended

A shard that cannot be reached, or is not migrated, costs its own jobs only: it is tried until it can be
served. If that is true of all shards when the worker starts, it ends with the error of the first.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from threading import Thread
from time import monotonic

from ...formatting import get_logger, log_prefix
from ..options import WorkerOptions
from ..sessions import Outage
from ..waker import StopSignals, Waker
from .child import Child, reap_orphans
from .supervisor import WRITE_EVERY, Service, Supervisor

logger = get_logger(__name__)

LOOK_EVERY = 10.0  # seconds between two looks at what the processes do
PATIENT_LOOKS = 2  # so many looks in a row must find that a shard waits
LONGEST_PAUSE = 30.0  # seconds between two attempts to serve a shard that was refused
ANNOUNCE_AFTER = 3.0  # seconds after which the banner does not wait for more shards
HUNG_AFTER = 120.0  # seconds; to connect takes up to 25 for each host
_NEVER = float("inf")


def divide(processes: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Return how many processes each shard gets: at least one, and as many as its weight is worth."""
    parts = dict.fromkeys(weights, 1)
    for _ in range(processes - len(parts)):
        parts[max(parts, key=lambda alias: weights[alias] / (2 * parts[alias] + 1))] += 1
    return parts


def next_move(shards: Sequence[FleetMember]) -> tuple[FleetMember, FleetMember] | None:
    """Return which shard gives a process to which, if one should: an idle one; or, to a shard that has less
    than its share, one of a shard that has more.
    """
    waiting = [shard for shard in shards if shard.waits]
    if not waiting:
        return None
    taker = min(waiting, key=lambda shard: shard.processes / shard.share)
    lacks = taker.processes < taker.share
    givers = [
        shard
        for shard in shards
        if shard.processes > 1 and (shard.is_idle or (lacks and shard.processes > shard.share))
    ]
    if not givers:
        return None
    return max(givers, key=lambda shard: (shard.is_idle, shard.processes)), taker


class WorkerFleet:
    """Runs a worker with several shards, one for each of the ``options``, until asked to stop.

    ``reachable`` is entered with the alias while a shard is connected, and may turn errors into others. The
    rest of the interface is that of ``Supervisor``.
    """

    def __init__(
        self,
        options: Sequence[WorkerOptions],
        verbosity: int,
        notify: Callable[[str], None],
        reachable: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self.failure = ""
        self.verbosity = verbosity
        self.notify = notify
        self.reachable = reachable
        self.service = Service(options[0].alive_file)
        self.signals = StopSignals(self.wake)
        #: Whether processes move: there are more than one for each shard, and they do not end by themselves.
        self.moves = sum(each.processes - 1 for each in options) > 0 and not options[0].burst
        self._options = options
        self._waker = Waker()
        self._has_worked = False  # whether a shard has ever been served
        self._refusal: Exception | None = None
        self._hung: set[FleetMember] = set()
        self._next_look = 0.0 if self.moves else _NEVER
        self._moving: tuple[FleetMember, FleetMember] | None = None
        self.shards = [FleetMember(self, each) for each in options]

    def run(self, begin: Callable[[WorkerOptions], None], announce: Callable[[], None]) -> int:
        """Run until stopped; in a burst, until no process of any shard finds a job that is due.

        Call this on the main thread. ``begin`` is called on the thread of each shard, before it starts
        processes, and ``announce`` on this one, once shards are served. Raises what ``begin`` or the first
        shard's connection has raised if none can be served.
        """
        self.signals.catch(signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
        self.signals.notice(signal.SIGCHLD)
        try:
            self._serve(begin, announce)
            # A job may have enqueued others on a shard whose burst had ended.
            while self._options[0].burst and any(shard.executed for shard in self.shards):
                if self.signals.count or self.failure:
                    break
                last = self.shards
                self.shards = [FleetMember(self, replace(each, schedules=False)) for each in self._options]
                _close(last)
                self._serve(lambda options: None, lambda: None)
        finally:
            self.service.remove()
        return 1 if self.failure else 0

    def release(self) -> None:
        """After ``run``, in a process that continues: restore the signal handlers and close the files."""
        self.signals.release()
        _close(self.shards)
        if not any(shard.thread.is_alive() for shard in self.shards):  # otherwise they may yet write into it
            self._waker.close()

    def wake(self) -> None:
        """Have all threads look at what has changed. Safe in a signal handler."""
        self._waker.interrupt()
        for shard in self.shards:
            shard.wake()

    def look(self) -> None:
        """Have the main thread look at what a shard has changed."""
        self._waker.interrupt()

    @property
    def interrupted(self) -> int:
        """After ``run``, how many jobs a requested stop has interrupted."""
        return sum(shard.interrupted for shard in self.shards)

    # -- the main thread

    def _serve(self, begin: Callable[[WorkerOptions], None], announce: Callable[[], None]) -> None:
        """Run the shards until they have ended."""
        announce_at = monotonic() + ANNOUNCE_AFTER
        for shard in self.shards:
            shard.start(begin)
        try:
            while self._turn():
                served = [shard.is_served for shard in self.shards]
                if any(served) and (all(served) or monotonic() >= announce_at) and announce_at != _NEVER:
                    announce_at = _NEVER
                    announce()
                self._sleep(announce_at, self.service.next_sign, self._next_look)
        finally:  # also after an error of its own
            while self._still_runs():
                self.signals.ask()
                self._sleep(monotonic() + 1.0)  # the second call ends the grace period
        failures = [shard.failure for shard in self.shards if shard.failure]
        self.failure = failures[0] if failures else ""
        if error := next((shard.error for shard in self.shards if shard.error), self._refusal):
            raise error

    def _sleep(self, *times: float) -> None:
        """Sleep until the first of these times. What is overdue waits for a shard, which ends the sleep."""
        now = monotonic()
        self._waker.sleep(min([WRITE_EVERY, *(each - now for each in times if each > now)]), lambda: False)

    def _turn(self) -> bool:
        """Return False when all shards have ended."""
        now = monotonic()
        if os.getpid() == 1:
            reap_orphans(lambda: set().union(*(shard.pids() for shard in self.shards)))
        self._give_up()
        self._sign(now)
        self._end_move()
        if now >= self._next_look and not self.signals.count:
            self._next_look = now + LOOK_EVERY
            self._move()
        return self._still_runs()

    def _still_runs(self) -> bool:
        # A shard never served has no processes, and its thread, which may try to connect, is not waited for.
        return any(not shard.ended and (shard.is_served or not self.signals.count) for shard in self.shards)

    def _give_up(self) -> None:
        """End if each shard was refused when the worker started."""
        self._has_worked |= any(shard.is_served for shard in self.shards)
        refusals = [shard.refusal for shard in self.shards]
        if not self._has_worked and all(refusals) and not self.signals.count:
            self._refusal = refusals[0]
            self.signals.ask()

    def _sign(self, now: float) -> None:
        """Show that all loops live, and what they do."""
        hung = {
            shard for shard in self.shards if shard.thread.is_alive() and now > shard.signed_at + HUNG_AFTER
        }
        for shard in hung - self._hung:
            logger.error("the supervisor of %s has done nothing for %g s", shard.options.alias, HUNG_AFTER)
        self._hung = hung
        if not hung:
            status = " | ".join(f"{shard.options.alias}: {shard.status}" for shard in self.shards)
            self.service.sign(now, status)

    def _move(self) -> None:
        """Begin to move a process to where jobs wait, unless one is on its way."""
        if self._moving is not None or (move := next_move(self.shards)) is None:
            return
        logger.info("a process moves from %s to %s, where jobs wait", *(each.options.alias for each in move))
        move[0].resize(move[0].processes - 1)
        self._moving = move

    def _end_move(self) -> None:
        if self._moving is not None and not self._moving[0].has_too_many:
            taker = self._moving[1]
            self._moving = None
            taker.resize(taker.processes + 1)


class FleetMember(Supervisor):
    """The supervisor of one shard, on its own thread. The main thread reads what has no underscore.

    systemd hears of a start that takes long, and of a stop, as from a single supervisor. The worker is ready
    when one shard is.
    """

    def __init__(self, fleet: WorkerFleet, options: WorkerOptions) -> None:
        super().__init__(options, fleet.verbosity, fleet.notify, fleet.signals, fleet.service)
        self.status = "starting"
        self.signed_at = monotonic()
        self.share = options.processes  # the processes that it starts with, by its weight
        self.processes = self.share  # it should have so many
        self.is_idle = False  # whether one of them has no job
        self.refusal: Exception | None = None  # why it cannot be served
        self.error: BaseException | None = None  # that has ended its thread
        self.is_served = False
        self.ended = False  # whether its thread has nothing more to do
        self.thread = Thread()
        self._fleet = fleet
        self._looks_waited = 0
        self._next_look = 0.0 if fleet.moves else _NEVER

    def start(self, begin: Callable[[WorkerOptions], None]) -> None:
        """Start the thread."""
        self.thread = Thread(
            target=self._run, args=(begin,), name=f"pgqueue {self.options.alias}", daemon=True
        )
        self.thread.start()

    @property
    def waits(self) -> bool:
        """Whether jobs wait here for a process."""
        return self._looks_waited >= PATIENT_LOOKS

    def resize(self, processes: int) -> None:
        """Have it start or end processes."""
        self.processes = processes
        self.wake()

    @property
    def has_too_many(self) -> bool:
        """Whether a process that is to end has not ended."""
        return len(self._children) > self.processes

    def _run(self, begin: Callable[[WorkerOptions], None]) -> None:
        log_prefix.set(f"{self.options.alias}: ")
        try:
            self.serve(partial(begin, self.options))
        except BaseException as error:
            self.error = error
            self.signals.ask()
        finally:
            self.ended = True  # first: the main thread looks while this one is still alive
            self._fleet.look()

    def _begin(self, check: Callable[[], None]) -> bool:
        outage = Outage(LONGEST_PAUSE)
        while not self.signals.count:
            try:
                with self._fleet.reachable(self.options.alias):
                    self.is_served = super()._begin(check)
                self.refusal = None
                return self.is_served
            except Exception as error:  # of the project's settings or hooks, too
                self._heartbeat.close()
                self.refusal = error
                outage.log("its jobs wait, because it cannot be served", error)
                if self.options.burst:
                    self.failure = str(error)
                    return False
            finally:
                self._fleet.look()
            self._wait_for_primary(outage.pause())
        return False

    def _turn(self) -> bool:
        if not self.signals.count:
            self._adjust()
            if monotonic() >= self._next_look:
                self._look()
        return super()._turn()

    def _sign(self, now: float, status: str) -> None:
        self.signed_at, self._next_sign = now, now + WRITE_EVERY
        if status != self.status:
            self.status = status
            self._fleet.look()

    def _pause(self) -> float:
        look_in = _NEVER if self.signals.count else max(0.0, self._next_look - monotonic())
        return min(super()._pause(), look_in)

    def _watch(self, child: Child) -> None:
        if child.pid is not None or not child.leaving:  # otherwise it would start the next one
            super()._watch(child)
        if child.leaving and child.pid is None:
            self._children.remove(child)
            self._fleet.look()

    def _is_at_work(self) -> bool:
        return any(shard.has_registered() for shard in self._fleet.shards)

    def _adjust(self) -> None:
        """Start or end one process, if their number is to change."""
        staying = [child for child in self._children if not child.leaving]
        if len(staying) < self.processes:
            self._children.append(Child())
        elif len(staying) > self.processes:
            child = min(staying, key=_jobs)
            child.leaving = True
            child.send_signal(signal.SIGTERM)

    def _look(self) -> None:
        """See whether a process is idle, or jobs wait."""
        self._next_look = monotonic() + LOOK_EVERY
        begun = [child.jobs.begun() for child in self._children if child.registered and not child.leaving]
        self.is_idle = [] in begun
        waits = not self.is_idle and bool(begun) and self._heartbeat.has_backlog()
        self._looks_waited = self._looks_waited + 1 if waits else 0


def _jobs(child: Child) -> float:
    """Return how many jobs a process has begun; fewer than none if there is no process."""
    if child.pid is None:
        return -1
    begun = child.jobs.begun()
    return math.inf if begun is None else len(begun)


def _close(shards: Iterable[FleetMember]) -> None:
    for shard in shards:
        if shard.ended:
            shard.thread.join()
        if not shard.thread.is_alive():  # otherwise it hangs, and this process is about to end
            shard.close()
