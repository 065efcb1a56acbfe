"""What a claim (``claim.py``) returns: the rows of the claimed jobs, and what the gate did with others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Claimed(NamedTuple):
    """The row of a claimed job as the server sent it: times and JSON are text, parsed when needed."""

    id: int
    lease: int
    task_path: str
    args: str
    kwargs: str
    queue_name: str
    priority: int
    run_after: str
    attempts: int
    forgiven_attempts: int
    max_attempts: int | None
    timeout: int | None
    on_lost: str | None
    crash_count: int
    metadata: str
    expires_at: str | None
    expired: bool | None
    enqueued_at: str
    started_at: str
    last_attempted_at: str
    errors: str
    waited: float  # seconds from run_after to the claim
    group_key: str | None
    context: str | None
    marks: int


class Refusals(NamedTuple):
    """What the gate did with the picked jobs that may not start."""

    moved: int = 0
    """How many it moved: there may be more to claim at once."""
    left_behind: int = 0
    """How many stay where they are, because nobody could tell whether they may start."""
    following: tuple[int, ...] = ()
    """Others that may start. The next claim takes them first."""
    ended: int = 0
    """How many it has cancelled, or asked to stop, because their limits do not let them wait."""


class Answer(NamedTuple):
    """What a claim returns."""

    rows: list[Claimed]
    refusals: Refusals
    early: frozenset[int]
    """The jobs that the claim took first, whatever their time. They say nothing about the marks."""


def split_answer(answer: Iterable[Any]) -> Answer:
    """Return the claimed rows, and what is told about keys in a row whose id is 0."""
    rows = [Claimed._make(row) for row in answer]
    place = next((place for place, row in enumerate(rows) if row.id == 0), None)
    if place is None:
        return Answer(rows, Refusals(), frozenset())
    told = rows.pop(place)
    refusals = Refusals(told.attempts, told.forgiven_attempts, _ids(told.task_path), told.crash_count)
    return Answer(rows, refusals, frozenset(_ids(told.queue_name)))


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(job) for job in text.split(",") if job)
