"""``manage.py runqueueworker``: run jobs until asked to stop."""

from __future__ import annotations

import logging
import math
import platform
import signal
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import django
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper
from django.db import OperationalError, connections, router
from django.urls import NoReverseMatch, Resolver404, get_script_prefix, resolve, reverse

from ... import __version__, conf
from ...formatting import counted, get_logger, log_prefix
from ...maintenance.payloads import synchronize_tasks
from ...maintenance.schedules import synchronize
from ...models import Job
from ...tasks.task import declared_tasks
from ...worker.logs import configure_logging, logging_restored
from ...worker.options import WorkerOptions
from ...worker.spawn import prepare_output, settings_module
from ...worker.supervisor.fleet import WorkerFleet, divide
from ...worker.supervisor.supervisor import Supervisor, stopped
from .. import _conditions, _reload
from .._arguments import (
    at_least,
    database_alias,
    processes,
    queue_names,
    seconds,
    weighted_databases,
    weighted_queues,
    writable_path,
)
from .._output import lines
from .._parser import USAGE, hinting

logger = get_logger(__name__)

_AS_GIVEN = ("async_slots", "burst", "max_jobs", "max_memory", "one_process")

#: The options that cannot be used together with ``--one-process``, with their values if they are not given.
_NOT_FOR_ONE_PROCESS: dict[str, tuple[Any, ...]] = {
    "processes": (1,), "threads": (1, 4), "async_slots": (None,), "max_jobs": (None,), "max_memory": (None,),
    "grace": (None,), "reload": (False,), "alive_file": (None,),
}  # fmt: skip


