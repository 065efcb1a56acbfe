"""What a worker is told to do: the command line, as an object that travels to the worker processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["WorkerOptions"]


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
