"""Write the limits that the code declares."""

from __future__ import annotations

from typing import Any

from ..formatting import get_logger
from ..postgres import sql_of
from ..postgres.session import Session
from ..tasks.keys import limit_name, limit_numbers
from ..tasks.paths import is_visible
from ..tasks.task import declared_tasks

logger = get_logger(__name__)

_DECLARE_SQL = sql_of(__file__, "declare")
_WITHDRAW_SQL = sql_of(__file__, "withdraw")


class DeclaredLimits:
    """The limits that tasks declare, as far as this process has imported them and has written them."""

    def __init__(self) -> None:
        self._written: dict[str, tuple[Any, ...]] = {}
        self._known = 0

    def write(self, session: Session, known: int = -1) -> None:
        """Write the new ones, if more tasks are ``known`` than at the last call. A limit of a user
        keeps its number. Until a limit is written, one job of each of its keys may run.
        """
        if known == self._known:
            return
        self._known = known
        new = {name: rule for name, rule in _declared().items() if self._written.get(name) != rule}
        if not new:
            return
        columns = [list(column) for column in zip(*new.values(), strict=True)]
        if changed := session.value(_DECLARE_SQL, (list(new), *columns)):
            logger.info("the code declares other limits: %d changed", changed)
        self._written |= new

    def withdraw(self, session: Session) -> None:
        """Note which limits the code no longer declares, as far as this process knows. They keep their
        numbers, because jobs of their keys may wait, until a user deletes them.
        """
        declared = _declared()
        query = "SELECT name, declared_by FROM pgqueue_limit WHERE declared_by <> ''"
        gone = {name: by for name, by in session.rows(query) if name not in declared and is_visible(by)}
        if not gone:
            return
        for (name,) in session.rows(_WITHDRAW_SQL, (list(gone), list(gone.values()))):
            logger.info("the code no longer declares the limit %r; it applies until it is deleted", name)


def _declared() -> dict[str, tuple[Any, ...]]:
    """Return the columns of the limits that the code declares. Of several tasks, the last by path counts."""
    tasks = sorted(declared_tasks(), key=lambda task: task.module_path)
    return {
        limit_name(task): (*limit_numbers(task), task.module_path.rpartition(".")[0])
        for task in tasks if task.concurrency or task.rate_limit
    }  # fmt: skip
