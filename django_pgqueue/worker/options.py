"""The options of a worker: the command line as an object that is sent to the worker processes.

The supervisor and its worker processes share this module, so that the supervisor does not need to import the
code that runs jobs.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, field

#: Exit codes of a worker process. FINISHED: it was stopped, or its burst has ended. RECYCLED: replace it.
#: RETIRED: stop its supervisor, with all of its processes.
FINISHED = 0
RECYCLED = 64
RETIRED = 65


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of ``runqueueworker``, after they have been checked."""

    alias: str = "default"
    queues: tuple[str, ...] = ()
    """The queues to work on; if empty, all queues except ``exclude_queues``."""
    exclude_queues: tuple[str, ...] = ()
    weights: dict[str, int] = field(default_factory=dict, hash=False)
    """How often a queue comes first among the queues of the same priority; others have the weight 1."""
    processes: int = 1
    threads: int = 4
    """How many jobs one process runs at the same time: sync ones in threads, async ones on the event loop."""
    async_slots: int | None = None
    """How many async jobs one process runs besides the sync ones; None: ``threads`` counts them, too."""
    burst: bool = False
    """Whether to stop when no more jobs are due."""
    schedules: bool = True
    """Whether to write and fire schedules; a burst fires the due ones when it starts."""
    max_jobs: int | None = None
    """Replace a process after this many jobs."""
    max_memory: int | None = None
    """Replace a process that uses this many megabytes of memory."""
    grace: float = 30.0
    """Seconds for running jobs to finish when the worker is stopped."""
    alive_file: str = ""
    """The path of the file that the supervisor writes while it lives; empty: none."""
    one_process: bool = False
    """Whether the command itself runs the jobs, one at a time (``one_process``)."""

    @property
    def slots(self) -> int:
        """How many jobs one process runs at the same time."""
        return self.threads + (self.async_slots or 0)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a supervisor sends to a worker process, as one line of JSON."""

    options: WorkerOptions
    worker: int
    supervisor: int
    verbosity: int = 1
    started_jobs: int | None = None
    """The file descriptor of the memory in which the worker process records its started jobs."""
    database_name: str = ""
    """The NAME of the database that the supervisor uses."""
    databases: str = ""
    """The connection parameters that its own settings do not have (``postgres.aliases``). They contain
    passwords, which other users could read on a command line or in an environment.
    """

    def to_json(self) -> str:
        """Return the assignment as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Assignment:
        """The inverse of ``to_json``."""
        values = json.loads(text)
        options = values.pop("options")
        for name in ("queues", "exclude_queues"):
            options[name] = tuple(options[name])
        return cls(WorkerOptions(**options), **values)


def new_id() -> int:
    """Return a random id for a worker or for the base of its leases. It is practically unique."""
    # 62 bits: a lease is the base plus a counter, and must stay within the range of bigint.
    return secrets.randbits(62)
