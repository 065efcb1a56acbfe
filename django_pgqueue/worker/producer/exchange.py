"""The exchange with the server: report outcomes and claim new jobs in one round trip and one commit.

    run --answered--> an answer, kept --take_in--> its jobs are dispatched, its results are closed

Reading an answer takes Python about as long as it takes the server to work on the next statements. So under
load, the answer of one exchange is taken in while the server works on the next one. Nothing else happens to
the jobs in a kept answer, so it is taken in at once unless the next exchange follows immediately.

An outcome that the server refuses must not hold up the rest. In that case the outcomes are reported one by
one (``completer``), and the claim waits for the next exchange.
"""

from __future__ import annotations

import logging
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from ...formatting import get_logger
from .completer import LOCKED, REFUSALS, judged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...jobs.claim import Claimed
    from ...postgres.session import Session
    from ..executor.outcomes import Result
    from .claimer import Claimer
    from .completer import Completer
    from .idle import Idle

logger = get_logger(__name__)


class _Rows(NamedTuple):
    """The rows that a statement returned. Reading them is what takes time."""

    number: int = 0
    read: Callable[[], Sequence[Any]] = tuple


class _Answer(NamedTuple):
    """What the server has answered."""

    report: _Rows
    claim: _Rows
    results: list[Result]  # the ones that were reported
    asked: Mapping[str, Any]  # the parameters of the claim
    seconds: float  # that the exchange took


class Exchange:
    """``reported`` is called with the results that the server knows, from this report or from their rows, and
    ``claimed`` with the jobs that were claimed. They must not use the session.
    """

    def __init__(
        self,
        claimer: Claimer,
        completer: Completer,
        idle: Idle,
        reported: Callable[[list[Result]], None],
        claimed: Callable[[list[Claimed]], None],
    ) -> None:
        self._claimer = claimer
        self._completer = completer
        self._idle = idle
        self._reported = reported
        self._claimed = claimed
        self._answer: _Answer | None = None

    @property
    def more_in_flight(self) -> int:
        """How many more jobs will be in flight when the kept answer is taken in."""
        return self._answer.claim.number - len(self._answer.results) if self._answer else 0

    @property
    def kept(self) -> int:
        """How many claimed jobs are in the kept answer."""
        return self._answer.claim.number if self._answer else 0

    def run(self, session: Session, limit: int, now: float, enough: int) -> int:
        """Report outcomes if they are ``enough`` or old enough, and claim up to ``limit`` jobs.

        Return how many were claimed. The answer is kept until ``take_in``.
        """
        if self._completer.try_locked_again(now):
            self._report_one_by_one(session)
        due = self._completer.due(now, enough)
        report = self._completer.statement() if due else None
        if due and report is None:  # the rows of all waiting results show their outcomes already
            self._reported(judged(self._completer.sent(), []))
        claim = self._claimer.claim_statement(limit) if limit and self.may_claim else None
        if report is None and claim is None:
            self.take_in()
            return 0
        began = monotonic()
        try:
            answers = self._send(session, report, claim)
        except (*REFUSALS, *LOCKED):
            if report is None:
                raise
            self._report_one_by_one(session)
            return 0
        results = self._completer.sent() if report is not None else []
        nothing = _Rows()
        rows, seconds = answers.get("claim", nothing), monotonic() - began
        asked = claim[1] if claim is not None else {}
        self._answer = _Answer(answers.get("report", nothing), rows, results, asked, seconds)
        return rows.number

    def take_in(self) -> None:
        """Take in the answer that was kept, if there is one. The results come first, to free their rows."""
        if self._answer is None:
            return
        answer, self._answer = self._answer, None
        if answer.results:
            self._over(judged(answer.results, answer.report.read()), answer.seconds)
        if answer.asked and (
            rows := self._claimer.claimed(answer.claim.read(), answer.asked, answer.seconds)
        ):
            self._claimed(rows)

    def _report_one_by_one(self, session: Session) -> None:
        began = monotonic()
        results = self._completer.report_one_by_one(session)
        self._over(results, monotonic() - began)

    def _over(self, results: list[Result], seconds: float) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            _log_report(results, seconds)
        self._reported(results)

    @property
    def may_claim(self) -> bool:
        """Whether the next exchange claims. A sleeping worker without a notification only searches for jobs:
        one statement instead of two."""
        return self._claimer.knows_ranges and (self._idle.called or not self._idle.announced)

    def _send(
        self, session: Session, report: tuple[str, Any] | None, claim: tuple[str, Any] | None
    ) -> dict[str, _Rows]:
        """Send the statements, and take in the answer that was kept while the server works on them."""
        given = {"release": self._idle.release(), "report": report, "claim": claim}
        statements = {name: statement for name, statement in given.items() if statement is not None}
        durable = report is not None
        if self._answer is None or session.pooled:
            self.take_in()
            lists = session.run(*statements.values(), durable=durable)
            answers = [_Rows(len(rows), rows.copy) for rows in lists]
        else:
            try:
                cursors = session.run_beside(self.take_in, *statements.values(), durable=durable)
            finally:
                self.take_in()  # if the statements could not be sent
            answers = [_Rows(cursor.rowcount, cursor.fetchall) for cursor in cursors]
        return dict(zip(statements, answers, strict=True))


def _log_report(results: list[Result], seconds: float) -> None:
    kinds = Counter(result.outcome.kind for result in results)
    logger.debug(
        "reported %d jobs in %.1f ms%s",
        len(results),
        seconds * 1000,
        "".join(f", {count} {kind}" for kind, count in kinds.most_common()),
    )
