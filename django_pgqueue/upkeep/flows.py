"""Nets under composition: end batches, and let jobs run, where nobody else did.

The functions that end jobs settle what waits for them. Some of it they leave to these rounds: children after
the first 1,000 of a parent, and what somebody had locked for too long (``sql/settle_v1.sql``).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..wording import counted

if TYPE_CHECKING:
    from ..session import Session

__all__ = ["FlowRounds"]

logger = logging.getLogger(__name__)

PAGE = 1_000  # batches, or jobs that wait, in one round

_BATCHES_SQL = "SELECT reached, ended FROM pgqueue_repair_batches_v1(%s, %s)"
_EDGES_SQL = "SELECT reached, settled FROM pgqueue_repair_edges_v1(%s, %s)"
_SWEEP_SQL = "SELECT pgqueue_sweep_batches_v1(%s)"


class FlowRounds:
    """How far the last round came."""

    def __init__(self) -> None:
        self._batch = 0  # the last batch that was looked at
        self._child = 0  # the last job that waits

    def run(self, session: Session, *, batches: bool, children: bool) -> bool:
        """Do a round, if there are ``batches``, or ``children`` that wait for jobs. Return whether there may
        be more to do."""
        # Each is a transaction of its own: locks of one must not be held while the next one waits.
        has_more = [batches and self._end_batches(session), children and self._settle_edges(session)]
        return any(has_more)

    def _end_batches(self, session: Session) -> bool:
        """End batches, and delete old ones. Return whether there may be more."""
        reached, ended = session.row(_BATCHES_SQL, (self._batch, PAGE))
        swept: int = session.value(_SWEEP_SQL, (PAGE,))
        if ended:
            logger.info("ended %s that nobody else would have ended", counted(ended, "batch", "batches"))
        self._batch = reached or 0
        return reached is not None or swept >= PAGE

    def _settle_edges(self, session: Session) -> bool:
        """Let jobs run, or cancel them. Return whether there may be more."""
        reached, settled = session.row(_EDGES_SQL, (self._child, PAGE))
        self._child = reached or 0
        return reached is not None or settled > 0
