"""The exchange with the server: outcomes go out and new jobs come in, in one round trip and one commit.

What the server refuses must not hold up the rest: then the outcomes are reported one by one (``completer``),
and the claim waits for the next exchange.
"""

from __future__ import annotations

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


class _Answers(NamedTuple):
    """The rows that came back; none to what was not sent."""

    release: Sequence[Any] = ()
    report: Sequence[Any] = ()
    claim: Sequence[Any] = ()


class Exchange:
    """``reported`` is called with what the server has taken, and with what nobody needs to tell it."""

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
        """Report what is due, ``enough`` outcomes or old ones, and claim up to ``limit`` jobs."""
        if self._completer.try_locked_again(now):
            self._reported(self._completer.report_one_by_one(session))
        due = self._completer.due(now, enough)
        report = self._completer.statement() if due else None
        if due and report is None:  # the rows of all that wait say so already
            self._reported(self._completer.reported([]))
        claim = self._claimer.claim_statement(limit) if limit and self._may_claim() else None
        if report is None and claim is None:
            return []
        try:
            answers = self._send(session, report, claim)
        except (*REFUSALS, *LOCKED):
            if report is None:
                raise
            self._reported(self._completer.report_one_by_one(session))
            return []
        if report is not None:
            self._reported(self._completer.reported(accepted(answers.report)))
        return self._claimer.claimed(answers.claim)

    def _may_claim(self) -> bool:
        # A sleeper that nobody has called only looks whether there is anything: one statement, not two.
        return self._claimer.knows_ranges and (self._idle.called or not self._idle.announced)

    def _send(
        self, session: Session, report: tuple[str, Any] | None, claim: tuple[str, Any] | None
    ) -> _Answers:
        given = {"release": self._idle.release(), "report": report, "claim": claim}
        statements = {name: statement for name, statement in given.items() if statement is not None}
        answers = session.run(*statements.values(), durable=report is not None)
        return _Answers(**dict(zip(statements, answers, strict=True)))
