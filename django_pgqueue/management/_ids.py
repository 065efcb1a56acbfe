"""The ids of jobs on the command line: ``5``, or ``other:5`` for a job in another database."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

from django.db import connections

from ..results import parse_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    JobId = tuple[str, int]
    """The alias that an id names, empty if it names none, and the number."""

__all__ = ["job_id", "of_one_database", "unknown"]


def job_id(text: str) -> JobId:
    """Read an id."""
    try:
        alias, pk = parse_id(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    if ":" not in text:
        return "", pk
    if alias not in connections.settings:
        raise ArgumentTypeError(f"{alias!r} is not in DATABASES")
    return alias, pk


def of_one_database(given: Sequence[JobId | int | str], alias: str) -> tuple[str, list[int]]:
    """Return the alias of these jobs, and their numbers without repetitions.

    ``alias``: the database of ids that name none. ``call_command`` may give ids that the parser has not read.
    """
    ids = [each if isinstance(each, tuple) else job_id(str(each)) for each in given]
    aliases = {named or alias for named, _ in ids}
    if len(aliases) > 1:
        raise ArgumentTypeError(
            f"The ids name jobs in several databases ({', '.join(sorted(aliases))}). Run the command once "
            "for each of them."
        )
    return next(iter(aliases), alias), list(dict.fromkeys(pk for _, pk in ids))


def unknown(ids: Sequence[int], alias: str) -> str:
    """Return the message for ids that no job has."""
    jobs, have = ("job", "has") if len(ids) == 1 else ("jobs", "have")
    return (
        f"No {jobs} in the database {alias!r} {have} the id {', '.join(map(str, ids))}. It was never "
        "committed, or it is over and no longer kept."
    )
