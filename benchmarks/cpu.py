"""How long processes have used a core: a figure that other programs on the machine hardly change.

This reads ``/proc``, so it needs Linux, and for the server's part a server on this machine. Elsewhere the
figures are left out.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

__all__ = ["descendants", "of_sessions", "of_worker"]

#: The sessions of workers in this database.
_SESSIONS = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'pgqueue worker'
"""


def of_sessions(connection: psycopg.Connection[Any]) -> float | None:
    """Return the seconds that the server has spent in the sessions of the workers. They must be open."""
    processes = [pid for (pid,) in connection.execute(_SESSIONS)]
    seconds = [_seconds(pid) for pid in processes if _name(pid) == "postgres"]
    return sum(seconds) if seconds else None


def of_worker(command: int) -> float | None:
    """Return the seconds of the busiest process that a worker command with this id has started."""
    return max((_seconds(pid) for pid in descendants(command)), default=None)


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process."""
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in file.read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _seconds(pid: int) -> float:
    # The fields after the name, which may contain spaces: the 12th and 13th are user and system time.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
