"""``manage.py pgqueue metrics``: print the metrics for Prometheus once, or serve them on a port.

The port answers one scrape at a time on the main thread, so it holds one connection for each database. There
is no token: whoever reaches the port may read.
"""

from __future__ import annotations

import signal
from argparse import ArgumentParser
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from django.core.management.base import CommandError, OutputWrapper
from django.db import close_old_connections

from ...checks.tasks import queue_databases
from ...formatting import get_logger
from .._arguments import at_least

logger = get_logger(__name__)

NAME = "metrics"
HELP = "Print the metrics for Prometheus, or serve them on a port"


def add_arguments(parser: ArgumentParser) -> None:
    """Add where to serve them."""
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
    address = options["address"]
    try:
        exporter = Exporter(make_wsgi_app(registry(databases)), address, options["port"])
    except OSError as error:
        raise CommandError(f"Cannot listen on {address}, port {options['port']}: {error}") from error
    stdout.write(f"Serving the metrics on http://{address}:{exporter.server_port}/metrics")
    stdout.flush()
    exporter.run()


class _ScrapeHandler(WSGIRequestHandler):
    timeout = 10  # seconds: a client that sends nothing must not hold up the next one

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Log the request, as everything else is logged."""
        logger.debug("%s %s", self.address_string(), format % args)


class Exporter(WSGIServer):
    """Serves an application until SIGTERM or Ctrl-C. Raises ``OSError`` if it cannot listen."""

    def __init__(self, app: Any, address: str, port: int) -> None:
        super().__init__((address, port), _ScrapeHandler)
        self._app = app
        self.set_app(self._answer)

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        close_old_connections()  # one that the server has ended, and one that is older than CONN_MAX_AGE
        try:
            return self._app(environ, start_response)
        finally:
            close_old_connections()

    def run(self) -> None:
        """Serve on the main thread, and restore the signal handler afterwards."""
        before = signal.signal(signal.SIGTERM, self._stop)
        try:
            self.serve_forever(poll_interval=0.5)
        except KeyboardInterrupt:
            logger.debug("interrupted")
        finally:
            signal.signal(signal.SIGTERM, before)
            self.server_close()

    def _stop(self, *_: Any) -> None:
        # ``shutdown`` waits until the loop, which this handler interrupts, has ended.
        Thread(target=self.shutdown, daemon=True).start()
