"""Workers of the demonstration: rows without a process.

A worker that is alive has a heartbeat in the future, so that it stays alive for a day. The state of the
others follows from the age of their heartbeats: who is silent now is dead in half a minute. ``beat`` writes
all heartbeats anew. If a real worker runs on the same database, its maintenance removes the dead worker, and
requeues its jobs, as it should.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django_pgqueue import conf

if TYPE_CHECKING:
    from django.db.backends.utils import CursorWrapper

DAY = 86_400.0  # seconds
VERSION = "demo"


class Hand(NamedTuple):
    """One worker."""

    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    state: str = "running"
    """"running", "draining", "silent" or "dead"."""


_SHOP = ("demo-mail", "demo-orders", "demo-reports", "demo-sync", "demo-flows")
CREW = (
    Hand("demo-app-1", 4211, _SHOP, 8),
    Hand("demo-app-1", 4212, _SHOP, 8),
    Hand("demo-app-2", 1873, _SHOP, 8),
    Hand("demo-app-2", 1874, _SHOP, 8, "draining"),
    Hand("demo-images-1", 902, ("demo-images",), 4),
    Hand("demo-node-1", 77, ("demo-mail",), 2, "silent"),
    Hand("demo-search-1", 5120, ("demo-search",), 4, "dead"),
    Hand("demo-search-1", 5121, ("demo-search",), 4),
)

_ENLIST_SQL = """
    INSERT INTO pgqueue_worker (
        id, host, pid, supervisor, queues, slots, version, state, holds_lock, started_jobs, started_at,
        heartbeat_at
    )
    VALUES (
        _pgqueue_random(), %s, %s, CASE WHEN %s THEN NULL ELSE _pgqueue_random() END, %s, %s, %s,
        'running', false, '{}', clock_timestamp() - interval '3 days', clock_timestamp()
    )
    RETURNING id
"""
# Only those of the demonstration, in one order, as all that writes several workers.
_BEAT_SQL = """
    UPDATE pgqueue_worker AS worker SET
        state = CASE WHEN given.state = 'draining' THEN 'draining' ELSE 'running' END,
        drain = CASE WHEN given.state = 'draining' THEN 'stop' ELSE worker.drain END,
        heartbeat_at = clock_timestamp() - interval '1 second' * given.age
    FROM (
        SELECT given.*, row.id FROM unnest(%s::text[], %s::int[], %s::text[], %s::float8[])
            AS given (host, pid, state, age)
        JOIN pgqueue_worker AS row ON row.host = given.host AND row.pid = given.pid
        ORDER BY row.id FOR UPDATE OF row
    ) AS given
    WHERE worker.id = given.id
"""


def enlist(cursor: CursorWrapper) -> dict[Hand, int]:
    """Register all workers, alive, so that they can claim. Return their ids."""
    ids = {}
    for hand in CREW:
        foreign = hand.state == "silent"  # it sends heartbeats at its own pace, so it may be silent for long
        cursor.execute(_ENLIST_SQL, [hand.host, hand.pid, foreign, list(hand.queues), hand.slots, VERSION])
        (ids[hand],) = cursor.fetchone()
    return ids


def beat(cursor: CursorWrapper, ahead: float = DAY) -> None:
    """Write all heartbeats: those of workers that are alive are ``ahead`` seconds in the future."""
    lease = conf.current().lease
    ages = {"silent": 0.55 * lease, "dead": 600.0}
    cursor.execute(
        _BEAT_SQL,
        [
            [hand.host for hand in CREW],
            [hand.pid for hand in CREW],
            [hand.state for hand in CREW],
            [ages.get(hand.state, -ahead) for hand in CREW],
        ],
    )
