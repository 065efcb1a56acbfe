"""Conditions for starting workers. Each function raises a ``CommandError`` with a remedy."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from difflib import get_close_matches

from django.core.management.base import CommandError
from django.db import connections
from django.utils.translation import gettext as _

from ..checks_database import database_problems
from ..queue_names import declared_queues, queues_in_use

__all__ = ["check_caller", "check_database", "check_vendor", "unreachable", "warn_of_unknown_queues"]

logger = logging.getLogger(__name__)


def check_vendor(alias: str) -> None:
    """Require PostgreSQL."""
    vendor = connections[alias].vendor
    if vendor != "postgresql":
        raise CommandError(
            _(
                "The jobs must be in a PostgreSQL database, but the database %(alias)r is %(vendor)s. "
                "Name another one with --database."
            )
            % {"alias": alias, "vendor": vendor}
        )


def check_caller(alias: str) -> None:
    """Refuse ``call_command`` inside a transaction or outside of the main thread, where it cannot work."""
    if connections[alias].in_atomic_block:
        raise CommandError(
            _(
                "runqueueworker was called inside a transaction on the database %(alias)r. Its worker "
                "processes have connections of their own and cannot see what the transaction has "
                "written. In a test, run the jobs without a worker: run_jobs() of "
                "django_pgqueue.testing. Or use TransactionTestCase instead of TestCase (with pytest-django: "
                "django_db(transaction=True)). Elsewhere, call the command outside of transaction.atomic(). "
                'See "Test tasks" in the documentation (howto/testing).'
            )
            % {"alias": alias}
        )
    if threading.current_thread() is not threading.main_thread():
        raise CommandError(_("runqueueworker handles signals and must be called on the main thread."))


def check_database(alias: str) -> None:
    """Require the tables and functions of the queue. Other problems are logged as warnings.

    Raises Django's ``OperationalError`` if there is no server.
    """
    problems = database_problems(alias)
    errors = [problem for problem in problems if problem.is_serious()]
    if errors:
        raise CommandError("\n".join(f"{error.msg} {error.hint}" for error in errors))
    for problem in problems:
        if not str(problem.id).endswith("W005"):  # the supervisor will update the retention and log that
            logger.warning("%s %s", problem.msg, problem.hint)


def unreachable(alias: str, error: Exception) -> CommandError:
    """Return the error to raise if there is no server."""
    return CommandError(
        _("The database %(alias)r cannot be reached: %(error)s")
        % {"alias": alias, "error": str(error).strip()}
    )


def warn_of_unknown_queues(alias: str, option: str, names: Iterable[str]) -> None:
    """Log a warning for each name that is probably misspelled.

    This is not an error, because a queue may be new, and another project may declare its tasks.
    """
    if not names:
        return
    known = declared_queues() | queues_in_use(alias)
    for name in names:
        if name not in known:
            near = get_close_matches(name, sorted(known), n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known queues: {', '.join(sorted(known))}."
            logger.warning("%s names %r, a queue that no task, setting or job uses. %s", option, name, hint)
