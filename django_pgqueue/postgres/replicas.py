"""Replicas: standbys that pages read from. How old what they show is, and which server they are copies of.

A standby replays the transactions of its primary in order, so what it shows is at most as old as the last
one. A worker writes a heartbeat each second, so with a worker, this is a second for an idle queue, too. The
time is the primary's, and the age is measured by the clock of the standby.
"""

from __future__ import annotations

from typing import Any

from django.db import InterfaceError, OperationalError, connections
from django.utils.translation import gettext as _

from ..formatting import age
from . import fetch_rows, sql_of

_STATE = sql_of(__file__, "replica_state")
_IDENTITY = sql_of(__file__, "replica_identity")


def replica_state(alias: str) -> tuple[bool, str]:
    """Return whether a database answers that is read in place of the one that is written, and how it is."""
    try:
        [(is_standby, seconds)] = fetch_rows(alias, _STATE)
    except (InterfaceError, OperationalError):
        connections[alias].close()
        words = _("The replica “%(alias)s” does not answer. This page is read from the primary.")
        return False, words % {"alias": alias}
    if not is_standby:
        words = _("This page is read from the database “%(alias)s”, which is not a standby.")
    elif seconds is None:
        words = _("This page is read from the replica “%(alias)s”, which has replayed nothing yet.")
    else:
        words = _("This page is read from the replica “%(alias)s”, whose last change is %(age)s old.")
    return True, words % {"alias": alias, "age": age(seconds or 0)}


def is_replica_of(alias: str, primary: str) -> bool:
    """Return whether a database is a standby's copy of another; ``OperationalError``: one does not answer."""
    identities: list[Any] = [fetch_rows(each, _IDENTITY) for each in (alias, primary)]
    [(is_standby, _seconds)] = fetch_rows(alias, _STATE)
    return bool(is_standby) and identities[0] == identities[1]
