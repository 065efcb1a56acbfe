"""The notifications that wake workers: how full the server's queue of them is, and who hears them."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _

from .part import Part, State, rows_of

__all__ = ["MOST_FULL", "Wakeups", "read"]

MOST_FULL = 0.1


@dataclass(frozen=True, slots=True)
class Wakeups:
    """The state of the notifications."""

    queue_usage: float
    """The share of the server's queue of notifications that is in use, for all its databases."""
    workers: int
    """Workers of this package, without those in other languages."""
    polling_workers: int
    """Those of them that hear no notifications, since they are behind a transaction pooler."""


def read(alias: str) -> Part:
    """Return the state of the notifications."""
    found = Wakeups(*rows_of(alias, "wakeups")[0])
    finding = _(
        "The queue of notifications is %(share).0f%% full; %(polling)d of %(workers)d workers poll."
    ) % {
        "share": 100 * found.queue_usage,
        "polling": found.polling_workers,
        "workers": found.workers,
    }
    rule = _(
        "Act when more than %(share)d%% are in use: a session that listens does not read, mostly because its"
        " transaction is open; when the queue is full, commits that notify fail. Workers that poll are behind"
        " a transaction pooler: they find a job after up to POLL_INTERVAL seconds. Let them connect directly"
        " if that is too long."
    ) % {"share": round(100 * MOST_FULL)}
    state = State.ACT if found.queue_usage > MOST_FULL else State.FINE
    return Part("wakeups", state, finding, rule, [found])
