"""The processes that the demonstration starts, and that end with it."""

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
GRACE = 15  # seconds that a child has to end by itself


@contextmanager
def only_one() -> Iterator[None]:
    """Raise CommandError if another demonstration of this checkout is up: they would use the same files."""
    VAR.mkdir(exist_ok=True)
    with (VAR / "demo.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError("Another demo of this checkout is running; stop it first.") from None
        yield


class Child:
    """`manage.py` with some arguments, in a process group of its own; a context manager that ends it.

    Of its own, so that Ctrl-C reaches this process only, which then stops its children in order. What the
    child prints goes to `log`.
    """

    def __init__(self, name: str, *arguments: str, debug: bool = False) -> None:
        self.name = name
        self.log = VAR / f"demo-{name}.log"
        environment = {
            **os.environ,
            "DATABASE_URL": database_url(),
            "DEBUG": str(debug),  # with DEBUG, Django would remember each statement
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
        """Raise CommandError with its last words if the child has ended, which it should not by itself."""
        if (code := self._process.poll()) is not None:
            words = self.log.read_text(errors="replace").strip().splitlines()[-15:]
            raise CommandError(
                "\n".join([f"The {self.name} ended with exit code {code}; the end of {self.log}:", *words])
            )

    def started(self, pid: int) -> bool:
        """Whether a process is one of the child's own, and so lives in the session that was made for it."""
        try:
            return os.getsid(pid) == self._process.pid
        except (ProcessLookupError, PermissionError):
            return False

    def stop(self) -> None:
        """Ask the child to end, wait for it, and after GRACE end by force what is left of its group."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE)
        finally:  # also when the user has no patience: a second Ctrl-C
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
