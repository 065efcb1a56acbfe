"""Change many jobs in chunks, in the order of their ids: actions of the admin and of commands.

Small chunks hold few locks, and stop soon. They grow because in the background each one is a step of a job,
which may have 1,000: these are enough for 11 million jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from django.db.models import QuerySet

from ..models import Job

FIRST_SIZE = 500
MOST = 12_000
_GROWS_AFTER = 10  # chunks


class Cursor(NamedTuple):
    """How far a walk has come. Behind it nothing changes twice: not even a job that has changed back."""

    part: int = 0
    after: int = 0  # the last id of this part


class Chunk(NamedTuple):
    """What a walk did, and where it is now."""

    cursor: Cursor
    found: int
    changed: int


def size_of(number: int) -> int:
    """Return how many jobs are in the chunk with this number, from 0."""
    return int(min(FIRST_SIZE << number // _GROWS_AFTER, MOST))


def walk(
    parts: Sequence[QuerySet[Job]],
    change: Callable[[QuerySet[Job]], int],
    commit: Callable[[int, Callable[[], Chunk | None]], Chunk | None],
) -> Iterator[Chunk]:
    """Change the jobs of some querysets, and yield each chunk when it is done.

    ``change`` returns how many of its jobs have changed. ``commit`` is called with the number of the chunk
    and the function that takes it, which it calls in a transaction; it returns the chunk.
    """
    cursor, number = Cursor(), 0
    while (chunk := commit(number, partial(take, parts, cursor, size_of(number), change))) is not None:
        yield chunk
        cursor, number = chunk.cursor, number + 1


def take(
    parts: Sequence[QuerySet[Job]], cursor: Cursor, size: int, change: Callable[[QuerySet[Job]], int]
) -> Chunk | None:
    """Change the next jobs, and return where the walk is then; None at its end. Call it in a transaction.

    Race: a job changes its state while it is read. The statement that finds it waits for that, and leaves it
    out if it no longer matches. Then its row is locked, so that ``change`` sees it as it was found. All who
    lock several jobs do so in the order of their ids, so that no two walks wait for each other.
    """
    part, after = cursor
    while part < len(parts):
        rest: Any = parts[part].filter(pk__gt=after).order_by("pk")
        rest = rest.select_for_update(no_key=rest.query.select_for_no_key_update)
        found = dict(rest.values_list("pk", "shelf")[:size])
        if found:
            shelves = sorted(set(found.values()))  # so that the plan leaves out the other leaves
            jobs = Job.objects.using(rest.db).filter(pk__in=list(found), shelf__in=shelves)
            return Chunk(Cursor(part, max(found)), len(found), change(jobs))
        part, after = part + 1, 0
    return None
