"""The floor of a pick-up: a NOTIFY, which wakes a process that sends our claim and does nothing else."""

from __future__ import annotations

import json
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.marks import mark, stamp

from .bare_sql import BATCH, BareClaim, BareSql, open_session
from .ours import set_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .contract import Kind

__all__ = ["BareNotify"]

_PUT = """
    SELECT pg_notify('benchmark', '')
    FROM _pgqueue_enqueue(
        'benchmarks.tasks.stamp', %s::jsonb, '{}', '{}', 'default', 0, NULL, NULL, NULL, NULL, 5, NULL,
        'rerun', NULL, NULL
    )
"""


class BareNotify(BareSql):
    """One statement inserts the job and notifies, another one claims it."""

    name = "bare-notify"
    scenarios = frozenset({"latency"})

    @contextmanager
    def putting(self, kind: Kind) -> Iterator[Callable[[int], object]]:
        """Insert a ``stamp`` job with our SQL function, and notify in the same transaction."""
        set_up()
        with open_session() as connection:
            yield lambda number: connection.execute(_PUT, [json.dumps([number])])

    def work(self, threads: int) -> None:
        """Claim after each notification, until SIGTERM."""
        set_up()
        signal.signal(signal.SIGTERM, lambda *_: exit(0))
        with open_session() as connection:
            claim = BareClaim(connection)
            connection.execute("LISTEN benchmark")
            while True:
                for row in claim.take(BATCH):
                    (number,) = row[3]
                    stamp(number)
                    mark()
                for _ in connection.notifies(stop_after=1):
                    pass
