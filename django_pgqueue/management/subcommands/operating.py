"""``manage.py pgqueue pause``, ``resume``, ``pauses``, ``workers``, ``drain-worker``, ``database``,
``doctor``, ``scale-hint``, ``roles`` and ``metrics``: for who operates the queue.

The port of ``metrics`` answers one scrape at a time on the main thread, so it holds one connection for each
database. There is no token: whoever reaches the port may read.
"""

from __future__ import annotations

import signal
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterable
from threading import Event
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from django.core.management.base import CommandError
from django.db import DatabaseError, close_old_connections, transaction

from ...checks.doctor import examine
from ...checks.tasks import queue_databases
from ...compat import InvalidTask
from ...formatting import date_time, first_few, get_logger, local, period
from ...jobs.limits import drain_worker, pause, resume
from ...models import Pause
from ...models.queue import IN_FORCE
from ...monitoring.database import PartState, database
from ...monitoring.workers import Crew, busy_text, queues_text, scale_hint, state_text
from ...postgres import roles
from ...tasks.options import tenant as checked_tenant
from .._arguments import at_least, moment, seconds, user_name
from .._conditions import find_worker, warn_of_unknown_queues
from .._output import Columns, Nothing, Output, Table
from .._parser import argument, subcommand

logger = get_logger(__name__)

_QUIET = argument("--quiet", action="store_true", help="print nothing but errors")
REASON = argument("--reason", default="", metavar="TEXT", help="why, for others to read")
AUTHOR = argument("--author", metavar="NAME", help="who (default: your user name)")


def _done(options: dict[str, Any], document: dict[str, Any], text: str) -> Output:
    """Return what was done."""
    return Output(() if options["quiet"] else [text], {"database": options["database"], **document})