class Command(BaseCommand):
    """Parse, call, exit code."""

    help = "Run the jobs of django_pgqueue. Starts worker processes and watches them until SIGTERM or Ctrl-C."
    requires_system_checks = "__all__"
    _verbosity = 1
    _is_program = False
    _is_shown = False  # whether the banner has been printed
    _since: float | None = None  # when the reloader has started this process, if there is one

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._servers: dict[str, Server] = {}  # that have been reached, by alias

    def run_from_argv(self, argv: list[str]) -> None:
        """Run as the main program, as ``manage.py`` does: this process ends with the command."""
        self._is_program = True
        for name in prepare_output():  # Django has wrapped None
            setattr(self, name, OutputWrapper(getattr(sys, name)))
        super().run_from_argv(argv)

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        add = hinting(parser).add_argument
        only = "only these queues; of one priority, each as often as its weight says (default: all)"
        alive = "write this file every five seconds, for a probe that looks at its age"
        add("--queues", type=weighted_queues, default=(), metavar="A,B:3", help=only)
        add("--exclude-queues", type=queue_names, default=(), metavar="A,B", help="all queues except these")
        some = "worker processes, or auto: one for each CPU (default: 1)"
        add("--processes", type=processes, default=1, metavar="N", help=some)
        add("--threads", type=at_least(1), default=4, metavar="N", help="jobs at a time in each (default: 4)")
        add("--async-slots", type=at_least(1), metavar="N", help="async jobs besides (default: among these)")
        add("--burst", action="store_true", help="stop when no more jobs are due")
        add("--schedules", action="store_true", help="begin a burst with the schedules that are due")
        add("--database", type=database_alias, metavar="ALIAS", help="the database of the jobs")
        shards = "the databases of the jobs, and their shares of the processes (default: SHARDS)"
        add("--databases", type=weighted_databases, default=(), metavar="A,B:3", help=shards)
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

    def check(self, *args: Any, **kwargs: Any) -> None:
        """Go on if a database does not answer: from Django 6.1 on, checks of a ``GeneratedField`` ask all. A
        server may start together with its worker, and a shard that is down must cost its own jobs only.
        """
        try:
            super().check(*args, **kwargs)
        except OperationalError as error:
            self.stderr.write(f"The system checks did not end, because a database did not answer: {error}")

    @logging_restored()
    def handle(self, *args: Any, **given: Any) -> None:
        """Run until stopped."""
        try:
            shards, self._verbosity = self._shards(given), given["verbosity"]
            options = shards[0]
            configure_logging(self._verbosity)
            if given["reload"] and self._since is None:
                sys.exit(_reload.run_reloader(self._print))
            for each in shards:
                _conditions.check_vendor(each.alias)
                _conditions.check_caller(each.alias)
            # Without the hooks, no job can run, and none can enqueue another.
            conf.before_enqueue()
            conf.around_attempt()
            show = partial(self._show, shards, checked=not given["skip_checks"])
            one = options.one_process
            number = self._run_here(options, show) if one else self._supervise(shards, show)
        except (ArgumentTypeError, ImproperlyConfigured) as error:
            code = USAGE if isinstance(error, ArgumentTypeError) else 1
            raise CommandError(str(error), returncode=code) from error
        # A burst must not end as if all jobs that are due had run, if a signal has stopped it before.
        if number is not None and options.burst:
            if self._is_program:  # it has said so
                sys.exit(128 + number)
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            raise CommandError(
                f"{number.name} stopped the command before all jobs that were due had run.",
                returncode=128 + number,
            )

    def _shards(self, given: dict[str, Any]) -> list[WorkerOptions]:
        """Return the options of each database, with its share of the processes."""
        if given["database"] is not None and given["databases"]:
            raise ArgumentTypeError("--database and --databases cannot be used together.")
        named = given["databases"] or conf.current().shards
        weights = weighted_databases([database_alias(given["database"])])
        if given["database"] is None and named:
            weights = weighted_databases(named)
        if given["one_process"] and len(weights) > 1:
            raise ArgumentTypeError(
                "--one-process runs the jobs of one database. There are several shards "
                f"({', '.join(weights)}), so name one of them with --database."
            )
        options = self._options(given)
        if len(weights) == 1:
            return [replace(options, alias=next(iter(weights)))]
        parts = divide(options.processes, {alias: weight or 1 for alias, weight in weights.items()})
        return [replace(options, alias=alias, processes=part) for alias, part in parts.items()]

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
            for name, default in _NOT_FOR_ONE_PROCESS.items():
                if given[name] not in default:
                    raise ArgumentTypeError(
                        f"--{name.replace('_', '-')} and --one-process cannot be used together. It runs one "
                        "job at a time, in this process."
                    )
            if any(weight is not None for weight in queues.values()):
                raise ArgumentTypeError(
                    "--one-process has no weights: name the queues only, as in --queues a,b."
                )
        if given["reload"] and not self._is_program:
            raise ArgumentTypeError("--reload works on the command line only, not with call_command().")
        grace = min(conf.current().grace, _reload.GRACE if given["reload"] else math.inf)
        return WorkerOptions(
            queues=tuple(queues),
            weights={name: weight for name, weight in queues.items() if weight is not None},
            exclude_queues=excluded,
            processes=processes(given["processes"]),
            threads=1 if given["one_process"] else given["threads"],
            schedules=given["schedules"] or not given["burst"],
            grace=grace if given["grace"] is None else seconds()(given["grace"]),
            alive_file=given["alive_file"] or "",
            **{name: given[name] for name in _AS_GIVEN},
        )

    def _supervise(self, shards: list[WorkerOptions], show: Callable[[], None]) -> signal.Signals | None:
        """Run worker processes. Return the signal that has stopped them, if there was one."""
        if settings_module() is None and conf.current().setup is None:
            raise CommandError(
                "Worker processes cannot repeat settings.configure(). Write a function that calls it and "
                'django.setup(), and name it in PGQUEUE: SETUP="shop.setup.django".'
            )
        supervisor: Supervisor | WorkerFleet
        if len(shards) == 1:
            supervisor = Supervisor(shards[0], self._verbosity, self._notify)
            run = partial(self._guarded, supervisor.run, shards[0], show)
        else:
            supervisor = WorkerFleet(shards, self._verbosity, self._notify, _conditions.reachable)
            run = partial(supervisor.run, self._begin, show)
        changed: list[Path] = []
        if self._since is not None:

            def reload(path: Path) -> None:
                changed.append(path)
                self._notify(f"{path} has changed: restarting.")
                supervisor.signals.ask()

            _reload.watch(self._since, reload)
        try:
            code = run()
        finally:
            if not self._is_program:
                supervisor.release()
        if changed:
            sys.exit(_reload.RELOAD)
        if code:
            if self._is_program:  # the log contains the reason
                sys.exit(code)
            raise CommandError(supervisor.failure, returncode=code)
        if supervisor.signals.count:
            self._notify(stopped(supervisor.interrupted))
        return supervisor.signals.last

    def _run_here(self, options: WorkerOptions, show: Callable[[], None]) -> signal.Signals | None:
        # A supervisor must not have in memory what runs jobs.
        from ...worker.one_process import OneProcess

        worker = OneProcess(options, self._notify)
        self._guarded(worker.run, options, show)
        return worker.signals.last

    def _guarded(
        self, run: Callable[[Callable[[], None]], Any], options: WorkerOptions, show: Callable[[], None]
    ) -> Any:
        """Run what works one database."""

        def begin() -> None:
            self._begin(options)
            show()

        with _conditions.reachable(options.alias):
            return run(begin)

    def _begin(self, options: WorkerOptions) -> None:
        """Report problems of a database that would stop every worker process. If there are none, write the
        tasks and the schedules that this version of the code declares. Shards do this on their own threads.
        """
        alias = options.alias
        was_open = connections[alias].connection is not None
        try:
            with _conditions.reachable(alias):
                _conditions.check_database(alias)
                synchronize_tasks(alias)
                if options.schedules:
                    synchronize(alias)
                _conditions.warn_of_unknown_queues(alias, "--queues", options.queues)
                _conditions.warn_of_unknown_queues(alias, "--exclude-queues", options.exclude_queues)
                connections[alias].ensure_connection()
            info = connections[alias].connection.info
            server = Server(info.dbname, info.host, info.port, info.server_version)
            self._servers[alias] = server
            if self._is_shown:
                logger.info("its jobs run from now on: %s", server)
        finally:
            if not was_open:  # otherwise it belongs to the caller; the supervisor has its own connection
                connections[alias].close()

    def _show(self, shards: list[WorkerOptions], *, checked: bool) -> None:
        """Print the banner."""
        self._is_shown = True
        if verbosity := self._verbosity:
            text = banner(shards, self._servers, checked=checked, list_tasks=verbosity > 1)
            self._print(f"{text}\n")

    def _notify(self, text: str) -> None:
        """Show a message once: in the log if it has INFO lines, else on standard output unless quiet."""
        if logger.isEnabledFor(logging.INFO):
            logger.info("%s", text)
        elif self._verbosity:
            self._print(f"{log_prefix.get()}{text}")

    def _print(self, text: str) -> None:
        try:
            self.stdout.write(text)
            self.stdout.flush()
        except OSError as error:  # the reader is gone; the jobs must continue to run
            logger.debug("standard output: %s", error)


