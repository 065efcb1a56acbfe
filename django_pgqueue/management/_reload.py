"""``runqueueworker --reload``, for development: restart the command when its code changes.

    the reloader   this process: it starts the command as its child process and forwards signals to it
    the child      the supervisor as usual; a thread watches the files of all modules. When one has changed,
                   the child stops as after SIGTERM and ends with the exit code RELOAD, and the reloader
                   starts another one
    an error       a child that ends with an error, such as a SyntaxError in models.py, is started again after
                   a file has changed

Django's autoreloader finds the files. Its ``run_with_reloader`` cannot be used: it runs its function in a
thread, but a supervisor needs the main thread; it kills its child a quarter of a second after Ctrl-C; and it
ends when the project cannot be imported.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from time import sleep, time
from typing import NamedTuple

from django.apps import apps
from django.utils.autoreload import StatReloader, autoreload_started, get_child_arguments

from ..worker.processes.parent_link import die_with
from ..worker.processes.popen import has_ended
from ..worker.supervisor.stop import StopSignals
from ..worker.waker import Waker
from ._parser import USAGE

RELOAD = 3  # the exit code that requests a new child, as in Django's autoreloader
GRACE = 5.0  # the longest grace period in seconds, unless --grace is used
LOOK_EVERY = 1.0  # seconds

_VARIABLE = "PGQUEUE_RELOADER"


class Parent(NamedTuple):
    """The reloader that has started this process."""

    pid: int
    since: float
    """When it started this process, as ``time.time()``."""

    @classmethod
    def ours(cls) -> Parent | None:
        """Return the reloader; None if this process has none. On Linux, this process will die with it."""
        pid, _, since = os.environ.get(_VARIABLE, "").partition(" ")
        if pid != str(os.getppid()):  # not set, or inherited by a process that a task has started
            return None
        die_with(int(pid))
        return cls(int(pid), float(since))

    def environment(self) -> dict[str, str]:
        """Return the environment for the child."""
        return {**os.environ, _VARIABLE: f"{self.pid} {self.since}"}


class SourceFiles(StatReloader):
    """The files of all imported modules, and those in the packages of the project's apps.

    The latter are included because a task may import a module later, in a worker process, and because a
    module that cannot be imported is not among the imported modules.
    """

    def __init__(self, since: float) -> None:
        super().__init__()
        self._since = since
        self._times: dict[Path, float] = {}
        autoreload_started.send(sender=self)  # projects add files of their own here

    def watched_files(self, include_globs: bool = True) -> Iterator[Path]:
        """Return all files, some of them twice."""
        yield from super().watched_files(include_globs)
        installed = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib")]
        for config in apps.get_app_configs():
            folder = Path(config.path)
            if not any(folder.is_relative_to(parent) for parent in installed):
                yield from _package_files(folder)

    def changed(self) -> Path | None:
        """Return a file that has changed since the last call, or, in the first call, since the start.

        Race: code that is saved after its import and before the first call must count. So a file that is seen
        for the first time counts if it is newer than ``since``, unless its time is in the future.
        """
        now, found = time(), None
        for path, modified in self.snapshot_files():
            before = self._times.setdefault(path, self._since if modified <= now else modified)
            if modified > before:
                found = path
            self._times[path] = modified
        return found


def _package_files(folder: Path) -> Iterator[Path]:
    try:
        entries = list(folder.iterdir())
    except OSError:  # it was removed a moment ago
        return
    for entry in entries:
        if entry.suffix == ".py":
            yield entry
        elif (entry / "__init__.py").exists():  # skip node_modules and the like
            yield from _package_files(entry)


def watch(parent: Parent, on_change: Callable[[Path], None]) -> None:
    """In the child: call ``on_change`` once, from another thread, when a file has changed."""

    def look() -> None:
        files = SourceFiles(parent.since)
        while (path := files.changed()) is None:
            sleep(LOOK_EVERY)
        on_change(path)

    Thread(target=look, name="pgqueue-reload", daemon=True).start()


class Reloader:
    """The parent process. Used on the main thread."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._waker = Waker()
        self._signals = StopSignals(self._waker.interrupt)
        self._handed_on = 0

    def run(self) -> int:
        """Start one child after another until told to stop, and return the exit code of the last one."""
        self._signals.catch(signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
        self._signals.notice(signal.SIGCHLD)
        while True:
            parent = Parent(os.getpid(), time())
            code = self._run_child(parent)
            if self._signals.count:
                return 0 if code == RELOAD else code
            if code == RELOAD:
                continue
            if code in (0, USAGE):
                return code
            self._say(f"The command ended with exit code {code}. It starts again when a file changes.")
            if not self._has_changed(parent.since):
                return 0

    def _run_child(self, parent: Parent) -> int:
        # The child has its own group: the terminal sends Ctrl-C to the reloader's group, and the reloader
        # forwards it once.
        child = subprocess.Popen(
            get_child_arguments(),
            env=parent.environment(),
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
        while not has_ended(child):
            if self._signals.count > self._handed_on:
                self._handed_on += 1
                child.send_signal(self._signals.last or signal.SIGTERM)
            else:
                self._waker.sleep(LOOK_EVERY, lambda: self._signals.count > self._handed_on)
        code = child.wait()
        return code if code >= 0 else 128 - code

    def _has_changed(self, since: float) -> bool:
        """Wait for a change. Return False if told to stop."""
        files = SourceFiles(since)
        while files.changed() is None:
            if self._signals.count:
                return False
            self._waker.sleep(LOOK_EVERY, lambda: self._signals.count > 0)
        return True