def _add_targets(parser: ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--queue", metavar="NAME", help="a queue")
    group.add_argument("--task", metavar="PATH", help="a task, such as shop.tasks.sync")
    group.add_argument("--everything", action="store_true", help="all queues")
    group.add_argument("--group", metavar="KEY", help="the jobs of a group")
    group.add_argument("--limit-key", metavar="KEY", help="the jobs with a limit key, such as crm/acme")
    with_value = "the jobs of a task with a value: 'shop.tasks.sync kwargs.tenant=acme'"
    group.add_argument("--argument", metavar="TEXT", help=with_value)


def _add_end(parser: ArgumentParser) -> None:
    add = parser.add_mutually_exclusive_group().add_argument
    until = "when it ends by itself, such as 2026-11-23T18:00"
    length = "for how long, such as 90s, 30m, 2h or 1d"
    add("--until", type=moment, metavar="TIME", help=until)
    add("--for", dest="duration", type=seconds(), metavar="DURATION", help=length)


def _target(options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the target as arguments of ``pause()`` and ``resume()``, and in words."""
    names = {
        "queue": "the queue", "task": "the task", "group": "the group", "limit_key": "the limit key",
        "argument": "jobs of",
    }  # fmt: skip
    target = {name: options[name] for name in (*names, "everything")}
    words = (f"{words} {target[name]}" for name, words in names.items() if target[name])
    return target, next(words, "everything")


def _pause_json(row: Pause) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("kind", "name", "reason", "author", "paused_at", "until")}


@subcommand(
    "pause", "Pause a queue, a task, some jobs, or everything; running jobs finish",
    _add_targets, REASON, AUTHOR, _QUIET, _add_end, shards="commit",
)  # fmt: skip
def _pause(options: dict[str, Any]) -> Output:
    target, words = _target(options)
    author, rest = options["author"], {name: options[name] for name in ("reason", "until", "duration")}
    if target["queue"]:
        warn_of_unknown_queues(options["database"], "--queue", [target["queue"]])
    try:
        author = user_name() if author is None else author
        paused = pause(**target, **rest, author=author, using=options["database"])
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    end = f" until {local(paused.until):%Y-%m-%d %H:%M:%S %Z}" if paused.until else ""
    return _done(options, {"action": "pause", **_pause_json(paused)}, f"Paused {words}{end}.")


@subcommand(
    "resume", "End the pause of a queue, a task, some jobs, or everything", _add_targets, _QUIET,
    shards="commit",
)  # fmt: skip
def _resume(options: dict[str, Any]) -> Output:
    target, words = _target(options)
    try:
        was_paused = resume(**target, using=options["database"])
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error
    if not was_paused:
        state = f"{words[0].upper()}{words[1:]} is not paused"
        state = "There is no pause of everything" if target["everything"] else state
        raise Nothing(f"{state}. See: manage.py pgqueue pauses")
    [(kind, name)] = [(kind, name) for kind, name in target.items() if name]
    found = {"kind": "all", "name": ""} if kind == "everything" else {"kind": kind, "name": name}
    return _done(options, {"action": "resume", **found}, f"Resumed {words}.")


_PAUSES: Columns = {
    "Paused": str,
    "Since": lambda row: date_time(row.paused_at),
    "Until": lambda row: date_time(row.until) if row.until else "-",
    "Author": lambda row: row.author or "-",
    "Reason": lambda row: row.reason,
}


@subcommand("pauses", "List what is paused, by whom, why, and until when", shards="each")
def _pauses(options: dict[str, Any]) -> Output:
    pauses = Pause.objects.using(options["database"]).filter(IN_FORCE).order_by("kind", "name")
    table = Table.of(_PAUSES, pauses, empty="Nothing is paused.")
    return Output([table], [_pause_json(row) for row in pauses])


_WORKERS: Columns = {
    "Worker": str,
    "State": state_text,
    "Jobs": busy_text,
    "Heartbeat": lambda worker: f"{period(worker.age)} ago",
    "ID": lambda worker: str(worker.pk),
    "Queues": queues_text,
}
_WORKER = (
    "id", "host", "pid", "queues", "exclude_queues", "slots", "version", "drain", "lost", "memory",
    "started_at", "heartbeat_at",
)  # fmt: skip


@subcommand("workers", "List the workers, whether they live, and what they do", shards="each")
def _workers(options: dict[str, Any]) -> Output:
    workers, document = Crew(options["database"]).workers, []
    for worker in workers:
        columns = {name: getattr(worker, name) for name in _WORKER}
        document.append({**columns, "state": worker.vital.value, "running": worker.busy - worker.lost})
    empty = "No worker is registered. To start one: manage.py runqueueworker"
    return Output([Table.of(_WORKERS, workers, empty=empty)], document)


@subcommand(
    "drain-worker",
    "Ask a worker process to finish its jobs and end; its supervisor starts another one",
    argument("worker", metavar="WORKER", help="its name or its id, as in the list of “pgqueue workers”"),
    argument("--stop", action="store_true", help="end its supervisor, too, with all of its processes"),
    _QUIET,
)
def _drain(options: dict[str, Any]) -> Output:
    alias, replaces = options["database"], not options["stop"]
    worker = find_worker(alias, options["worker"])
    drain_worker(worker, replace=replaces, using=alias)
    if worker.supervisor is None:
        what = f"{worker} to finish its jobs and end"
    elif replaces:
        what = f"{worker} to finish its jobs and end. Another process will replace it"
    else:
        what = f"{worker} and all processes of its supervisor to finish their jobs and end"
    document = {"action": "drain-worker", "worker": worker.pk, "name": str(worker), "replace": replaces}
    return _done(options, document, f"Asked {what}.")


@subcommand(
    "database",
    "Show locks, old transactions, dead rows, connections and traffic, with advice",
    argument(
        "--statements",
        action="store_true",
        help="with --json: also print the texts of statements, which may contain the arguments of jobs",
    ),
    shards="each",
)
def _database(options: dict[str, Any]) -> Output:
    text, parts = [], database(options["database"], statements=options["statements"])
    for part in parts:
        text.append(f"{part.title}: {PartState(part.state).label}. {part.finding}")
        if part.state == PartState.ACT:
            text.append(f"  {part.rule}")
    return Output(text, {"database": options["database"], "parts": [part.as_json() for part in parts]})


@subcommand("doctor", "Examine everything that is known to go wrong, and say what helps", shards="each")
def _doctor(options: dict[str, Any]) -> Output:
    alias, text = options["database"], []
    examinations = examine(alias)
    bad = [each for each in examinations if each.state == "act"]
    for each in examinations:
        text.append(f"{each.title}: {', '.join(filter(None, [each.state, each.note]))}")
        for complaint in each.complaints:
            text += [f"- {complaint.text}", f"  {complaint.fix}"]
    document = {
        "database": alias,
        "healthy": not bad,
        "examinations": [each.as_json() for each in examinations],
    }
    names = ", ".join(each.title for each in bad)
    return Output(text, document, answer=f"To act on: {names}" if bad else "")


@subcommand(
    "scale-hint",
    "Print how many workers the jobs want now, for autoscalers",
    argument("--queue", action="append", default=[], metavar="NAME", help="only this queue; may be repeated"),
    argument("--slots", type=at_least(1), default=1, metavar="N", help="of one worker (default: 1)"),
    argument("--drain-within", type=seconds(), default=60.0, metavar="DURATION",
             help="in which ready jobs should start (default: 1m)"),
    argument("--min", type=at_least(0), default=0, metavar="N", help="at least N workers (default: 0)"),
    argument("--max", type=at_least(1), metavar="N", help="at most N workers"),
    shards="all",
)  # fmt: skip
def _scale_hint(options: dict[str, Any]) -> Output:
    queues = [options["queue"]] if isinstance(options["queue"], str) else options["queue"]
    limits = {"least": options["min"], "most": options["max"]}
    within = {"drain_within": options["drain_within"], "slots": options["slots"]}
    shards = options["shards"]
    hint = scale_hint(shards if len(shards) > 1 else shards[0], queues, **within, **limits)
    document = {"database": options["database"], "workers": hint.workers, "slots": hint.slots}
    document |= {"queues": [row.document for row in hint.queues]}
    return Output([str(hint.workers)], document, error=hint.failed)


_ALL = ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES"]


@subcommand(
    "roles",
    "Print the SQL that makes roles with few rights",
    argument("--enqueuer", default="pgqueue_enqueuer", metavar="ROLE", help="the role that may only enqueue"),
    argument("--worker", default="pgqueue_worker", metavar="ROLE", help="the role for workers"),
    argument("--drop", action="store_true", help="take the rights back and drop the roles"),
    argument("--apply", action="store_true", help="run the SQL instead of printing it"),
    has_json=False,
)
def _roles(options: dict[str, Any]) -> Output:
    alias, enqueuer, worker = options["database"], options["enqueuer"], options["worker"]
    if enqueuer == worker:
        raise ArgumentTypeError("--enqueuer and --worker must name two roles.")
    make = roles.statements_to_drop if options["drop"] else roles.statements_to_make
    too_much = {enqueuer: _ALL, worker: ["TRUNCATE", "REFERENCES"]}
    done = f"{'Took the rights of' if options['drop'] else 'Gave rights to'} {enqueuer} and {worker}."
    return _printed_or_applied(options, make(roles.installation(alias), enqueuer, worker), too_much, done)


def _tenant_of_role(text: str) -> tuple[str, str]:
    role, _, tenant = text.partition("=")
    try:
        return role, checked_tenant("The tenant", tenant)
    except InvalidTask as error:
        raise ArgumentTypeError(f"write ROLE=TENANT. {error}") from error


@subcommand(
    "tenants",
    "Print the SQL that lets roles see only the jobs of their tenant",
    argument("--role", action="append", default=[], type=_tenant_of_role, metavar="ROLE=TENANT",
             help="a role, and its tenant; may be repeated"),
    argument("--sees-all", action="append", default=[], metavar="ROLE",
             help="a role that sees all jobs, as workers do; may be repeated"),
    argument("--group", default="pgqueue_tenants", metavar="ROLE", help="the role with the rights of them"),
    argument("--drop", action="store_true", help="take the policies back and drop the group"),
    argument("--apply", action="store_true", help="run the SQL instead of printing it"),
    has_json=False,
)  # fmt: skip
def _tenants(options: dict[str, Any]) -> Output:
    alias, group, tenants = options["database"], options["group"], dict(options["role"])
    statements, done = roles.statements_without_tenants(alias, group), f"Took the policies of {group}."
    if not options["drop"]:
        statements = roles.statements_for_tenants(alias, group, options["sees_all"], tenants)
        done = f"Gave rights to {group}."
    return _printed_or_applied(options, statements, dict.fromkeys([group, *tenants], _ALL[1:]), done)


def _printed_or_applied(
    options: dict[str, Any], statements: Iterable[str], too_much: dict[str, list[str]], done: str
) -> Output:
    """Print the statements, or run them and say what is ``done``. ``too_much``: rights they must lose."""
    alias, statements = options["database"], [*statements]
    if not options["apply"]:
        return Output("\n".join(f"{each};" for each in ["BEGIN", *statements, "COMMIT"]).split("\n"))
    try:
        with transaction.atomic(using=alias):
            roles.run_all(alias, statements)
            for role, rights in ({} if options["drop"] else too_much).items():
                if found := roles.forbidden(alias, role, rights):
                    raise CommandError(
                        f"The role {role} can still {first_few(found)}. It has this right through "
                        "PUBLIC, or through a role whose member it is. Revoke it there."
                    )
    except DatabaseError as error:
        raise CommandError(
            f"Nothing was changed: {str(error).strip()}\n"
            "The owner of the tables must run this, and it needs CREATEROLE to make roles. Or let an "
            "administrator run what this command prints without --apply."
        ) from error
    return Output([done])


@subcommand(
    "metrics",
    "Print the metrics for Prometheus, or serve them",
    argument("--port", type=at_least(0), metavar="N", help="serve them on this port until stopped"),
    argument("--address", default="127.0.0.1", metavar="IP", help="what to listen on (default: 127.0.0.1)"),
    argument("--all", action="store_true", help="of all databases that jobs go to"),
    has_json=False,
    shards="all",
)
def _metrics(options: dict[str, Any]) -> Output:
    try:
        from prometheus_client import generate_latest, make_wsgi_app

        from ...metrics import registry
    except ImportError as error:
        raise CommandError("This needs prometheus-client. Install it, or the extra `metrics`.") from error
    databases = sorted(queue_databases()) if options["all"] else options["shards"]
    stdout, address, port = options["stdout"], options["address"], options["port"]
    if port is None:
        stdout.write(generate_latest(registry(databases)).decode(), ending="")
        return Output()
    try:
        server = exporter(make_wsgi_app(registry(databases)), address, port)
    except OSError as error:
        raise CommandError(f"Cannot listen on {address}, port {port}: {error}") from error
    stdout.write(f"Serving the metrics on http://{address}:{server.server_port}/metrics")
    stdout.flush()
    serve(server)
    return Output()


class _ScrapeHandler(WSGIRequestHandler):
    timeout = 10  # seconds: a client that sends nothing must not hold up the next one

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Log the request, as everything else is logged."""
        logger.debug("%s %s", self.address_string(), format % args)


def exporter(app: Any, address: str, port: int) -> WSGIServer:
    """Return a server of an application. Raises ``OSError`` if it cannot listen."""

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        close_old_connections()  # one that the server has ended, and one that is older than CONN_MAX_AGE
        try:
            return app(environ, start_response)
        finally:
            close_old_connections()

    return make_server(address, port, answer, handler_class=_ScrapeHandler)


def serve(server: WSGIServer) -> None:
    """Output until SIGTERM or Ctrl-C, and then to the end of the scrape.

    Race: the signal comes during a scrape. An exception of its handler would be lost there, because wsgiref
    takes it for one of the application.
    """
    stopping = Event()
    before = {
        each: signal.signal(each, lambda *_: stopping.set()) for each in (signal.SIGTERM, signal.SIGINT)
    }
    server.timeout = 0.5  # seconds until it looks again
    try:
        with server:
            while not stopping.is_set():
                server.handle_request()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
