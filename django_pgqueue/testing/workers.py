"""``running_worker``: a real worker, ``runqueueworker``, on the test database while a block runs.

It is a program of its own, as in production: a supervisor with its worker processes. It reads the settings
module, and gets from the test what the test runner has changed in DATABASES. It ends with the test process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from .. import conf
from ..compat import TaskResult
from ..models import Job, Worker
from ..models.changes import locate
from ..postgres.aliases import changed, same_database
from ..worker.spawn import child_environment, settings_module
from .databases import alias_of, check_is_test

START_SECONDS = 60.0
STOP_SECONDS = 30.0
_PAUSE = 0.02


class RunningWorker:
    """A worker that runs, as `running_worker` yields it."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, using: str) -> None:
        self.process = process
        """The process of its supervisor."""
        self.using = using
        """The alias of the database."""
        self._log = log

    @property
    def log(self) -> str:
        """Its output so far."""
        return self._log.read_text(errors="replace")

    def join(self, job: Job | int | str | TaskResult[..., Any], *, timeout: float = 30.0) -> Job:
        """Wait until a job has finished, and return it as it is then.

        ``job``: a job, its id, or its ``TaskResult``. An int is an id in the database of the worker.

        Raise ``AssertionError``, with the log of the worker, if that takes longer than ``timeout`` seconds,
        or if the worker ends.
        """
        alias, pk = (self.using, job) if isinstance(job, int) else locate(job)
        if not same_database(alias, self.using):
            raise ValueError(f"Job {pk} is in the database {alias!r}, and the worker is in {self.using!r}.")
        end = monotonic() + timeout
        while True:
            found = Job.objects.using(self.using).get(pk=pk)
            if found.is_finished:
                return found
            if self.process.poll() is not None:
                self.fail(f"the worker has ended, and job {pk} is {found.status}")
            if monotonic() > end:
                self.fail(f"job {pk} ({found.task_path}) is {found.status} after {timeout:g} s")
            sleep(_PAUSE)

    def stop(self) -> int:
        """Stop it as SIGTERM does, and return the exit code."""
        self.process.terminate()
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            if self.process.stdin is not None:
                self.process.stdin.close()

    def fail(self, what: str) -> None:
        """Raise ``AssertionError`` with these words and the log."""
        __tracebackhide__ = True
        raise AssertionError(f"{what}\n\nThe log of the worker:\n{self.log}")


@contextmanager
def running_worker(
    *, queues: Iterable[str] = (), processes: int = 1, threads: int = 4, using: str | None = None
) -> Iterator[RunningWorker]:
    """Run ``runqueueworker`` on the test database while the block runs. For transactional tests only.

    Enter the block when its worker processes are ready. At the end, the worker stops after its current jobs.
    The options have the names of the command.

    Raise ``ImproperlyConfigured`` in a transaction, such as that of a ``TestCase``, and outside of tests, and
    ``AssertionError`` with its log if the worker does not start.
    """
    alias = alias_of(using)
    check_is_test("running_worker()", alias)
    if connections[alias].in_atomic_block:
        raise ImproperlyConfigured(
            f"A worker has connections of its own, and this test is in a transaction on {alias!r}, so the "
            "worker would see none of its jobs. Use TransactionTestCase instead of TestCase (with "
            "pytest-django: django_db(transaction=True)), or run the jobs here, with run_jobs()."
        )
    options = [f"--database={alias}", f"--processes={processes}", f"--threads={threads}"]
    if names := list(queues):
        options.append(f"--queues={','.join(names)}")
    started = Worker.objects.using(alias).exclude(pk__in=[each.pk for each in Worker.objects.using(alias)])
    with tempfile.TemporaryDirectory(prefix="pgqueue-") as folder:
        worker = _started(options, Path(folder) / "worker.log", alias)
        try:
            end = monotonic() + START_SECONDS
            while started.count() < processes:
                if worker.process.poll() is not None:
                    worker.fail("the worker has ended at its start")
                if monotonic() > end:
                    worker.fail(f"the worker was not ready after {START_SECONDS:g} s")
                sleep(_PAUSE)
            yield worker
        finally:
            worker.stop()


def _started(options: list[str], log: Path, alias: str) -> RunningWorker:
    module = settings_module()
    if module is None and conf.current().setup is None:
        raise ImproperlyConfigured(
            "A worker reads the settings from a module, and this test has none, because it has called "
            "settings.configure(). Set DJANGO_SETTINGS_MODULE or PGQUEUE['SETUP'], or run the "
            "jobs here, with run_jobs()."
        )
    # Through a pipe: other users could read a password on the command line or in the environment.
    databases = json.dumps(changed()).encode()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "django_pgqueue.testing.worker_process", *options],
            stdin=subprocess.PIPE, stdout=output, stderr=output,
            env={**child_environment(), **({"DJANGO_SETTINGS_MODULE": module} if module else {})},
        )  # fmt: skip
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has ended already; the caller finds out
        process.stdin.write(databases + b"\n")
        process.stdin.flush()
    return RunningWorker(process, log, alias)
