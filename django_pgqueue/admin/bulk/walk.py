"""The way of an action through many jobs: in chunks, each in a transaction, in the order of the ids.

The place of a walk is the part that it is in (the jobs that are not over, then those that are over; see
``selection.affected``) and the last id that it has reached there. Behind this place nothing changes twice:
not even a job that has changed back in the meantime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...models import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django.db.models import QuerySet

__all__ = ["FIRST_SIZE", "Chunk", "Place", "size_of", "take"]

FIRST_SIZE = 500
MOST = 12_000
_GROWS_AFTER = 10  # chunks


class Place(NamedTuple):
    """How far a walk has come."""

    part: int = 0
    after: int = 0


class Chunk(NamedTuple):
    """What a walk did, and where it is now."""

    place: Place
    changed: int


def size_of(number: int) -> int:
    """Return how many jobs are in the chunk with this number, from 0.

    Small chunks hold few locks, and stop soon. They grow because each one is a step of a job, which may have
    1,000: these are enough for 11 million jobs.
    """
    return int(min(FIRST_SIZE << number // _GROWS_AFTER, MOST))


def take(
    parts: Sequence[QuerySet[Job]], place: Place, size: int, change: Callable[[QuerySet[Job]], int]
) -> Chunk | None:
    """Change the next jobs, and return where the walk is then; None at its end. Call it in a transaction.

    Race: a job changes its state while it is read. The statement that finds it waits for that, and leaves it
    out if it no longer matches. Then its row is locked, so that ``change`` sees it as it was found. All who
    lock several jobs do so in the order of their ids, so that no two walks wait for each other.
    """
    part, after = place
    while part < len(parts):
        rest: Any = parts[part].filter(pk__gt=after).order_by("pk").select_for_update()
        found = dict(rest.values_list("pk", "shelf")[:size])
        if found:
            shelves = sorted(set(found.values()))  # so that the plan leaves out the other leaves
            jobs = Job.objects.using(rest.db).filter(pk__in=list(found), shelf__in=shelves)
            return Chunk(Place(part, max(found)), change(jobs))
        part, after = part + 1, 0
    return None
