"""Start ``runqueueworker`` in a separate process, and observe it from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from django_pgqueue import conf
from django_pgqueue.models import Worker
from tests.app.apps import CONSTANTS
from tests.support.fork_server import POPEN, Forked, fork_command
from tests.support.jobs import sql
from tests.support.workers import over as over_in_time, until

ROOT = Path(__file__).resolve().parents[2]
SLOW = 120.0  # seconds; on a busy machine, a process takes 10 to start, and some commands start five
over, wait = partial(over_in_time, seconds=SLOW), partial(until, seconds=SLOW)


class Command:
    """A running ``runqueueworker``."""

    def __init__(self, process: subprocess.Popen[bytes] | Forked, log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        """What the command has written so far."""
        return self._log.read_text()

    def wait(self) -> int:
        """Wait until the command has ended, and return its exit code."""
        try:
            return self.process.wait(SLOW)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"The command did not end:\n{self.log}") from None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the command."""
        self.process.send_signal(number)

    def logged(self, text: str, times: int = 1) -> None:
        """Wait until the command has logged a text."""
        try:
            wait(lambda: self.log.count(text) >= times)
        except AssertionError:
            raise AssertionError(f"{text!r} does not appear {times} times in the log:\n{self.log}") from None

    def workers(self, count: int = 1) -> list[Worker]:
        """Wait until there are this many worker processes, and return them."""
        found = Worker.objects.order_by("started_at")
        return until(
            lambda: now if len(now := [*found.all()]) == count else [], seconds=SLOW, what=f"{count} workers"
        )


Start = Callable[..., Command]


@pytest.fixture
def forks() -> bool:
    """Whether commands are forked, which is fast. Tests that are about starting override this fixture."""
    return True


@pytest.fixture
def forks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process starts of the package is forked, with the settings of processes: both are fast."""
    if sys.platform == "linux":
        monkeypatch.setattr(subprocess, "Popen", POPEN)
    for name, value in django_environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def start(transactional_db: None, tmp_path: Path, forks: bool) -> Iterator[Callable[..., Command]]:
    """Return a function that starts the command with some arguments. See ``commands_in``."""
    with commands_in(tmp_path, forks=forks) as start_one:
        yield start_one


@contextmanager
def commands_in(
    folder: Path, *, forks: bool = True, prints_logs: bool = True
) -> Iterator[Callable[..., Command]]:
    """Yield a function that starts the command with some arguments, on the current databases. Its log is
    written to the folder. At the end of the block, running commands are killed.

    ``program`` is the module that is the project's ``manage.py``. ``through`` is a program that starts the
    command, and ``code`` is the folder whose code it runs. If one of the last two is given, or if ``stdout``
    or ``LD_PRELOAD`` is given, the command is not forked but started by a new interpreter. ``constants`` are
    those of the supervisor.
    """
    commands: list[Command] = []

    def start_one(
        *arguments: str,
        env: dict[str, str] | None = None,
        program: str = "django",
        through: Sequence[str] = (),
        code: Path = ROOT,
        stdout: int | None = None,
        constants: dict[str, Any] | None = None,
        **pgqueue: Any,
    ) -> Command:
        log = folder / f"worker-{len(commands)}.log"
        environment = {**django_environment(code, **pgqueue), **(env or {})}
        environment[CONSTANTS] = json.dumps(constants or {})
        process: subprocess.Popen[bytes] | Forked
        needs_new = through or stdout is not None or code != ROOT or "LD_PRELOAD" in environment
        if forks and not needs_new:
            process = fork_command([program, "runqueueworker", *arguments], environment, log)
        else:
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [*through, sys.executable, "-m", program, "runqueueworker", *arguments],
                    cwd=code, env=environment, stdin=subprocess.DEVNULL,
                    stdout=output if stdout is None else stdout, stderr=output,
                )  # fmt: skip
        command = Command(process, log)
        commands.append(command)
        return command

    try:
        yield start_one
    finally:
        for command in commands:
            if prints_logs:
                print(command.log)  # shown if the test has failed
            if command.process.poll() is None:
                command.process.kill()
                command.process.wait()
        # Children that have lost their supervisor end by themselves. The tables are flushed only after that,
        # and after the server has done what the killed processes have asked for.
        wait(lambda: not any(map(is_alive, Worker.objects.values_list("pid", flat=True))))
        wait(lambda: not sessions_at_work())


def sessions_at_work() -> bool:
    """Return whether the server executes a statement of a worker or a supervisor.

    Through a pooler, this question itself may be asked in a session that bears the name of a worker.
    """
    found = sql(
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'pgqueue %' AND state <> 'idle' AND pid <> pg_backend_pid()"
    )
    return bool(found)


def django_environment(code: Path = ROOT, **pgqueue: Any) -> dict[str, str]:
    """Return the environment of a process of Django that uses the current databases. It runs in the folder
    `code`, whose modules it imports.
    """
    return {
        **os.environ,
        **({} if code == ROOT else {"PYTHONPATH": str(code)}),
        "DJANGO_SETTINGS_MODULE": "tests.processes.settings",
        "TEST_DATABASES": json.dumps(databases()),
        "TEST_PGQUEUE": json.dumps(pgqueue),
        # The code is compiled once for the processes of all tests, even if the checkout is not writable.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(ROOT / "var" / "pycache"),
    }


def begun(key: str, count: int = 1) -> None:
    """Wait until tasks have said with an entry, so many times, that they run."""
    runs = _runs(key)
    wait(lambda: runs.count() >= count, what=f"{key} runs")


def left_behind(key: str) -> int:
    """Return the program that a ``leave_subprocess`` job has started."""
    begun(key)
    return int(_runs(key).get().note)


def _runs(key: str) -> Any:
    from tests.app.models import Entry  # not each project that starts commands has this app

    return Entry.objects.filter(key=f"{key} runs")


def gone(pid: int) -> None:
    """Wait until a process has ended."""
    wait(lambda: not is_alive(pid), what=f"process {pid} is gone")


def databases() -> dict[str, dict[str, Any]]:
    """Return the current DATABASES in a form that JSON can hold."""
    names = ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")
    return {
        alias: {name: connections[alias].settings_dict[name] for name in names}
        for alias in dict.fromkeys(("default", "other", *conf.current().shards))
        if alias in connections.settings
    }


def with_database(alias: str = "default", /, **changes: Any) -> dict[str, str]:
    """Return the environment of a command with these changes of a database."""
    given = databases()
    given[alias].update(changes)
    return {"TEST_DATABASES": json.dumps(given)}


def at_port(port: int, alias: str = "default") -> dict[str, str]:
    """Return the environment of a command that finds a database at this port."""
    return with_database(alias, HOST="127.0.0.1", PORT=port)


def is_alive(pid: int) -> bool:
    """Return whether the process exists and has not ended. A zombie has ended."""
    return _state_and_parent(pid)[0] not in {"Z", "X", ""}


def parent_of(pid: int) -> int:
    """Return the id of the parent of a process, or 0 if there is no such process."""
    return _state_and_parent(pid)[1]


def parents() -> dict[int, int]:
    """Return the parent of each process."""
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return {pid: parent_of(pid) for pid in found}


def children_of(pid: int) -> list[int]:
    """Return the children of a process, including those that have ended and wait to be reaped."""
    return [child for child, parent in parents().items() if parent == pid]


def _state_and_parent(pid: int) -> tuple[str, int]:
    try:
        # These fields come after the name, which is in parentheses and may contain any character.
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return "", 0
    return state, int(parent)
