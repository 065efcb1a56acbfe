"""Explain the mistakes that only the database notices when a job is enqueued."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from django.conf import settings
from django.core.exceptions import SynchronousOnlyOperation
from django.db import IntegrityError, ProgrammingError, connections

from ..compat import InvalidTask
from ..exceptions import BatchOver, ParentGone

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

__all__ = ["MISTAKES", "explained", "warn_of_other_transaction"]

logger = logging.getLogger(__name__)

_said: set[tuple[str, str]] = set()


MISTAKES = (ProgrammingError, IntegrityError, SynchronousOnlyOperation)
#: What the functions in ``sql/`` raise with codes of their own.
_REFUSALS: dict[str, type[Exception]] = {"23Q05": BatchOver, "23Q06": ParentGone, "23Q07": InvalidTask}


def explained(error: Exception, alias: str) -> Exception:
    """Return what to raise instead of one of the ``MISTAKES``: if the migrations have not run, or if async
    code calls a function for sync code, an error of the same type that says what to do; if the database
    refuses the call, the exception of this package for that.
    """
    if isinstance(error, SynchronousOnlyOperation):
        return SynchronousOnlyOperation(
            "A job cannot be enqueued like this in async code. Write await aenqueue(...), or call the "
            "function that uses transaction.atomic() with sync_to_async."
        )
    code = getattr(error.__cause__, "sqlstate", "")
    if code in _REFUSALS:
        return _REFUSALS[code](_message(error))
    if code == "42883":  # undefined function
        return ProgrammingError(
            f"The database {alias!r} has no functions of this version of django_pgqueue. "
            f"Run: manage.py migrate django_pgqueue --database={alias}"
        )
    return error


def _message(error: Exception) -> str:
    """Return what a function said, and how to mend it, without the place in its code."""
    diagnostics = getattr(error.__cause__, "diag", None)
    first, *more = (
        (getattr(diagnostics, name, None) or "").rstrip(".")
        for name in ("message_primary", "message_detail", "message_hint")
    )
    return ". ".join(filter(None, [first.removeprefix("pgqueue: "), *more])) + "."


def warn_of_other_transaction(connection: BaseDatabaseWrapper) -> None:
    """Log, once, that a transaction is open in another database only: the job does not belong to it.

    Only with DEBUG, because looking for such a transaction takes 8 µs.
    """
    if not settings.DEBUG or connection.in_atomic_block or len(connections.settings) == 1:
        return
    for other in connections.all(initialized_only=True):
        if other.in_atomic_block and (connection.alias, other.alias) not in _said:
            _said.add((connection.alias, other.alias))
            logger.warning(
                "a job was enqueued in the database %r at once: the open transaction is in the database %r, "
                "and neither a rollback nor a commit there affects the job",
                connection.alias, other.alias,
            )  # fmt: skip
