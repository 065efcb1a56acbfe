"""The child processes of the demonstration. They end when it ends."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from django.core.management.base import CommandError

from example_project.project.database import database_url
from example_project.project.places import VAR

MANAGE = Path(__file__).resolve().parents[1] / "manage.py"
GRACE = 15  # seconds that a child may take to end by itself


@contextmanager
def only_one() -> Iterator[None]:
    """Raise CommandError if another demonstration of this checkout is running, because both use the same
    files.
    """
    VAR.mkdir(exist_ok=True)
    with (VAR / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError("Another demo of this checkout is running. Please stop it first.") from None
        yield


class Child:
    """Runs `manage.py` with some arguments in a separate process group. As a context manager, it ends the
    child.

    The process group is separate so that Ctrl-C reaches only this process, which then stops its children in
    an orderly way. The output of the child is written to `log`.
    """

    def __init__(self, name: str, *arguments: str, debug: bool = False) -> None:
        self.name = name
        self.log = VAR / f"demo-{name}.log"
        environment = {
            **os.environ,
            "DATABASE_URL": database_url(),
            "DEBUG": str(debug),  # with DEBUG, Django would store each statement
            "PYTHONUNBUFFERED": "1",
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(MANAGE), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise CommandError with the end of the child's output if the child has ended unexpectedly."""
        if (code := self._process.poll()) is not None:
            words = self.log.read_text(errors="replace").strip().splitlines()[-15:]
            raise CommandError(
                "\n".join([f"The {self.name} ended with exit code {code}. The end of {self.log}:", *words])
            )

    def started(self, pid: int) -> bool:
        """Return whether the child has started this process: whether it is in the child's session."""
        try:
            return os.getsid(pid) == self._process.pid
        except (ProcessLookupError, PermissionError):
            return False

    def stop(self) -> None:
        """Ask the child to end and wait for it. After GRACE, kill the remaining processes of its group."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE)
        finally:  # also if the user presses Ctrl-C a second time
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
