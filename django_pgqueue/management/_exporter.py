"""Serve the metrics on a port, without the URLs of the project: ``manage.py pgqueue metrics --port``.

It answers one scrape at a time on the main thread, so it holds one connection for each database. There is no
token: whoever reaches the port may read.
"""

from __future__ import annotations

import signal
from threading import Thread
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from django.db import close_old_connections
from prometheus_client import make_wsgi_app

from ..formatting import get_logger

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

logger = get_logger(__name__)


class _Handler(WSGIRequestHandler):
    timeout = 10  # seconds: a client that sends nothing must not hold up the next one

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Log the request, as everything else is logged."""
        logger.debug("%s %s", self.address_string(), format % args)


class Exporter(WSGIServer):
    """Serves a registry until SIGTERM or Ctrl-C. Raises ``OSError`` if it cannot listen."""

    def __init__(self, registry: CollectorRegistry, address: str, port: int) -> None:
        super().__init__((address, port), _Handler)
        self._app: Any = make_wsgi_app(registry)
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
