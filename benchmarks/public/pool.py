"""The processes of an adapter, as the driver sees them: started, paced, read, killed and stopped."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from .contract import Manifest
from .leash import leashed
from .replica import ROOT
from .samples import Sample, Sink, parse_line

DESCRIPTOR_SECONDS = 60.0  # the harness waits as long
TICK_SECONDS = 0.025  # between two tokens
BATCH_MAX = 128  # jobs in one token


class BrokenAdapterError(Exception):
    """The adapter does not follow the contract."""


class Rate:
    """The current rate of the producer, which all replicas share."""

    def __init__(self, value: float) -> None:
        self.value = value


class Replica:
    """One process of an adapter. It may be killed and started again."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        manifest: Manifest,
        rate: Rate | None,  # None: the adapter paces itself
        sink: Sink,
    ) -> None:
        self._command = command
        self._environment = environment
        self._manifest = manifest
        self._rate = rate
        self._sink = sink
        self._process: subprocess.Popen[str] | None = None
        self._threads: list[threading.Thread] = []
        self.descriptor: dict[str, Any] = {}

    def start(self) -> None:
        """Start the process, and wait for its descriptor. Only the main thread may start a replica."""
        process = subprocess.Popen(
            leashed(self._command),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **self._environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        descriptors: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._read, args=(process.stdout, descriptors))]
        if self._rate is not None:
            self._threads.append(threading.Thread(target=_pace, args=(process.stdin, self._rate)))
        for thread in self._threads:
            thread.start()
        deadline = time.monotonic() + DESCRIPTOR_SECONDS
        while descriptors.empty():
            self.check()
            if time.monotonic() > deadline:
                raise BrokenAdapterError(f"no descriptor within {DESCRIPTOR_SECONDS:.0f} s")
            time.sleep(0.02)
        self.descriptor = descriptors.get()
        self._check_descriptor()

    def check(self) -> None:
        """Raise ``BrokenAdapterError`` if the process has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise BrokenAdapterError(f"the adapter ended by itself with {self._process.returncode}")

    def kill(self) -> None:
        """Kill the process with SIGKILL. Its workers die with it."""
        if self._process is not None:
            self._process.kill()
            self._reap(self._process, None)

    def stop(self) -> int | None:
        """Stop the process with SIGTERM. Return its exit code, or None if it had to be killed."""
        if self._process is None:
            return None
        process = self._process
        process.terminate()
        code = self._reap(process, self._manifest.shutdown_grace_s)
        return code if code >= 0 else None

    def _reap(self, process: subprocess.Popen[str], seconds: float | None) -> int:
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        for thread in self._threads:  # they end because the pipes are closed
            thread.join()
        self._process = None
        return code

    def _read(self, lines: IO[str], descriptors: queue.SimpleQueue[dict[str, Any]]) -> None:
        with lines:
            for line in lines:
                if sample := Sample.parse(line):
                    self._sink(sample)
                elif (record := parse_line(line)) and record.get("kind") == "descriptor":
                    descriptors.put(record)

    def _check_descriptor(self) -> None:
        for key in ("event_tables", "extensions"):
            missing = set(getattr(self._manifest, key)) - set(self.descriptor.get(key, ()))
            if missing:
                raise BrokenAdapterError(f"{key} of the descriptor lacks {', '.join(sorted(missing))}")


def _pace(tokens: IO[str], rate: Rate) -> None:
    """Write tokens until the process has ended. The credit is for the time that has really passed."""
    credit, last = 0.0, time.monotonic()
    try:
        with tokens:
            while True:
                time.sleep(TICK_SECONDS)
                moment = time.monotonic()
                credit += rate.value * (moment - last)
                last = moment
                while credit >= 1:
                    size = min(int(credit), BATCH_MAX)
                    credit -= size
                    tokens.write(f"ENQUEUE {size}\n")
                tokens.flush()
    except BrokenPipeError:
        pass
