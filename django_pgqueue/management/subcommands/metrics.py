"""``manage.py pgqueue metrics``: print the metrics for Prometheus once, or serve them on a port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError

from ...checks.tasks import queue_databases
from .._arguments import at_least

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from django.core.management.base import OutputWrapper

NAME = "metrics"
HELP = "Print the metrics for Prometheus, or serve them on a port"


def add_arguments(parser: ArgumentParser) -> None:
    """Add where to serve them."""
    parser.add_argument("--port", type=at_least(0), metavar="N", help="serve them on this port until stopped")
    parser.add_argument(
        "--address", default="127.0.0.1", metavar="IP", help="the address to listen on (default: 127.0.0.1)"
    )
    parser.add_argument("--all", action="store_true", help="of all databases that jobs go to")


def run(options: dict[str, Any], stdout: OutputWrapper) -> None:
    """Print or serve them."""
    try:
        from prometheus_client import generate_latest

        from ...metrics import registry
        from .._exporter import Exporter
    except ImportError as error:
        raise CommandError("This needs prometheus-client. Install it, or the extra `metrics`.") from error
    databases = sorted(queue_databases()) if options.get("all") else [options["database"]]
    if options.get("port") is None:
        stdout.write(generate_latest(registry(databases)).decode(), ending="")
        return
    address = options.get("address") or "127.0.0.1"
    try:
        exporter = Exporter(registry(databases), address, options["port"])
    except OSError as error:
        raise CommandError(f"Cannot listen on {address}, port {options['port']}: {error}") from error
    stdout.write(f"Serving the metrics on http://{address}:{exporter.server_port}/metrics")
    stdout.flush()
    exporter.run()
