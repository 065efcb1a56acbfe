"""Why a file cannot be indexed: each cause fails the job for good, because trying again would not help.

Anything else that goes wrong (a disk that hiccups, a database that restarts) is left to raise as it is, and
the job is retried.
"""

from __future__ import annotations

from typing import ClassVar


class Unindexable(Exception):
    """A file that cannot be indexed as it is now; the message says why in words for a reader."""

    cause: ClassVar[str]


class Gone(Unindexable):
    """There is no such file any more."""

    cause = "gone"


class Unreadable(Unindexable):
    """The operating system refuses to let us read it."""

    cause = "unreadable"


class TooLarge(Unindexable):
    """More bytes than we read, or more different words than PostgreSQL puts into one search vector."""

    cause = "too_large"


class NotText(Unindexable):
    """Its bytes are not text in any encoding that the file declares."""

    cause = "not_text"
