"""``manage.py runqueueworker``: run jobs until told to stop."""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connections
from django.utils.translation import gettext as _

from ... import conf
from ...checks_database import database_problems
from ...session import LOST_CONNECTION
from ...worker.logs import configure_logging
from ...worker.options import WorkerOptions
from ...worker.supervisor.supervisor import Supervisor
from .._arguments import at_least, database_alias, queue_names

if TYPE_CHECKING:
    from django.core.management.base import CommandParser

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    """Parse, call, exit code."""

    help = (
        "Run the jobs of django_pgqueue: starts worker processes and watches them, until SIGTERM or Ctrl-C."
    )
    requires_system_checks = "__all__"
    _is_program = False

    def run_from_argv(self, argv: list[str]) -> None:
        """Run as ``manage.py`` does: this process is the command, and ends with it."""
        self._is_program = True
        super().run_from_argv(argv)

    def add_arguments(self, parser: CommandParser) -> None:
        """The options."""
        add = parser.add_argument
        add("--queues", type=queue_names, default=(), metavar="A,B", help="only these queues (default: all)")
        add("--exclude-queues", type=queue_names, default=(), metavar="A,B", help="all queues but these")
        add("--processes", type=at_least(1), default=1, metavar="N", help="worker processes (default: 1)")
        add(
            "--threads",
            type=at_least(1),
            default=4,
            metavar="N",
            help="jobs at once in a process (default: 4)",
        )
        add("--burst", action="store_true", help="stop once nothing is due")
        add("--database", type=database_alias, default=None, metavar="ALIAS", help="the database of the jobs")
        add("--max-jobs", type=at_least(1), metavar="N", help="replace a process after so many jobs")
        add("--max-rss", type=at_least(1), metavar="MB", help="replace a process that holds more memory")
        add(
            "--grace",
            type=at_least(0),
            metavar="S",
            help="seconds for running jobs when stopped (default: 30)",
        )

    def handle(self, *args: Any, **given: Any) -> None:
        """Run until stopped."""
        if given["queues"] and given["exclude_queues"]:
            raise CommandError(
                _("--queues and --exclude-queues exclude each other: name what to work on, or what not.")
            )
        configure_logging(given["verbosity"])
        settings = conf.current()
        options = WorkerOptions(
            alias=given["database"] or database_alias(None),
            queues=given["queues"],
            exclude_queues=given["exclude_queues"],
            processes=given["processes"],
            threads=given["threads"],
            burst=given["burst"],
            max_jobs=given["max_jobs"],
            max_rss=given["max_rss"],
            grace=settings.grace if given["grace"] is None else float(given["grace"]),
        )
        self._check_vendor(options.alias)
        self._check_caller(options.alias)
        self._supervise(options, given["verbosity"])

    def _supervise(self, options: WorkerOptions, verbosity: int) -> None:
        try:
            supervisor = Supervisor(options, verbosity)
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        try:
            code = supervisor.run(lambda: self._check_database(options.alias))
        except LOST_CONNECTION as error:
            raise _unreachable(options.alias, error) from error
        finally:
            if not self._is_program:
                supervisor.release()
        if self._is_program:  # the log has said why
            sys.exit(code)
        if code:
            raise CommandError(supervisor.failure, returncode=code)

    def _check_vendor(self, alias: str) -> None:
        vendor = connections[alias].vendor
        if vendor != "postgresql":
            raise CommandError(
                _(
                    "Jobs lie in PostgreSQL only, and the database %(alias)r is %(vendor)s: "
                    "name another --database."
                )
                % {"alias": alias, "vendor": vendor}
            )

    def _check_caller(self, alias: str) -> None:
        """What keeps a program, such as a test, from using ``call_command`` here."""
        if connections[alias].in_atomic_block:
            raise CommandError(
                _(
                    "runqueueworker was called inside a transaction on the database %(alias)r. Its worker "
                    "processes have connections of their own and cannot see what the transaction has "
                    "written. In a test, use TransactionTestCase instead of TestCase (with pytest-django: "
                    "django_db(transaction=True)), or call the task's function without a worker: "
                    "my_task.call(...). Elsewhere, call the command outside of transaction.atomic(). "
                    'See "Test tasks" in the documentation (howto/testing).'
                )
                % {"alias": alias}
            )
        if threading.current_thread() is not threading.main_thread():
            raise CommandError(_("runqueueworker handles signals and must be called on the main thread."))

    def _check_database(self, alias: str) -> None:
        """Say at once what would keep every worker process from its work."""
        was_open = connections[alias].connection is not None
        try:
            problems = database_problems(alias)
        except OperationalError as error:
            raise _unreachable(alias, error) from error
        finally:
            if not was_open:  # else it belongs to the caller; the supervisor has one of its own
                connections[alias].close()
        errors = [problem for problem in problems if problem.is_serious()]
        if errors:
            raise CommandError("\n".join(f"{error.msg} {error.hint}" for error in errors))
        for problem in problems:
            if not str(problem.id).endswith("W005"):  # the ring is told at once how long to keep, and the log
                logger.warning("%s %s", problem.msg, problem.hint)


def _unreachable(alias: str, error: Exception) -> CommandError:
    return CommandError(
        _("The database %(alias)r cannot be reached: %(error)s")
        % {"alias": alias, "error": str(error).strip()}
    )