class Server(NamedTuple):
    """Where a database is, as its open connection says: settings may use a service file or several hosts."""

    name: str
    host: str
    port: int
    version: int

    def __str__(self) -> str:
        return f"{self.name} on {self.host}, port {self.port}"


def banner(
    shards: Sequence[WorkerOptions], servers: Mapping[str, Server], *, checked: bool, list_tasks: bool
) -> str:
    """Return the banner: what runs where, without user and password. ``servers``: of the shards that have
    been reached. ``checked``: whether the system checks have run, so that all tasks are imported.
    """
    options = replace(shards[0], processes=sum(each.processes for each in shards))
    versions = sorted({server.version for server in servers.values()})
    postgres = f"PostgreSQL {' and '.join(f'{each // 10_000}.{each % 10_000}' for each in versions)}"
    queues = [
        f"{name}:{options.weights[name]}" if name in options.weights else name for name in options.queues
    ]
    others = f"all but {', '.join(options.exclude_queues)}" if options.exclude_queues else "all"
    paths = sorted({task.module_path for task in declared_tasks()})
    if not checked:  # a worker process imports the module of a task when a job needs it
        tasks = f"{len(paths)} imported so far; others when a job needs them"
    elif paths:
        tasks = f"{len(paths)}" if list_tasks else f"{len(paths)} (-v 2 lists them)"
    else:
        tasks = "none found in the tasks modules of the installed apps"
    known = {
        **_places(shards, servers),
        "Queues": ", ".join(queues) or others,
        "Processes": _processes(options),
        "Settings": _settings(),
        "Admin": ", ".join(sorted({url for each in shards for url in admin_urls(each.alias)})),
        "Tasks": tasks,
    }
    end = f"Press Ctrl-C to stop. Running jobs then have {options.grace:g} s to finish."
    if options.burst:
        end = "The command ends when no more jobs are due."
    elif options.one_process:
        end = "Press Ctrl-C to stop. A job that runs is finished first."
    runs_on = f"Django {django.get_version()}, Python {platform.python_version()}, {postgres}"
    head = f"django_pgqueue {__version__} ({runs_on})"
    listed = [f"             {path}" for path in paths] if list_tasks else []
    return "\n".join([head, "", *lines(known), *listed, "", end])


