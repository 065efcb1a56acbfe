"""A contestant that has been installed and has its database: what the scenarios work with."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .beside import Program, beside
from .contestants import load
from .contestants.contract import NOTE, Kind
from .environments import python_of
from .marks import VARIABLE, Marks
from .progress import Progress
from .server import connect, create_database, drop_database, settle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import psycopg

__all__ = ["Contender", "StuckError", "Workers"]

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "benchmark_"
"""How the names of the databases begin."""
STOP_SECONDS = 20
STUCK_SECONDS = 60


class StuckError(Exception):
    """A run made no progress for a minute, or a worker ended by itself."""


class Contender:
    """One contestant in its own environment and its own database."""

    def __init__(self, name: str, server: str, purpose: str = "") -> None:
        """Install it and create its tables.

        With a purpose it gets one more database, which is dropped at the end. Raise ``CannotInstallError`` or
        ``CannotTakePartError`` if that is not possible here.
        """
        self.name = name
        self.contestant = load(name)
        self._programs = 0
        with ExitStack() as stack:  # what was started ends if a later step fails
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
            self.marks = Marks(self._folder / "marks")
            module = type(self.contestant).__module__.rpartition(".")[2]
            self._python = str(python_of(module, self.contestant.requirements))
            database = PREFIX + name
            if purpose:
                database += f"_{purpose}"
                stack.callback(drop_database, server, database)
            self.url = create_database(server, database)
            self._environment = {
                **os.environ,
                "DATABASE_URL": self.url,
                VARIABLE: str(self.marks.path),
                "PYTHONPATH": str(ROOT),
                **self.contestant.environment,
                **stack.enter_context(self.contestant.services(self._folder)),
            }
            self._connection = connect(self.url)
            stack.callback(self.rest)
            self.connection.execute(NOTE)
            self._call("prepare")
            self._stack = stack.pop_all()

    @property
    def connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection to its database."""
        if self._connection.closed:
            self._connection = connect(self.url)
        return self._connection

    def rest(self) -> None:
        """Leave the connections of the server to the others."""
        self._connection.close()

    def close(self) -> None:
        """Stop what was started for it. Its first database stays, for a look at it."""
        self._stack.close()

    def start_again(self) -> None:
        """Remove all jobs, rows and marks, and write everything to disk."""
        self.connection.execute("TRUNCATE note")
        if self.contestant.clear:
            self.connection.execute(self.contestant.clear)
        else:
            self._call("empty")
        self.marks.reset()
        self.connection.execute("CHECKPOINT")

    def settle(self, *, checkpoint: bool = True) -> None:
        """Vacuum, analyze and, unless WAL is measured, write everything to disk.

        After a checkpoint, the first change of each page logs the whole page. A server that is busy pays for
        that once in some minutes, but a run of seconds would pay for each page.
        """
        settle(self.connection, checkpoint=checkpoint)

    def fill(self, kind: str, jobs: int, **options: Any) -> float:
        """Enqueue many jobs, and return the seconds that this took.

        Our own queue has more kinds of jobs than those of ``Kind``.
        """
        return float(self._call("fill", kind, str(jobs), json.dumps(options)))

    def bulk(self, kind: Kind, jobs: int) -> float:
        """Like ``fill``, for figures: it first enqueues a few jobs, so that imports are not measured."""
        return float(self._call("bulk", kind, str(jobs)))

    def put(self, kind: Kind, jobs: int, pause: float = 0.0) -> list[tuple[float, float]]:
        """Enqueue jobs one by one. Return when each call began and ended (CLOCK_MONOTONIC)."""
        return [(began, ended) for began, ended in self._call("put", kind, str(jobs), str(pause))]

    def finish(self, jobs: int) -> None:
        """Insert finished jobs, as this queue keeps them."""
        self.connection.execute(self.contestant.finished, {"jobs": jobs})

    def unfinished(self) -> int:
        """Return how many jobs are not finished, 0 if the queue cannot be asked."""
        if not self.contestant.unfinished:
            return 0
        (count,) = self.connection.execute(self.contestant.unfinished).fetchone() or (0,)
        return int(count)

    @contextmanager
    def working(
        self,
        processes: int = 1,
        threads: int = 1,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        kind: Kind | None = None,
    ) -> Iterator[Workers]:
        """Run workers; stop them at the end. With a kind of jobs: those of the contestant's configuration."""
        log = self._folder / "workers.log"
        contestant = self.contestant
        commands = contestant.workers(kind) if kind else contestant.commands(processes, threads, options)
        workers = Workers(self, [self._start(each, log, environment or {}) for each in commands], log)
        try:
            yield workers
        finally:
            workers.stop()

    @contextmanager
    def program(self, module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Run a program in the contestant's environment, with pipes to it; kill it at the end."""
        with subprocess.Popen(
            [self._python, "-m", module, *arguments],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def drain(self, jobs: int, workers: Workers) -> float:
        """Wait until all jobs have run and are finished; return jobs per second since the first start."""
        self._finish(jobs, workers)
        return jobs / (time.monotonic() - self.marks.first())

    def drain_by_all(self, jobs: int, workers: Workers, at_once: int = 1) -> float:
        """The same since a part of the jobs had run, so that all processes of the workers have started.

        If so many jobs run at once and are equally long, they end together, so whole batches are counted.
        """
        self._finish(jobs, workers)
        before = math.ceil(self.contestant.starting * jobs / at_once) * at_once
        return (jobs - before) / (time.monotonic() - workers.reached(before))

    def _finish(self, jobs: int, workers: Workers) -> None:
        workers.wait_for(jobs)
        while self.unfinished():
            workers.check()
            time.sleep(0.005)

    def beside(self, *command: str) -> AbstractContextManager[Program]:
        """Run a program of the benchmarks in this environment and with this database."""
        self._programs += 1
        log = self._folder / f"beside-{self._programs}.log"
        return beside(self._with_python(command), self._environment, log)

    def _start(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        with log.open("ab") as file:
            return subprocess.Popen(
                self._with_python(command),
                cwd=ROOT,
                env={**self._environment, **environment},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def _call(self, verb: str, *arguments: str) -> Any:
        command = self._with_python([*self.contestant.program(), verb, *arguments])
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise StuckError(f"{self.name}: {verb} failed: {done.stderr.strip()[-2000:]}")
        return json.loads(done.stdout.strip().splitlines()[-1])

    def _with_python(self, command: Sequence[str]) -> list[str]:
        """Put the contestant's own Python in place of the one that its module named."""
        bin_folder = Path(self._python).parent
        own = bin_folder / command[0]
        program = str(own) if own.exists() and not Path(command[0]).is_absolute() else self._python
        return [program, *command[1:]]


class Workers:
    """The running worker processes of a contestant."""

    def __init__(self, contender: Contender, processes: list[subprocess.Popen[bytes]], log: Path) -> None:
        self._contender = contender
        self.processes = processes
        self._log = log
        self._progress = Progress()

    def wait_for(self, jobs: int) -> None:
        """Wait until this number of jobs has run. Raise ``StuckError`` if none runs for a minute."""
        seen, since = -1, time.monotonic()
        while True:
            count, now = self._contender.marks.count(), time.monotonic()
            self._progress.saw(count, now, jobs)
            if count >= jobs:
                return
            self.check()
            if count != seen:
                seen, since = count, now
            elif now - since > STUCK_SECONDS:
                raise StuckError(f"{self._contender.name}: only {count} of {jobs} jobs ran\n{self._tail()}")
            time.sleep(0.002)

    def tenths(self, jobs: int) -> list[float]:
        """Return the jobs per second of each tenth of these jobs, after ``wait_for`` has seen all of them."""
        return self._progress.tenths(self._contender.marks.first(), jobs)

    def reached(self, count: float) -> float:
        """Return when so many jobs had run, after ``wait_for`` has seen more."""
        return self._progress.reached(count, self._contender.marks.first())

    def longest_pause(self) -> float:
        """Return the longest time, in seconds, in which hardly any job ran while ``wait_for`` looked on."""
        return self._progress.longest_pause()

    def check(self) -> None:
        """Raise ``StuckError`` if a process has ended."""
        for process in self.processes:
            if process.poll() is not None:
                raise StuckError(f"{self._contender.name}: a worker ended\n{self._tail()}")

    def stop(self) -> None:
        """End the workers and everything that they started."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            finally:
                _kill_group(process.pid)
                process.wait()

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
