"""What the stories do: the transitions of a job as calls of the functions of the queue."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from .history import error_of
from .shop import ERRORS, QUEUE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.db.backends.utils import CursorWrapper

    from .crew import Hand

_ENQUEUE_SQL = """
    SELECT pgqueue_enqueue(%s, %s, %s, %s, %s, clock_timestamp() + interval '1 second' * %s, options => %s)
"""
_CLAIM_SQL = "SELECT id, lease, attempts FROM pgqueue_claim(%s, %s, %s)"
_FINISH_SQL = """
    CALL pgqueue_finish(
        %s, %s, %s, result => %s, error => %s, fingerprint => %s, delay => %s, started_ago => %s
    )
"""
# The guard allows other times: the state stays.
_AGE_SQL = """
    UPDATE pgqueue_job_live AS job SET
        enqueued_at = job.enqueued_at - age.length - interval '3 seconds',
        run_after = job.run_after - age.length - interval '2 seconds',
        started_at = job.started_at - age.length, last_attempted_at = job.last_attempted_at - age.length
    FROM (SELECT interval '1 second' * %s AS length) AS age
    WHERE job.id = %s
"""


class Claim(NamedTuple):
    """A job that a worker of the demonstration runs."""

    id: int
    lease: int
    attempt: int
    worker: int


class Stage:
    """A cursor, and the workers by name."""

    def __init__(self, cursor: CursorWrapper, crew: Mapping[Hand, int]) -> None:
        self.cursor = cursor
        self.crew = crew
        self._turn = 0

    def worker(self, queue: str, state: str = "running") -> int:
        """Return a worker that serves a queue: another one each time."""
        found = [pk for hand, pk in self.crew.items() if queue in hand.queues and hand.state == state]
        self._turn += 1
        return found[self._turn % len(found)]

    def enqueue(
        self, task: str, *args: Any, queue: str = QUEUE, priority: int = 0, delay: float = 0, **options: Any
    ) -> int:
        """Enqueue a job; ``options`` are those of ``pgqueue_enqueue``."""
        kwargs = json.dumps(options.pop("kwargs", {}))
        more = json.dumps(options) if options else None
        return int(self.ask(_ENQUEUE_SQL, task, json.dumps(args), kwargs, queue, priority, delay, more))

    def claim(self, count: int = 1, queue: str = QUEUE, state: str = "running") -> list[Claim]:
        """Let a worker claim the jobs of a queue that are due."""
        worker = self.worker(queue, state)
        self.cursor.execute(_CLAIM_SQL, [[queue], count, worker])
        return [Claim(pk, lease, attempt, worker) for pk, lease, attempt in self.cursor.fetchall()]

    def finish(
        self, claim: Claim, outcome: str = "done", *, result: Any = None, error: int | None = None,
        delay: float | None = None, ran: float = 1.0,
    ) -> None:  # fmt: skip
        """Report what became of a job. ``error`` is the number of one of the errors of the shop."""
        entry, fingerprint = None, None
        if error is not None:
            known = error_of(ERRORS[error])
            fingerprint = known["fingerprint"]
            entry = json.dumps({
                "class": known["name"], "message": known["message"].replace("%s", str(claim.id)),
                "traceback": known["traceback"], "worker": str(claim.worker), "attempt": claim.attempt,
                "version": "2.4.1",
            })  # fmt: skip
        given = None if result is None else json.dumps(result)
        self.do(_FINISH_SQL, claim.id, claim.lease, outcome, given, entry, fingerprint, delay, ran)

    def ended(self, task: str, outcome: str = "done", *args: Any, **more: Any) -> int:
        """Enqueue a job, run it, and return its id."""
        options = {name: more.pop(name) for name in ("result", "error", "ran") if name in more}
        pk = self.enqueue(task, *args, **more)
        [claim] = self.claim()
        self.finish(claim, outcome, **options)
        return pk

    def age(self, pk: int, seconds: float) -> None:
        """Move the times of a live job into the past."""
        self.do(_AGE_SQL, seconds, pk)

    def do(self, statement: str, *parameters: Any) -> None:
        """Run a statement."""
        self.cursor.execute(statement, parameters)

    def ask(self, statement: str, *parameters: Any) -> Any:
        """Return the first column of the first row."""
        self.cursor.execute(statement, parameters)
        return self.cursor.fetchone()[0]
