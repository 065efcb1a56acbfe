"""The ledger: what happened, in files outside the queue and its server.

Each process appends to a file of its own, and each record is on disk before the process continues. So a
record survives a kill of its process, a crash of the server, a full disk of the server and a failover, and it
is there before what it announces: an enqueue that is missing in the ledger was never tried.

All times come from the machine's monotonic clock, except for that of a claim, which is the server's.
"""

from __future__ import annotations

import json
import os
import time
from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from django_pgqueue import current_job

FOLDER = "LEDGER_FOLDER"
"""The environment variable with the folder of the ledger, for the tasks."""

BEGIN, END, FAULT = "begin", "end", "fault"
INTEND, COMMITTED, ROLLED_BACK, IN_DOUBT = "intend", "committed", "rolled back", "in doubt"


class Ledger:
    """The folder of a ledger, to which each process and thread may write."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, word: str, **values: Any) -> None:
        """Append a record and wait until it is on disk.

        It is a single write to a file that is open for appending, so records of several threads do not mix.
        """
        file = _open(str(self.folder / f"{os.getpid()}.jsonl"))
        line = json.dumps({"word": word, "at": time.monotonic(), **values})
        os.write(file, line.encode() + b"\n")
        os.fdatasync(file)


@contextmanager
def recorded(number: int) -> Iterator[None]:
    """Record that the running job has begun, and how it has ended.

    A job that is asked to stop ends as well. Without a record it would count as cut off.
    """
    job = current_job()
    assert job.last_attempted_at is not None
    ledger = Ledger(os.environ[FOLDER])
    run = {"lease": job.lease, "job": job.pk, "pid": os.getpid()}
    ledger.write(
        BEGIN, **run, number=number, attempt=job.attempts, worker=job.worker, parent=os.getppid(),
        claimed=job.last_attempted_at.timestamp(),
    )  # fmt: skip
    try:
        yield
    except CancelledError:
        ledger.write(END, **run, how="stopped")
        raise
    except BaseException as error:
        ledger.write(END, **run, how="raised", error=type(error).__name__)
        raise
    ledger.write(END, **run, how="done")


def about_to_die(kind: str, within: float = 5.0) -> None:
    """Record a fault that the running task is about to make in its own process, which then ends soon."""
    now = time.monotonic()
    Ledger(os.environ[FOLDER]).write(
        FAULT,
        kind=kind,
        before=now,
        after=now + within,
        pids=[os.getpid()],
        is_supervisor=False,
        explains=True,
    )


def first_time(number: int) -> bool:
    """Return whether this job has not asked before, in any of its runs."""
    try:
        (Path(os.environ[FOLDER]) / f"asked-{number}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@cache
def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
