"""The parts of a sentence about a job, so that a page can make links of the ids in it.

A ``Sentence`` is a translated text with named places. What stands there is a string, a moment, a reference to
something that may have a page, another sentence, or a list of these.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from ..server_time import local

__all__ = ["Moment", "Reference", "Sentence", "plain"]


class Moment(NamedTuple):
    """A moment, shown in the current time zone."""

    at: datetime


class Reference(NamedTuple):
    """Something that may have a page: a job, a batch, a worker, a limit."""

    kind: str
    key: Any
    text: str


class Sentence(NamedTuple):
    """A translated text, and what stands at its places."""

    text: str
    values: dict[str, Any] = {}


def plain(part: Any) -> str:
    """Return a part as text."""
    if isinstance(part, Sentence):
        return part.text % {name: plain(value) for name, value in part.values.items()}
    if isinstance(part, Moment):
        return f"{local(part.at):%Y-%m-%d %H:%M:%S}"
    if isinstance(part, Reference):
        return part.text
    if isinstance(part, list):
        return ", ".join(plain(each) for each in part)
    return str(part)
