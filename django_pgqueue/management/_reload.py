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

from django.apps import apps
from django.utils.autoreload import StatReloader, autoreload_started, get_child_arguments

from ..worker.spawn import die_with
from ._parser import USAGE

RELOAD = 3  # the exit code that requests a new child, as in Django's autoreloader
GRACE = 5.0  # the longest grace period in seconds, unless --grace is used
LOOK_EVERY = 1.0  # seconds between two looks at the files
SIGNALS_EVERY = 0.1  # seconds until a signal is handed on

_VARIABLE = "PGQUEUE_RELOADER"


def parent_since() -> float | None:
    """Return when the reloader has started this process, which on Linux dies with it; None if it has none."""
    pid, _, since = os.environ.get(_VARIABLE, "").partition(" ")
    if pid != str(os.getppid()):  # not set, or inherited by a process that a task has started
        return None
    die_with(int(pid))
    return float(since)


class SourceFiles(StatReloader):
    """The files of all imported modules, and those in the packages of the project's apps: a task may import
    one later, in a worker process, and a module that cannot be imported is not among the imported ones.
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
            if not any(Path(config.path).is_relative_to(parent) for parent in installed):
                for folder, folders, files in os.walk(config.path):
                    # Only packages: skip node_modules and the like.
                    folders[:] = [name for name in folders if Path(folder, name, "__init__.py").exists()]
                    yield from (Path(folder, name) for name in files if name.endswith(".py"))

    def changed(self) -> Path | None:
        """Return a file that has changed since the last call, or, in the first call, since the start.

        Race: code that is saved after its import and before the first call must count, so a file that is seen
        for the first time counts if it is newer than ``since``, unless its time is in the future.
        """
        now, found = time(), None
        for path, modified in self.snapshot_files():
            before = self._times.setdefault(path, self._since if modified <= now else modified)
            if modified > before:
                found = path
            self._times[path] = modified
        return found


def watch(since: float, on_change: Callable[[Path], None]) -> None:
    """In the child: call ``on_change`` once, from another thread, when a file has changed."""

    def look() -> None:
        files = SourceFiles(since)
        while (path := files.changed()) is None:
            sleep(LOOK_EVERY)
        on_change(path)

    Thread(target=look, name="pgqueue-reload", daemon=True).start()


def run_reloader(say: Callable[[str], None]) -> int:
    """Start one child after another until asked to stop, and return the exit code of the last one."""
    stops: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda number, _: stops.append(number))
    while True:
        since = time()
        code = _run_child(since, stops)
        if stops:
            return 0 if code == RELOAD else code
        if code in (0, USAGE):
            return code
        if code != RELOAD:
            say(f"The command ended with exit code {code}. It starts again when a file changes.")
            files = SourceFiles(since)
            while files.changed() is None:
                if stops:
                    return 0
                sleep(LOOK_EVERY)


def _run_child(since: float, stops: list[int]) -> int:
    # Its own group: the terminal sends Ctrl-C to that of the reloader, which forwards it once.
    child = subprocess.Popen(
        get_child_arguments(),
        env={**os.environ, _VARIABLE: f"{os.getpid()} {since}"},
        stdin=subprocess.DEVNULL,
        process_group=0,
    )
    handed_on = 0
    while (code := child.poll()) is None:
        for number in stops[handed_on:]:
            child.send_signal(number)
            handed_on += 1
        sleep(SIGNALS_EVERY)
    return code if code >= 0 else 128 - code
