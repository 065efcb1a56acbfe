"""``manage.py pgqueue workers``, ``database``, ``roles`` and ``metrics``: for who operates the queue.

The port of ``metrics`` answers one scrape at a time on the main thread, so it holds one connection for each
database. There is no token: whoever reaches the port may read.
"""

from __future__ import annotations

import signal
from argparse import ArgumentTypeError
from threading import Event
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from django.core.management.base import CommandError
from django.db import DatabaseError, close_old_connections, connections, transaction

from ...checks.tasks import queue_databases
from ...formatting import get_logger, period
from ...monitoring.database import PartState, database
from ...monitoring.workers import Crew, busy_text, queues_text, state_text
from ...postgres.roles import forbidden, installation, shortened, statements_to_drop, statements_to_make
from .._arguments import at_least
from .._output import Output
from .._parser import argument, subcommand

logger = get_logger(__name__)


_WORKER = (
    "id", "host", "pid", "queues", "exclude_queues", "slots", "version", "drain", "lost", "started_at",
    "heartbeat_at",
)  # fmt: skip


@subcommand("workers", "List the workers, whether they live, and what they do")
def _workers(options: dict[str, Any]) -> Output:
    text, document = [], []
    for worker in Crew(options["database"]).workers:
        serves_all = not worker.queues and not worker.exclude_queues
        queues = "all queues" if serves_all else f"queues {queues_text(worker)}"
        text.append(
            f"{worker} {state_text(worker)}: {busy_text(worker)} jobs, {queues}, "
            f"last heartbeat {period(worker.age)} ago (id {worker.pk})"
        )
        columns = {name: getattr(worker, name) for name in _WORKER}
        document.append({**columns, "state": worker.vital.value, "running": worker.busy - worker.lost})
    return Output(text or ["No worker is registered."], document)


@subcommand(
    "database",
    "Show locks, old transactions, dead rows, connections and traffic, with advice",
    argument(
        "--statements",
        action="store_true",
        help="with --json: also print the texts of statements, which may contain the arguments of jobs",
    ),
)
def _database(options: dict[str, Any]) -> Output:
    text, parts = [], database(options["database"], statements=options["statements"])
    for part in parts:
        text.append(f"{part.title}: {PartState(part.state).label}. {part.finding}")
        if part.state == PartState.ACT:
            text.append(f"  {part.rule}")
    return Output(text, {"database": options["database"], "parts": [part.as_json() for part in parts]})


# ----------------------------------------------------------------------------
# ``roles``: a database role that may only enqueue, and one for workers.

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
    make = statements_to_drop if options["drop"] else statements_to_make
    statements = list(make(installation(alias), enqueuer, worker))
    if not options["apply"]:
        return Output("\n".join(f"{each};" for each in ["BEGIN", *statements, "COMMIT"]).split("\n"))
    too_much = {} if options["drop"] else {enqueuer: _ALL, worker: ["TRUNCATE", "REFERENCES"]}
    try:
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            for role, rights in too_much.items():  # which this command has not given, and cannot take back
                if found := forbidden(alias, role, rights):
                    raise CommandError(
                        f"The role {role} can still {shortened(found)}. It has this right through PUBLIC, "
                        "or through a role whose member it is. Revoke it there."
                    )
    except DatabaseError as error:
        raise CommandError(
            f"Nothing was changed: {str(error).strip()}\n"
            "The owner of the tables must run this, and it needs CREATEROLE to make roles. Or let an "
            "administrator run what this command prints without --apply."
        ) from error
    done = "Took the rights of" if options["drop"] else "Gave rights to"
    return Output([f"{done} {enqueuer} and {worker}."])


# ----------------------------------------------------------------------------
# ``metrics``: print the metrics for Prometheus, or serve them on a port.


@subcommand(
    "metrics",
    "Print the metrics for Prometheus, or serve them",
    argument("--port", type=at_least(0), metavar="N", help="serve them on this port until stopped"),
    argument("--address", default="127.0.0.1", metavar="IP", help="what to listen on (default: 127.0.0.1)"),
    argument("--all", action="store_true", help="of all databases that jobs go to"),
    has_json=False,
)
def _metrics(options: dict[str, Any]) -> Output:
    try:
        from prometheus_client import generate_latest, make_wsgi_app

        from ...metrics import registry
    except ImportError as error:
        raise CommandError("This needs prometheus-client. Install it, or the extra `metrics`.") from error
    databases = sorted(queue_databases()) if options["all"] else [options["database"]]
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
