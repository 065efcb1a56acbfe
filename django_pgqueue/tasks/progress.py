"""How far a job has come: the values that a task reports, and their rules.

They are stored as double precision, so whole numbers up to 2**53 are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

from ..formatting import storable

HAS_PROGRESS = 8
"""The bit of ``Job.marks`` that says so."""

MOST = 2**53
NOTE_LIMIT = 200
"""How many characters of a note are kept."""


class Progress(NamedTuple):
    """What a task has last reported: ``done`` of ``total``, and a note."""

    done: float
    total: float | None = None
    note: str = ""

    @property
    def fraction(self) -> float | None:
        """The part that is done, from 0 to 1; None if the total is not known."""
        if self.total is None:
            return None
        return 1.0 if self.done >= self.total else self.done / self.total


def progress_of(done: Any, total: Any, note: Any) -> Progress:
    """Return the values as stored. Raise TypeError or ValueError for bad ones, but only cut a long note."""
    if not isinstance(note, str):
        raise TypeError(f"set_progress(note=...) takes a str, not {note!r}.")
    if len(note) > NOTE_LIMIT:
        note = note[: NOTE_LIMIT - 1] + "…"
    if not note.isascii() or "\0" in note:  # what PostgreSQL cannot store
        note = storable(note)[:NOTE_LIMIT]
    return Progress(_amount("done", done), None if total is None else _amount("total", total), note)


def stored_progress(stored: Mapping[str, Any] | None) -> Progress | None:
    """Return the progress that an entry of ``Job.errors`` contains."""
    if not stored:
        return None
    total = stored.get("total")
    return Progress(_number(stored.get("done", 0)), None if total is None else _number(total), stored["note"])


def _amount(name: str, value: Any) -> float:
    if type(value) is int and 0 <= value <= MOST:  # most calls, which may be made for each row of a file
        return value
    if isinstance(value, bool) or not isinstance(value, (Real, Decimal)):
        raise TypeError(f"set_progress({name}=...) takes a number, not {value!r}.")
    number: Any = float("nan") if isinstance(value, Decimal) and value.is_nan() else value
    if not 0 <= number <= MOST:
        raise ValueError(f"set_progress({name}=...) takes a number from 0 to 2**53, not {value!r}.")
    return _number(float(number))


def _number(value: float) -> float:
    """Return a whole number as an int, so that it is shown as one."""
    return int(value) if value == int(value) else value