def admin_urls(alias: str) -> list[str]:
    """Return the URL of the overview in each admin site that shows the jobs of the database ``alias``."""
    if not apps.is_installed("django.contrib.admin"):
        return []
    from django.contrib.admin.sites import all_sites  # this must not be imported if it is not installed

    found = set()
    for site in all_sites:
        if not site.is_registered(Job):
            continue
        shown = getattr(site.get_model_admin(Job), "database", None) or router.db_for_read(Job)
        if shown != alias:
            continue
        try:
            url = reverse(f"{site.name}:django_pgqueue_job_overview")
            # If a site is not in the URLconf, reverse() may return the URL of another one, because "admin" is
            # the namespace of all sites.
            if resolve(f"/{url.removeprefix(get_script_prefix())}").namespaces[-1] == site.name:
                found.add(url)
        except (NoReverseMatch, Resolver404):
            continue
        except Exception as error:  # modules of the URLconf may raise anything; a worker does not need them
            logger.debug("the URLconf cannot be loaded: %s", error)
    return sorted(found)


def _places(shards: Sequence[WorkerOptions], servers: Mapping[str, Server]) -> dict[str, str]:
    if len(shards) == 1:
        alias = shards[0].alias
        return {"Database": f'{servers[alias]} (alias "{alias}")'}
    return {
        f"Shard {each.alias}": f"{servers.get(each.alias, 'not reached yet')}; "
        f"{counted(each.processes, 'process', 'processes')}"
        for each in shards
    }


def _processes(options: WorkerOptions) -> str:
    if options.one_process:
        return "only this one: one job at a time, without timeouts"
    each = ", each" if options.processes > 1 else ""
    parts = [f"{options.processes}{each} with {counted(options.threads, 'thread')}"]
    if options.async_slots is not None:
        parts[0] += f" and {counted(options.async_slots, 'async slot')}"
    if options.max_jobs is not None:
        parts.append(f"replaced after {counted(options.max_jobs, 'job')}")
    if options.max_memory is not None:
        parts.append(f"replaced at {options.max_memory} MB of memory")
    return "; ".join(parts)


def _settings() -> str:
    default, current = conf.Settings(), conf.current()
    changed = [
        f"{name.upper()} = {_value(name, getattr(current, name))}"
        for name in sorted(field.name for field in fields(current))
        if getattr(current, name) != getattr(default, name)
    ]
    return ", ".join(changed) or "the defaults"


def _value(name: str, value: Any) -> str:
    if name.upper() == conf.SECRET:
        return "(hidden)"
    if isinstance(value, timedelta):
        days = value / timedelta(days=1)
        return counted(int(days), "day") if days.is_integer() else f"{value.total_seconds():g} s"
    if isinstance(value, Mapping):
        one = "schedule" if name == "schedules" else "entry"
        return counted(len(value), one, "entries" if one == "entry" else "")
    return f"{value:g}" if isinstance(value, float) else f"{value}"
