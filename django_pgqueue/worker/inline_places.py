"""Where a worker without threads looks for its next job: every range that has a due job, in their order.

A worker process remembers how far it has read each range. This one looks anew before each claim, from the
start of each range, so that it also finds what was moved into the past.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .producer.claimer import FIRST_DUE_SQL, GROUPS_SQL
from .producer.ranges import FirstDue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..session import Session
    from .producer.pauses import Pauses

__all__ = ["NOWHERE", "due_ranges", "one_job"]

_START = datetime(1, 1, 2, tzinfo=UTC)
_END = datetime(9999, 12, 30, tzinfo=UTC)
_MOST_GROUPS = 1_000


def due_ranges(
    session: Session,
    queues: list[str] | None,
    exclude: list[str],
    pauses: Pauses,
    last_groups: Mapping[tuple[str, int], str],
) -> dict[str, list[Any]] | None:
    """Return the arrays for the claim of one job; None if no job is due.

    ``last_groups``: the group whose job was claimed last, by queue and priority. The next one follows it.
    """
    if queues is not None:
        queues = [name for name in queues if not pauses.stops(name)]
    if pauses.everything or queues == []:
        return None
    where: tuple[Any, ...] = (queues, [*exclude, *pauses.queues], [], [], [], [])
    found = [FirstDue(*row) for row in session.rows(FIRST_DUE_SQL, (*where, *where, 1))]
    due = sorted(
        (first for first in found if first.due_in <= 0),
        key=lambda first: (-first.priority, first.run_after, first.id),
    )
    grouped = {(first.queue_name, first.priority) for first in due if first.group_key is not None}
    plain = {(first.queue_name, first.priority) for first in due if first.group_key is None}
    ranges: list[tuple[str, int, str | None]] = []
    for key in dict.fromkeys((first.queue_name, first.priority) for first in due):
        if key in grouped:
            ranges += [(*key, name) for name in _turns(session, key, last_groups.get(key, ""), key in plain)]
        else:
            ranges.append((*key, None))
    return _arrays(ranges, _START) if ranges else None


def one_job(queue_name: str, priority: int, group_key: str | None) -> dict[str, list[Any]]:
    """Return the arrays for a claim that finds nothing but the job of this range that it is to take first."""
    return _arrays([(queue_name, priority, group_key)], _END)


def _arrays(ranges: list[tuple[str, int, str | None]], mark: datetime) -> dict[str, list[Any]]:
    groups = [group for _, _, group in ranges]
    arrays: dict[str, list[Any]] = {
        "queues": [queue for queue, _, _ in ranges],
        "priorities": [priority for _, priority, _ in ranges],
        "marks": [mark] * len(ranges),
        "mark_ids": [0] * len(ranges),
    }
    if any(group is not None for group in groups):
        arrays |= {"groups": groups, "quotas": [1] * len(ranges)}
    return arrays


def _turns(session: Session, key: tuple[str, int], last: str, has_plain: bool) -> list[str | None]:
    """Return the groups of a range that have due jobs, beginning after the last one. None: without a group,
    which comes first.
    """
    names = [
        first.group_key
        for row in session.rows(GROUPS_SQL, (*key, *key, "", _MOST_GROUPS))
        if (first := FirstDue(*row)).due_in <= 0 and first.group_key is not None
    ]
    later = [name for name in names if name > last]
    plain: list[str | None] = [None] if has_plain else []
    return [*later, *plain, *(name for name in names if name <= last)]


NOWHERE = _arrays([], _START)
"""The arrays for a claim without ranges."""
