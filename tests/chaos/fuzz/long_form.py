"""The long form: random lives of jobs and random calls of the functions for some minutes, from a seed."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable

from tests.support.sessions import Connection, open_raw

from .calls import Calls
from .machine import live

__all__ = ["fuzz"]


def fuzz(number: int, seconds: float) -> bool:
    """Fuzz the default database, whose tables are empty. Return whether all is right, and print the rest."""
    end = time.monotonic() + seconds
    rounds = 0
    with open_raw(options="-c statement_timeout=20s") as connection:
        while True:
            for part in (_live, _call):
                if not _succeeds(part, connection, number + rounds):
                    return False
            rounds += 1
            if time.monotonic() > end:
                print(f"{rounds} rounds, and nothing was wrong (--seed {number}).")
                return True


def _live(connection: Connection, number: int) -> None:
    """The jobs did not live as the model says."""
    live(connection, lives=100, calls=60, number=number)


def _call(connection: Connection, number: int) -> None:
    """The functions did not answer as they should."""
    problems = Calls(connection).make(seed=number, internal=10, public=100)
    for table in ("edge", "job", "worker"):
        connection.execute(f"DELETE FROM pgqueue_{table}")
    assert not problems, "\n".join(problems)


def _succeeds(part: Callable[[Connection, int], None], connection: Connection, number: int) -> bool:
    try:
        part(connection, number)
    except Exception:
        traceback.print_exc()
        print(f"{part.__doc__} Again: dev.py chaos --fuzz --minutes 0 --seed {number}", flush=True)
        return False
    return True
