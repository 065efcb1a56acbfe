"""The options of a worker: the command line as an object that is sent to the worker processes.

The supervisor and its worker processes share this module, so that the supervisor need not import the code
that runs jobs.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, fields

__all__ = ["FINISHED", "RECYCLED", "Assignment", "WorkerOptions", "new_id"]

#: Exit codes of a worker process: it was stopped or its burst is over; a new process must replace it.
FINISHED = 0
RECYCLED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of ``runqueueworker``, checked."""

    alias: str = "default"
    queues: tuple[str, ...] = ()
    """The queues to work on; empty: all there are, but ``exclude_queues``."""
    exclude_queues: tuple[str, ...] = ()
    processes: int = 1
    threads: int = 4
    """Jobs that one process runs at the same time: sync ones in threads, async ones on the event loop."""
    burst: bool = False
    """Stop once nothing is due."""
    max_jobs: int | None = None
    """Jobs after which a process is replaced by a new one."""
    max_rss: int | None = None
    """Megabytes of memory at which a process is replaced."""
    grace: float = 30.0
    """Seconds that running jobs get to finish when the worker is told to stop."""

    def to_json(self) -> str:
        """As text, for the command line of a worker process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerOptions:
        """The inverse of ``to_json``."""
        values = json.loads(text)
        for name in ("queues", "exclude_queues"):
            values[name] = tuple(values[name])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a supervisor tells a worker process."""

    options: WorkerOptions
    worker: int
    supervisor: int
    verbosity: int = 1
    started_jobs: int | None = None
    """The descriptor of the memory in which it notes them."""
    database_name: str = ""
    """The NAME of the database that the supervisor works on."""
    databases: int | None = None
    """The descriptor of the memory with the connection parameters that its own settings do not have."""

    def to_json(self) -> str:
        """As text, for the command line."""
        rest = [getattr(self, field.name) for field in fields(self) if field.name != "options"]
        return json.dumps([self.options.to_json(), *rest])

    @classmethod
    def from_json(cls, text: str) -> Assignment:
        """The inverse of ``to_json``."""
        options, *rest = json.loads(text)
        return cls(WorkerOptions.from_json(options), *rest)


def new_id() -> int:
    """A random id that never was and never will be again, for a worker or as the base of its leases."""
    # 62 bits: a lease is the base plus a counter, and must not leave the range of bigint.
    return secrets.randbits(62)
