"""Run the phases of the public harness without Docker, for this queue and for others.

    python -m benchmarks.public                                 everything: about 4 minutes for each queue
    python -m benchmarks.public --part peak --workers 128       only the throughput at its peak
    python -m benchmarks.public --contestant procrastinate --phase-seconds 60 --rate 200 --json FILE

The contestants run one after the other, each in a database of its own on the same server: the one that
DATABASE_URL names, or a durable one that the benchmark starts. Jobs wait a millisecond (--work-ms).
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.environments import CannotInstallError
from benchmarks.server import connect, create_database, describe, server_url

from .contestants import CONTESTANTS, Contestant
from .observer import observed
from .phases import KILL_PERIOD, PART_NAMES, PRESSURE, Part, Phase, Trouble, parts
from .pool import BrokenAdapterError, Rate, Replica
from .samples import Sample
from .sessions import sessions
from .summary import Span, summarize
from .table import EXPLANATION, table

DOWN_SECONDS = 1.0  # between a kill and the next start


def main(arguments: Sequence[str]) -> None:
    """Measure the contestants that were chosen, and print a table for each."""
    measure_all(arguments)
    print(EXPLANATION)


def measure_all(arguments: Sequence[str]) -> dict[str, Any]:
    """Do that, and return the figures without the samples that they are made from."""
    options = parse(arguments)
    server = server_url()
    about = {**describe(server), "cores": str(os.cpu_count()), "options": " ".join(arguments)}
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    results: dict[str, Any] = {}
    for name in options.contestant or CONTESTANTS:
        contestant = CONTESTANTS[name]
        try:
            command = contestant.command()
        except CannotInstallError as error:
            results[name] = {"skipped": str(error)}
            print(f"\n{name} is skipped: it cannot be installed. {error}")
            continue
        results[name] = {"requirements": contestant.requirements, "parts": {}}
        for part in parts(options.phase_seconds, options.part):
            run = Run(contestant, command, part, options)
            try:
                results[name]["parts"][part.name] = run.measure(server)
            except BrokenAdapterError as error:
                results[name]["parts"][part.name] = {"phases": run.figures(), "broken": str(error)}
        print(table(name, results[name]["parts"]))
        if options.json:  # after each contestant: a run may be stopped
            options.json.write_text(json.dumps({"about": about, "contestants": results}, indent=2) + "\n")
    for result in results.values():
        for part_result in result.get("parts", {}).values():
            part_result.pop("samples", None)
    return {"about": about, "contestants": results}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options, or print what is wrong with them and exit."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.public",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--contestant", action="append", choices=list(CONTESTANTS), help="only this queue; repeatable")
    add("--part", action="append", choices=PART_NAMES, help="only this part; repeatable")
    add("--phase-seconds", type=float, default=18.0, metavar="S", help="length of a phase (18)")
    add("--rate", type=float, default=400.0, help="jobs per second for each replica (400)")
    add("--depth", type=int, default=4_000, help="jobs that wait all the time in the part peak (4000)")
    add("--workers", type=int, default=32, help="jobs that a replica runs at once (32)")
    add("--replicas", type=int, default=1, help="processes that produce, each with its workers (1)")
    add("--work-ms", type=float, default=1.0, help="how long each job waits (1)")
    add("--sample-seconds", type=float, default=1.0, metavar="S", help="interval of the samples (1)")
    add("--json", type=Path, metavar="FILE", help="write all figures and samples to this file")
    return parser.parse_args(arguments)


class Run:
    """One part with one contestant."""

    def __init__(
        self, contestant: Contestant, command: Sequence[str], part: Part, options: argparse.Namespace
    ) -> None:
        self._command = command
        self._manifest = contestant.manifest
        self._part = part
        self._options = options
        self._rate = Rate(options.rate)
        self._spans: list[Span] = []
        self._samples: list[Sample] = []
        self._replicas: list[Replica] = []

    def measure(self, server: str) -> dict[str, Any]:
        """Run all phases. Raise ``BrokenAdapterError`` if the adapter ends or breaks the contract."""
        every = self._options.sample_seconds
        with (
            _database(server, f"{self._manifest.db_name}_{os.getpid()}") as url,
            tempfile.TemporaryDirectory() as folder,
        ):
            self._url = url
            self._rate_file = Path(folder) / "rate"
            self._set_rate(1.0)
            self._replicas = [self._replica(number, folder) for number in range(self._options.replicas)]
            try:
                for replica in self._replicas:
                    replica.start()
                with observed(url, every, self._samples.append):
                    for phase in self._part.phases:
                        self._go_through(phase)
            finally:
                codes = [replica.stop() for replica in self._replicas]
        return {
            "phases": self.figures(),
            "descriptor": self._replicas[0].descriptor,
            "exit_codes": codes,
            "samples": [asdict(sample) for sample in self._samples],
        }

    def figures(self) -> dict[str, Any]:
        """Return the figures of the phases that are over."""
        return {
            span.phase.name: summarize(span, self._samples, self._options.sample_seconds)
            for span in self._spans
            if span.phase.is_counted
        }

    def _replica(self, instance: int, folder: str) -> Replica:
        options, is_depth_target = self._options, self._part.is_depth_target
        environment = {
            "DATABASE_URL": self._url,
            "SCENARIO": "long_horizon",
            "PRODUCER_MODE": "depth-target" if is_depth_target else "fixed",
            "PRODUCER_PACING": "harness",
            "PRODUCER_RATE": str(options.rate),
            "PRODUCER_RATE_CONTROL_FILE": str(self._rate_file),
            "TARGET_DEPTH": str(options.depth),
            "WORKER_COUNT": str(options.workers),
            "JOB_WORK_MS": str(options.work_ms),
            "SAMPLE_EVERY_S": str(options.sample_seconds),
            # The phases are shorter than the usual window of 30 seconds.
            "LATENCY_WINDOW_MS": str(1e3 * options.sample_seconds),
            "BENCH_INSTANCE_ID": str(instance),
            "TMPDIR": folder,  # what a killed adapter leaves behind is deleted with it
        }
        rate = None if is_depth_target else self._rate
        return Replica(self._command, environment, self._manifest, rate, self._samples.append)

    def _set_rate(self, times: float) -> None:
        self._rate.value = times * self._options.rate
        fresh = self._rate_file.with_suffix(".new")
        fresh.write_text(str(self._rate.value))
        fresh.replace(self._rate_file)

    def _go_through(self, phase: Phase) -> None:
        print(f"  {self._manifest.system}: {phase.name}, {phase.seconds:g} s", flush=True)
        with sessions(phase.trouble, self._url, self._manifest.event_tables[0]):
            self._set_rate(PRESSURE if phase.trouble is Trouble.PRESSURE else 1.0)
            began = time.time()
            if phase.trouble is Trouble.KILLS:
                self._kill_repeatedly(phase.seconds)
            self._wait_until(began + phase.seconds)
            self._spans.append(Span(phase, began, time.time()))

    def _kill_repeatedly(self, seconds: float) -> None:
        began, kills = time.time(), max(1, int(seconds / KILL_PERIOD))
        for number in range(kills):
            self._wait_until(began + (number + 0.5) * seconds / kills)
            self._replicas[0].kill()
            time.sleep(DOWN_SECONDS)
            self._replicas[0].start()

    def _wait_until(self, moment: float) -> None:
        while (left := moment - time.time()) > 0:
            for replica in self._replicas:
                replica.check()
            time.sleep(min(left, 0.2))


@contextmanager
def _database(server: str, name: str) -> Iterator[str]:
    """Create a database for the block. What others did before is on disk when the block begins."""
    url = create_database(server, name)
    try:
        with connect(server) as connection:
            connection.execute("CHECKPOINT")
        yield url
    finally:
        with connect(server) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
