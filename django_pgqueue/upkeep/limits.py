"""Limits: write those that the code declares, and repair the lines of concurrency keys."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ..concurrency import limit_name
from ..definition import declared_tasks
from ..wording import counted

if TYPE_CHECKING:
    from ..concurrency import Concurrency
    from ..rates import Rate
    from ..session import Session

__all__ = ["DeclaredLimits", "repair_lines"]

logger = logging.getLogger(__name__)

LINES = 1_000  # concurrency keys in one round of repair

_DECLARE_SQL = (
    "SELECT pgqueue_declare_limits_v1("
    "%s::text[], %s::integer[], %s::text[], %s::integer[], %s::interval[], %s::integer[])"
)
_REPAIR_SQL = "SELECT lines, reached, released FROM pgqueue_repair_lines_v1(%s, %s)"


class DeclaredLimits:
    """The limits that tasks declare, as far as this process has imported them and has written them."""

    def __init__(self) -> None:
        self._written: dict[str, tuple[Any, ...]] = {}
        self._known = 0

    def write_if_more(self, session: Session, known: int) -> None:
        """Write those that are new if more tasks are ``known`` than at the last call. Until a limit is
        written, one job of each of its keys may run."""
        if known != self._known:
            self._known = known
            self.write(session)

    def write(self, session: Session) -> None:
        """Write those that are new. A limit that was set by hand keeps its number."""
        found = {
            limit_name(task): _numbers(task.concurrency, task.rate)
            for task in declared_tasks()
            if task.concurrency is not None or task.rate is not None
        }
        new = {name: rule for name, rule in found.items() if self._written.get(name) != rule}
        if not new:
            return
        columns = [list(column) for column in zip(*new.values(), strict=True)]
        if changed := session.value(_DECLARE_SQL, (list(new), *columns)):
            logger.info("the code declares other limits: %d changed", changed)
        self._written |= new


def _numbers(concurrency: Concurrency | None, rate: Rate | None) -> tuple[Any, ...]:
    """Return the columns of a limit."""
    running, on_conflict = (
        (None, "wait") if concurrency is None else (concurrency.limit, concurrency.on_conflict)
    )
    return running, on_conflict, *((None,) * 3 if rate is None else (rate.starts, rate.per, rate.burst))


def repair_lines(session: Session, after: str) -> tuple[bool, str | None, int]:
    """Release the lines that have room, but whose first job is blocked, from the key ``after`` on.

    Return whether there were any lines, the last key that was looked at (None at the end), and how many
    jobs became claimable.
    """
    lines, reached, released = session.row(_REPAIR_SQL, (after, LINES))
    if released:
        logger.warning("released %s that nobody would have released", counted(released, "job"))
    return lines > 0, reached, released
