"""``manage.py runqueueworker``: run jobs until told to stop."""

from __future__ import annotations

import logging
import math
import signal
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper
from django.db import connections

from ... import conf
from ...formatting import get_logger
from ...maintenance.payloads import synchronize_tasks
from ...maintenance.schedules import synchronize
from ...worker.logs import configure_logging, logging_restored
from ...worker.options import WorkerOptions
from ...worker.spawn import prepare_output, settings_module
from ...worker.supervisor.supervisor import Supervisor
from .. import _reload
from .._arguments import (
    at_least,
    check_one_process,
    database_alias,
    queue_names,
    seconds,
    weighted_queues,
    writable_path,
)
from .._banner import banner
from .._conditions import (
    check_caller,
    check_database,
    check_hooks,
    check_vendor,
    reachable,
    warn_of_unknown_queues,
)
from .._parser import USAGE, hinting

logger = get_logger(__name__)

_AS_GIVEN = ("processes", "async_slots", "burst", "max_jobs", "max_memory", "one_process")


class Command(BaseCommand):
    """Parse, call, exit code."""

    help = "Run the jobs of django_pgqueue. Starts worker processes and watches them until SIGTERM or Ctrl-C."
    requires_system_checks = "__all__"
    _verbosity = 1
    _is_program = False
    _since: float | None = None
    """When the reloader has started this process, if there is one."""
    _has_changed = False
    """Whether a file has changed, so that the reloader must start another process."""

    def run_from_argv(self, argv: list[str]) -> None:
        """Run as the main program, as ``manage.py`` does: this process ends with the command."""
        self._is_program = True
        for name in prepare_output():  # Django has wrapped None
            setattr(self, name, OutputWrapper(getattr(sys, name)))
        super().run_from_argv(argv)

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        add = hinting(parser).add_argument
        only = "only these queues, those of one priority as often as their weights say (default: all)"
        alive = "write this file every five seconds, for a probe that looks at its age"
        add("--queues", type=weighted_queues, default=(), metavar="A,B:3", help=only)
        add("--exclude-queues", type=queue_names, default=(), metavar="A,B", help="all queues except these")
        add("--processes", type=at_least(1), default=1, metavar="N", help="worker processes (default: 1)")
        add("--threads", type=at_least(1), default=4, metavar="N", help="jobs at a time in each (default: 4)")
        add("--async-slots", type=at_least(1), metavar="N", help="async jobs besides (default: among these)")
        add("--burst", action="store_true", help="stop when no more jobs are due")
        add("--schedules", action="store_true", help="begin a burst with the schedules that are due")
        add("--database", type=database_alias, metavar="ALIAS", help="the database of the jobs")
        add("--max-jobs", type=at_least(1), metavar="N", help="replace a process after this many jobs")
        add("--max-memory", type=at_least(1), metavar="MB", help="replace a process that uses more memory")
        add("--grace", type=seconds(), metavar="DURATION", help="for running jobs to finish (default: GRACE)")
        add("--alive-file", type=writable_path, metavar="PATH", help=alive)
        add("--reload", action="store_true", help="restart when code changes; for development only")
        add("--one-process", action="store_true", help="one job at a time, here, without timeouts; to debug")

    def execute(self, *args: Any, **given: Any) -> str | None:
        """Skip the system checks in the reloader, because its child runs them."""
        if given.get("reload"):
            self._since = _reload.parent_since()
            given["skip_checks"] = given["skip_checks"] or self._since is None
        return super().execute(*args, **given)

    @logging_restored()
    def handle(self, *args: Any, **given: Any) -> None:
        """Run until stopped."""
        try:
            options = self._options(given)
        except (ArgumentTypeError, ImproperlyConfigured) as error:
            usage = isinstance(error, ArgumentTypeError)
            raise CommandError(str(error), returncode=USAGE if usage else 1) from error
        self._verbosity = given["verbosity"]
        configure_logging(given["verbosity"])
        if given["reload"] and self._since is None:
            sys.exit(_reload.run_reloader(self._print))
        check_vendor(options.alias)
        check_caller(options.alias)
        check_hooks()
        if options.one_process:
            self._run_here(options, given)
        else:
            self._supervise(options, given)

    def _options(self, given: dict[str, Any]) -> WorkerOptions:
        queues, excluded = weighted_queues(given["queues"] or ()), queue_names(given["exclude_queues"] or ())
        if queues and excluded:
            raise ArgumentTypeError(
                "--queues and --exclude-queues cannot be used together. Name either the queues to work on or "
                "the queues to exclude."
            )
        if given["reload"] and given["burst"]:
            raise ArgumentTypeError("--reload and --burst cannot be used together.")
        if given["schedules"] and not given["burst"]:
            raise ArgumentTypeError(
                "--schedules is for a burst. Without --burst, a worker fires schedules all the time."
            )
        if given["one_process"]:
            check_one_process(given, queues)
        if given["reload"] and not self._is_program:
            raise ArgumentTypeError("--reload works on the command line only, not with call_command().")
        grace = min(conf.current().grace, _reload.GRACE if given["reload"] else math.inf)
        return WorkerOptions(
            alias=database_alias(given["database"]),
            queues=tuple(queues),
            weights={name: weight for name, weight in queues.items() if weight is not None},
            exclude_queues=excluded,
            threads=1 if given["one_process"] else given["threads"],
            schedules=given["schedules"] or not given["burst"],
            grace=grace if given["grace"] is None else seconds()(given["grace"]),
            alive_file=given["alive_file"] or "",
            **{name: given[name] for name in _AS_GIVEN},
        )

    def _supervise(self, options: WorkerOptions, given: dict[str, Any]) -> None:
        if settings_module() is None and conf.current().setup is None:
            raise CommandError(
                "Worker processes cannot repeat settings.configure(). Write a function that calls it and "
                'django.setup(), and name it in PGQUEUE: SETUP="shop.setup.django".'
            )
        try:
            supervisor = Supervisor(options, given["verbosity"], self._notify)
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        if self._since is not None:
            _reload.watch(self._since, lambda path: self._reload(supervisor, path))
        try:
            with reachable(options.alias):
                code = supervisor.run(lambda: self._begin(options, given))
        finally:
            if not self._is_program:
                supervisor.release()
        if self._has_changed:
            sys.exit(_reload.RELOAD)
        if code:
            if self._is_program:  # the log contains the reason
                sys.exit(code)
            raise CommandError(supervisor.failure, returncode=code)
        self._end_burst(options, supervisor.interrupted_by)

    def _run_here(self, options: WorkerOptions, given: dict[str, Any]) -> None:
        # A supervisor must not have in memory what runs jobs.
        from ...worker.one_process import OneProcess

        worker = OneProcess(options, self._notify)
        with reachable(options.alias):
            worker.run(lambda: self._begin(options, given))
        self._end_burst(options, worker.interrupted_by)

    def _end_burst(self, options: WorkerOptions, number: signal.Signals | None) -> None:
        """Do not end as if all jobs that are due had run, if a signal has stopped the command before."""
        if number is None or not options.burst:
            return
        if self._is_program:  # it has said so
            sys.exit(128 + number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise CommandError(
            f"{number.name} stopped the command before all jobs that were due had run.",
            returncode=128 + number,
        )

    def _begin(self, options: WorkerOptions, given: dict[str, Any]) -> None:
        """Report problems that would stop every worker process. If there are none, write the tasks
        and the schedules that this version of the code declares, and print the banner.
        """
        alias, verbosity = options.alias, given["verbosity"]
        was_open = connections[alias].connection is not None
        try:
            with reachable(alias):
                check_database(alias)
                synchronize_tasks(alias)
                if options.schedules:
                    synchronize(alias)
                warn_of_unknown_queues(alias, "--queues", options.queues)
                warn_of_unknown_queues(alias, "--exclude-queues", options.exclude_queues)
                connections[alias].ensure_connection()
            if verbosity:
                info, checked = connections[alias].connection.info, not given["skip_checks"]
                self._print(f"{banner(options, info, checked=checked, list_tasks=verbosity > 1)}\n")
        finally:
            if not was_open:  # otherwise it belongs to the caller; the supervisor has its own connection
                connections[alias].close()

    def _reload(self, supervisor: Supervisor, path: Path) -> None:
        self._has_changed = True
        self._notify(f"{path} has changed: restarting.")
        supervisor.stop()

    def _notify(self, text: str) -> None:
        """Show a message once: in the log if the log has INFO lines, otherwise on standard output.

        With ``--verbosity 0`` it is not printed.
        """
        if logger.isEnabledFor(logging.INFO):
            logger.info("%s", text)
        elif self._verbosity:
            self._print(text)

    def _print(self, text: str) -> None:
        try:
            self.stdout.write(text)
            self.stdout.flush()
        except OSError as error:  # the reader is gone; the jobs must continue to run
            logger.debug("standard output: %s", error)
