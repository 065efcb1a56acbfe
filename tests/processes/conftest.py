"""Starting ``runqueueworker`` in a process of its own, and watching it from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from django_pgqueue.models import Worker
from tests.support.workers import until

ROOT = Path(__file__).resolve().parents[2]
SLOW = 60.0  # seconds; starting a process takes a while on a busy machine


class Command:
    """A running ``runqueueworker``."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self._log.read_text()

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        try:
            return self.process.wait(SLOW)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end:\n{self.log}") from None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def logged(self, text: str, times: int = 1) -> None:
        """Wait until it has logged something."""
        try:
            until(lambda: self.log.count(text) >= times, seconds=SLOW)
        except AssertionError:
            raise AssertionError(f"{text!r} is not {times} times in the log:\n{self.log}") from None

    def workers(self, count: int = 1) -> list[Worker]:
        """Its worker processes, once there are so many."""
        return until(
            lambda: found if len(found := list(Worker.objects.order_by("started_at"))) == count else [],
            seconds=SLOW,
            what=f"{count} workers",
        )


@pytest.fixture
def start(transactional_db: None, tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Call it with the arguments of the command. What still runs at the end of the test is killed."""
    commands: list[Command] = []

    def start_one(*arguments: str, env: dict[str, str] | None = None, **pgqueue: Any) -> Command:
        log = tmp_path / f"worker-{len(commands)}.log"
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.processes.settings",
            "TEST_DATABASES": json.dumps(databases()),
            "TEST_PGQUEUE": json.dumps(pgqueue),
            **(env or {}),
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "django", "runqueueworker", *arguments],
                cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        command = Command(process, log)
        commands.append(command)
        return command

    yield start_one
    for command in commands:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()
    # Children that have lost their supervisor end by themselves; the tables are flushed only after them.
    until(
        lambda: not any(is_alive(pid) for pid in Worker.objects.values_list("pid", flat=True)), seconds=SLOW
    )


def databases() -> dict[str, dict[str, Any]]:
    """DATABASES as they are now, in words that travel."""
    names = ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")
    return {
        alias: {name: connections[alias].settings_dict[name] for name in names}
        for alias in ("default", "other")
    }


def is_alive(pid: int) -> bool:
    """Whether the process exists and has not ended (a zombie whose parent is gone has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
