"""The examples of the pages about failures and alerts: commands, a mail, a webhook and a signal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from threading import Thread
from typing import Any

import pytest
from django.core import mail
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from django_pgqueue.alerts import Alert
from django_pgqueue.maintenance.alerts import send

from ..support.factories import JobFactory
from ..support.failures import fold, note
from .shop import EXAMPLES, fresh, setting

pytestmark = [pytest.mark.django_db(databases=["default", "other"]), pytest.mark.usefixtures("shop")]


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[Any]]]:
    """A server that keeps what it is sent."""
    received: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", received
        server.shutdown()


@pytest.mark.filterwarnings("ignore:Django 2028 will not have a default mailer")
def test_each_receiver(webhook: tuple[str, list[Any]]) -> None:
    address, received = webhook

    def alert(**values: Any) -> Alert:
        return Alert(database="default", at=timezone.now(), **values)

    alerts = [
        alert(kind="age", text="mail: late", queue_name="mail"),
        alert(kind="age", text="over: mail: late", queue_name="mail", is_over=True),
        alert(kind="new_failure", text="new failure: Down", fingerprint="f00", count=1),
        alert(kind="job_failed", text="1 job failed: Down", fingerprint="f00", count=1),
    ]
    with override_settings(**{**setting("alerts"), "CHAT_WEBHOOK": address}):
        assert [message for message in run_checks(tags=["pgqueue"]) if message.id == "pgqueue.E023"] == []
        from shop import alerts as example  # type: ignore[import-not-found]

        example.COUNTS.clear()
        send(alerts)
        example.alert_sent.disconnect(example.count)
    assert [each.subject for each in mail.outbox] == ["mail: late", "new failure: Down"]
    assert "/job/failures/f00/" in mail.outbox[1].body
    assert [each["text"][2:] for each in received] == [each.text for each in alerts]
    assert example.COUNTS == {"age": 2, "new_failure": 1, "job_failed": 1}


def test_the_commands() -> None:
    lines = (EXAMPLES / "deployment" / "failures.sh").read_text().splitlines()
    commands = [line.split()[2:] for line in lines if not line.startswith("#")]
    fingerprint = commands[1][-1]
    job = JobFactory.create(failed=True, error_fingerprint=fingerprint)
    connection.ensure_connection()
    note(connection.connection, fingerprint, message="no answer")
    fold(connection.connection)
    printed = []
    for name, *arguments in commands:
        out = StringIO()
        call_command(name, *arguments, *(["--yes"] if "retry" in arguments else []), stdout=out)
        printed.append(out.getvalue())
    assert ["no answer" in text for text in printed] == [True, True, False]
    assert fresh(job).status == "pending"
