"""Conditions for commands: databases with the queue, known queues, one worker of a name, one fingerprint.

Each function raises a ``CommandError`` with a remedy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from django.core.management.base import CommandError
from django.db import OperationalError, connections

from ..checks.database import database_problems, unapplied
from ..formatting import counted, did_you_mean, get_logger
from ..models import FailureGroup, Worker
from ..postgres.ask import Answers, ask_all
from ..postgres.session import LOST_CONNECTION
from ..tasks.registry import declared_queues, queues_in_use
from ._output import Nothing

logger = get_logger(__name__)

_MOST_CANDIDATES = 10

T = TypeVar("T")


def check_vendor(alias: str) -> None:
    """Require PostgreSQL."""
    if (vendor := connections[alias].vendor) != "postgresql":
        raise CommandError(
            f"The jobs must be in a PostgreSQL database, but the database {alias!r} is {vendor}. "
            "Name another one with --database."
        )


def check_caller(alias: str) -> None:
    """Refuse ``call_command`` inside a transaction or outside of the main thread, where it cannot work."""
    if connections[alias].in_atomic_block:
        raise CommandError(
            f"runqueueworker was called inside a transaction on the database {alias!r}. Its worker "
            "processes have connections of their own and cannot see what the transaction has "
            "written. In a test, run the jobs without a worker: run_jobs() of "
            "django_pgqueue.testing. Or use TransactionTestCase instead of TestCase (with pytest-django: "
            "django_db(transaction=True)). Elsewhere, call the command outside of transaction.atomic(). "
            'See "Test tasks" in the documentation (howto/testing).'
        )
    if threading.current_thread() is not threading.main_thread():
        raise CommandError("runqueueworker handles signals and must be called on the main thread.")


def check_database(alias: str) -> None:
    """Require the tables and functions of the queue. Warn of other problems. Raises ``OperationalError``."""
    problems = database_problems(alias)
    errors = [problem for problem in problems if problem.is_serious()]
    if errors and (waiting := unapplied(alias, "django_pgqueue")):
        raise CommandError(
            f"The database {alias!r} is not migrated: it lacks {counted(len(waiting), 'migration')} of "
            f"django_pgqueue. Run: python manage.py migrate --database {alias}"
        )
    if errors:
        raise CommandError("\n".join(f"{error.msg} {error.hint}" for error in errors))
    for problem in problems:
        if not str(problem.id).endswith("W005"):  # the supervisor will update the retention and log that
            logger.warning("%s %s", problem.msg, problem.hint)


def on_shards(aliases: Iterable[str], read: Callable[[str], T], *, keep: bool = False) -> Answers[T]:
    """Return what ``read`` finds in each shard with the queue, side by side; an error if all have nothing."""

    def ask(alias: str) -> T | Nothing:
        check_vendor(alias)
        check_database(alias)
        try:
            return read(alias)
        except Nothing as error:
            return error

    answers = ask_all(aliases, ask, keep=keep)
    given = {alias: each for alias, each in answers.given.items() if not isinstance(each, Nothing)}
    if answers.given and not given:
        raise Nothing("\n".join({str(each): "" for each in [*answers.given.values(), answers] if str(each)}))
    return Answers(given, answers.failed)


@contextmanager
def reachable(alias: str) -> Iterator[None]:
    """Turn into a ``CommandError`` that there is no server, or that sessions of workers find no queue there.

    ``check_database`` has found everything before, but through a connection of Django.
    """
    try:
        yield
    except (OperationalError, *LOST_CONNECTION) as error:
        raise CommandError(f"The database {alias!r} cannot be reached: {str(error).strip()}") from error
    except (psycopg.errors.UndefinedFunction, psycopg.errors.UndefinedTable) as error:
        raise CommandError(
            f"Sessions of workers do not find the queue in the database {alias!r}, but Django does: its "
            "connections have another search path, which is not that of the role or of OPTIONS. "
            f"({str(error).splitlines()[0]})"
        ) from error


def warn_of_unknown_queues(alias: str, option: str, names: Iterable[str]) -> None:
    """Only warn of each name that is probably misspelled, since it may be new, or another project's."""
    known = declared_queues() | queues_in_use(alias) if names else set()
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, f"Known queues: {', '.join(sorted(known))}.")
            logger.warning("%s names %r, a queue that no task, setting or job uses. %s", option, name, hint)


def find_worker(alias: str, name: str) -> Worker:
    """Return the worker with this id or name, such as ``app-1:4711``."""
    known = [worker for worker in Worker.objects.using(alias) if name in (str(worker.pk), str(worker))]
    if len(known) > 1:
        ids = ", ".join(str(worker.pk) for worker in known)
        raise CommandError(f"{len(known)} workers have the name {name!r}. Give one of the ids {ids}.")
    if not known:
        raise Nothing(
            f"No worker has the name or the id {name!r} in the database {alias!r}. "
            "See: manage.py pgqueue workers"
        )
    return known[0]


def whole_fingerprint(alias: str, text: str) -> str:
    """Return the fingerprint of the failure group that begins so, or the text if there is no such group."""
    groups = FailureGroup.objects.using(alias).filter(fingerprint__startswith=text).order_by("pk")
    found = dict(groups.values_list("pk", "error_class")[: _MOST_CANDIDATES + 1])
    if len(found) > 1 and text not in found:
        named = [f"{each} ({error.rpartition('.')[2] or 'no error'})" for each, error in found.items()]
        more = ["..."] if len(named) > _MOST_CANDIDATES else []
        raise CommandError(
            f"Several fingerprints begin with {text!r}: {', '.join(named[:_MOST_CANDIDATES] + more)}"
        )
    return next(iter(found)) if len(found) == 1 else text
