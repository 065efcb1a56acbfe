"""``manage.py pgqueue metrics``: print the metrics for Prometheus once, or serve them on a port.

The port answers one scrape at a time on the main thread, so it holds one connection for each database. There
is no token: whoever reaches the port may read.
"""

from __future__ import annotations

from argparse import ArgumentParser
from contextlib import suppress
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from django.core.management.base import CommandError, OutputWrapper
from django.db import close_old_connections

from ...checks.tasks import queue_databases
from ...formatting import get_logger
from .._arguments import at_least
from .._parser import Subcommand, terminable

logger = get_logger(__name__)


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--port", type=at_least(0), metavar="N", help="serve them on this port until stopped")
    add("--address", default="127.0.0.1", metavar="IP", help="what to listen on (default: 127.0.0.1)")
    add("--all", action="store_true", help="of all databases that jobs go to")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print or serve them."""
    try:
        from prometheus_client import generate_latest, make_wsgi_app

        from ...metrics import registry
    except ImportError as error:
        raise CommandError("This needs prometheus-client. Install it, or the extra `metrics`.") from error
    databases = sorted(queue_databases()) if options["all"] else [options["database"]]
    if options["port"] is None:
        stdout.write(generate_latest(registry(databases)).decode(), ending="")
        return
    address, port = options["address"], options["port"]
    try:
        server = exporter(make_wsgi_app(registry(databases)), address, port)
    except OSError as error:
        raise CommandError(f"Cannot listen on {address}, port {port}: {error}") from error
    stdout.write(f"Serving the metrics on http://{address}:{server.server_port}/metrics")
    stdout.flush()
    serve(server)


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
    """Answer until SIGTERM or Ctrl-C."""
    with terminable(), suppress(KeyboardInterrupt), server:
        server.serve_forever()


SUBCOMMANDS = [Subcommand("metrics", "Print the metrics for Prometheus, or serve them", _add_arguments, run)]
