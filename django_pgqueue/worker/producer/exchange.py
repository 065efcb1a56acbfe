"""The exchange with the server: report outcomes and claim new jobs in one round trip and one commit.

An outcome that the server refuses must not hold up the rest. In that case the outcomes are reported one by
one (``completer``), and the claim waits for the next exchange.
"""

from __future__ import annotations

import logging
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from .completer import LOCKED, REFUSALS, accepted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...lifecycle.claim import Claimed
    from ...session import Session
    from ..executor.outcomes import Result
    from .claimer import Claimer
    from .completer import Completer
    from .idle import Idle

__all__ = ["Exchange"]

logger = logging.getLogger(__name__)


class _Answers(NamedTuple):
    """The rows that came back for each statement; empty for a statement that was not sent."""

    release: Sequence[Any] = ()
    report: Sequence[Any] = ()
    claim: Sequence[Any] = ()


class Exchange:
    """``reported`` is called with the results that the server knows, from this report or from their rows."""

    def __init__(
        self,
        claimer: Claimer,
        completer: Completer,
        idle: Idle,
        reported: Callable[[list[Result]], None],
    ) -> None:
        self._claimer = claimer
        self._completer = completer
        self._idle = idle
        self._reported = reported

    def run(self, session: Session, limit: int, now: float, enough: int) -> list[Claimed]:
        """Report outcomes if they are ``enough`` or old enough, and claim up to ``limit`` jobs."""
        if self._completer.try_locked_again(now):
            self._report_one_by_one(session)
        due = self._completer.due(now, enough)
        report = self._completer.statement() if due else None
        if due and report is None:  # the rows of all waiting results show their outcomes already
            self._reported(self._completer.reported([]))
        claim = self._claimer.claim_statement(limit) if limit and self._may_claim() else None
        if report is None and claim is None:
            return []
        began = monotonic()
        try:
            answers = self._send(session, report, claim)
        except (*REFUSALS, *LOCKED):
            if report is None:
                raise
            self._report_one_by_one(session)
            return []
        if report is not None:
            self._over(self._completer.reported(*accepted(answers.report)), began)
        return [] if claim is None else self._claimer.claimed(answers.claim, limit, began)

    def _report_one_by_one(self, session: Session) -> None:
        began = monotonic()
        self._over(self._completer.report_one_by_one(session), began)

    def _over(self, results: list[Result], began: float) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            _log_report(results, monotonic() - began)
        self._reported(results)

    def _may_claim(self) -> bool:
        # A sleeping worker without a notification only searches for jobs: one statement instead of two.
        return self._claimer.knows_ranges and (self._idle.called or not self._idle.announced)

    def _send(
        self, session: Session, report: tuple[str, Any] | None, claim: tuple[str, Any] | None
    ) -> _Answers:
        given = {"release": self._idle.release(), "report": report, "claim": claim}
        statements = {name: statement for name, statement in given.items() if statement is not None}
        answers = session.run(*statements.values(), durable=report is not None)
        return _Answers(**dict(zip(statements, answers, strict=True)))


def _log_report(results: list[Result], seconds: float) -> None:
    kinds = Counter(result.outcome.kind for result in results)
    logger.debug(
        "reported %d jobs in %.1f ms%s",
        len(results),
        seconds * 1000,
        "".join(f", {count} {kind}" for kind, count in kinds.most_common()),
    )
