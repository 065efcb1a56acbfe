"""What a queue must offer to take part in the benchmarks.

A contestant is a class in a module of its own. The benchmark imports it to read what it needs (its name, its
packages, its SQL), so the module itself imports only the standard library and this one. The methods are
called in the contestant's own environment, by ``benchmarks.contestants.program``, and import the queue there.

Every contestant runs the same kinds of jobs:

    noop      does nothing, and leaves a mark (``marks.mark()``)
    insert    inserts one row into the table ``note`` as users of this queue would, then leaves a mark
    stamp     gets a number, and records when it started (``marks.stamp(number)``), then leaves a mark
    wait      waits for some milliseconds (``marks.wait()``, or ``marks.a_wait()`` if it is a coroutine)

Most queues take part twice: with their defaults, as one starts them after the first page of their
documentation, and in the best configuration that the documentation describes (``NAME-best``).
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["CannotTakePartError", "Contestant", "Kind", "database_url"]

Kind = Literal["noop", "insert", "stamp", "wait"]

#: The table that ``insert`` writes to, in each contestant's database.
NOTE = "CREATE TABLE note (id bigserial PRIMARY KEY, text text NOT NULL)"


class CannotTakePartError(Exception):
    """The contestant cannot run on this machine. The text says why, and what to install."""


class Contestant:
    """One queue, with one configuration."""

    name: ClassVar[str]
    """As it is shown and chosen (``--peer``). Its module is found in ``contestants/__init__.py``."""
    configuration: ClassVar[str] = ""
    """In words, for the tables: how it differs from the defaults of the queue."""
    requirements: ClassVar[tuple[str, ...]] = ()
    """The packages of its environment, with pinned versions. Empty: it runs in the benchmark's own."""
    environment: ClassVar[Mapping[str, str]] = {}
    """Environment variables for all its processes."""
    scenarios: ClassVar[frozenset[str]] = frozenset(
        {"drain", "inserts", "latency", "producers", "bulk", "history"}
    )
    """The scenarios that it takes part in."""
    pace: ClassVar[int]
    """About how many no-op jobs one of its processes runs in a second here: how many jobs a run needs."""
    insert_pace: ClassVar[int] = 250
    """The same for jobs that insert a row."""
    wait_pace: ClassVar[int] = 0
    """The same for jobs of the kind ``wait``, whose length is not counted. 0: as for no-op jobs."""
    slots: ClassVar[int]
    """How many ``wait`` jobs it runs at the same time."""

    starting: ClassVar[float] = 0.2
    """Which part of the jobs of a run is not measured, because not all of its processes have started."""
    unfinished: ClassVar[str] = ""
    """A query for the number of jobs that are not finished. Empty if its queue is not in PostgreSQL."""
    clear: ClassVar[str] = ""
    """Statements that remove all jobs. If empty, the method ``empty`` is called instead."""
    finished: ClassVar[str] = ""
    """Inserts ``%(jobs)s`` finished no-op jobs as this queue keeps them. Empty: it keeps none."""

    @contextmanager
    def services(self, folder: Path) -> Iterator[Mapping[str, str]]:
        """Start what the queue needs besides PostgreSQL, and return variables for its environment.

        This is called in the benchmark's process. ``folder`` is a temporary folder. Raise
        ``CannotTakePartError`` if a program is missing.
        """
        yield {}

    def service(self) -> str:
        """Return the name and version of what it needs besides PostgreSQL."""
        return ""

    def prepare(self) -> None:
        """Create the queue's tables in the empty database."""
        raise NotImplementedError

    def empty(self) -> None:
        """Remove all jobs, if ``clear`` cannot."""
        raise NotImplementedError

    def fill(self, kind: Kind, jobs: int, **options: Any) -> None:
        """Enqueue many jobs, the fastest way that the queue documents."""
        raise NotImplementedError

    @contextmanager
    def putting(self, kind: Kind) -> Iterator[Any]:
        """Return a function that enqueues and commits one job, called with its number, as a web view would.

        Connections and pools are open before the function is returned.
        """
        raise NotImplementedError
        yield  # type: ignore[unreachable]

    def preload(self) -> None:
        """Import what ``putting`` needs, before the processes are forked that enqueue at the same time."""

    def workers(self, kind: Kind) -> list[list[str]]:
        """Return the commands of the workers of this configuration, for jobs of this kind.

        Without this method, ``work`` is called with the number of jobs at a time, in one process.
        """
        return self.working(1, self.slots)

    def working(self, processes: int, slots: int) -> list[list[str]]:
        """Return commands that call ``work`` in so many processes."""
        return [[*self.program(), "work", str(slots)]] * processes

    def commands(self, processes: int, threads: int, options: Sequence[str]) -> list[list[str]]:
        """Return the commands of so many worker processes, for the scenarios that only our queue runs.

        ``options`` are those of its command.
        """
        return self.working(processes, threads)

    def work(self, slots: int) -> None:
        """Run jobs in this process, ``slots`` at a time, until SIGTERM."""
        raise NotImplementedError

    def jobs(self, seconds: float, length: float = 0) -> int:
        """Return how many jobs of this length (milliseconds) its workers run in this time, at least."""
        seconds *= 0.8 / (1 - self.starting)
        if not length:
            return int(self.pace * seconds)
        rate = min(self.wait_pace or self.pace, self.slots / length * 1e3)
        return max(3, round(rate * seconds / self.slots)) * self.slots

    def program(self) -> list[str]:
        """Return the beginning of a command that calls a method of this class."""
        return [sys.executable, "-m", "benchmarks.contestants.program", self.name]


def database_url() -> str:
    """Return the address of the contestant's own database: ``postgresql://user:password@host:port/name``."""
    return os.environ["DATABASE_URL"]
