"""The reasons why a file cannot be indexed. Each of them fails the job, because a retry would not help.

All other errors (such as a temporary disk error, or a database that restarts) are raised unchanged, and the
job is retried.
"""

from __future__ import annotations

from typing import ClassVar


class Unindexable(Exception):
    """The file cannot be indexed in its current state. The message tells the user why."""

    cause: ClassVar[str]


class Gone(Unindexable):
    """The file no longer exists."""

    cause = "gone"


class Unreadable(Unindexable):
    """The operating system does not allow reading the file."""

    cause = "unreadable"


class TooLarge(Unindexable):
    """The file has too many bytes, or more different words than PostgreSQL can put into one search vector."""

    cause = "too_large"


class NotText(Unindexable):
    """The bytes of the file are not text in the encoding that it declares, or in UTF-8."""

    cause = "not_text"
