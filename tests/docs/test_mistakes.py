"""The messages on the page about troubleshooting: each mistake is made, and its message is there."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management import CommandError, call_command
from django.db import NotSupportedError, OperationalError, ProgrammingError, connections, transaction
from django.test import override_settings

import django_pgqueue
from django_pgqueue import current_job, enqueue, task, why
from django_pgqueue.checks import tasks
from django_pgqueue.jobs import enqueue as enqueue_module
from django_pgqueue.management._conditions import reachable, warn_of_unknown_queues
from django_pgqueue.models import Job
from tests.support.databases import alias, fresh_database

from .shop import DOCS, committed, example, in_shop, run

pytestmark = in_shop

PAGE = (DOCS / "howto" / "troubleshooting.md").read_text().replace("\\<", "<")
PAGE = PAGE.split("\n## Error messages\n")[1].split("\n## ")[0]
MESSAGES = [
    line.split(" | ")[0].removeprefix("| ")
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| Message", "| ---"))
]


def says(error: object) -> str:
    """The message of the page for an error, which may say more."""
    found = [message for message in MESSAGES if message in str(error)]
    assert len(found) == 1, f"not on the page: {error}"
    return found[0]


def raised(mistake: Callable[[], Any]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        mistake()
    return says(caught.value)


def declare(name: str) -> None:
    """Make a task of a function that has this name in the shop."""

    def function() -> None: ...

    function.__module__, function.__qualname__ = "shop.mistakes", name
    function.__name__ = name.rpartition(".")[2]
    task(function)


async def enqueue_in_async_code() -> None:
    enqueue(example("tasks").send_receipt, 5)


CALLS: dict[str, Callable[[Any], Any]] = {
    "call": lambda send: send(5),
    "delay": lambda send: send.delay(5),
    "apply_async": lambda send: send.apply_async(args=[5], countdown=60),
    "countdown": lambda send: enqueue(send, 5, countdown=60),
    "queue": lambda send: send.using(queue="mail"),
    "retries": lambda send: task(retries=3),  # type: ignore[call-overload]
    "get": lambda send: enqueue(send, 5).get(timeout=5),  # type: ignore[attr-defined]
    "import": lambda send: django_pgqueue.shared_task,  # type: ignore[attr-defined]
    "path": lambda send: enqueue("shop.tasks.send_receipt", 5),  # type: ignore[arg-type]
    "function": lambda send: enqueue(send.func, 5),
    "arguments": lambda send: enqueue(send),
    "model": lambda send: enqueue(send, example("models").Order()),
    "datetime": lambda send: enqueue(send, datetime(2026, 1, 1)),  # noqa: DTZ001
    "decimal": lambda send: enqueue(send, Decimal(1)),
    "async": lambda send: asyncio.run(enqueue_in_async_code()),
    "lambda": lambda send: declare("<lambda>"),
    "nested": lambda send: declare("nested.<locals>.inner"),
    "method": lambda send: declare("Mailer.send"),
    "current_job": lambda send: current_job(),
    "backend": lambda send: django_pgqueue.PgQueueBackend,  # type: ignore[attr-defined]
}
OTHERS = 11  # messages that are not about one call


@pytest.mark.parametrize("mistake", CALLS)
def test_a_mistake_in_code(mistake: str) -> None:
    raised(lambda: CALLS[mistake](example("tasks").send_receipt))


@committed
def test_a_transaction_in_another_database(caplog: pytest.LogCaptureFixture, settings: Any) -> None:
    enqueue_module._said.clear()
    settings.DEBUG = True
    send = example("tasks").send_receipt
    with caplog.at_level(logging.WARNING, enqueue_module.__name__):
        enqueue(send, 1)
        with transaction.atomic():
            enqueue(send, 2)
        with transaction.atomic(), transaction.atomic(using="other"):
            enqueue(send, 3)
        assert caplog.messages == []
        for number in (4, 5):
            with transaction.atomic(using="other"):
                enqueue(send, number)
    (message,) = caplog.messages
    says(message)


@committed
def test_databases_that_are_not_ready(tmp_path: Path) -> None:
    send = example("tasks").send_receipt
    with fresh_database() as name, alias("fresh", NAME=name), pytest.raises(ProgrammingError) as caught:
        enqueue(send.using(database="fresh"), 1)
    says(str(caught.value).replace("fresh", "default"))
    lite = alias("lite", ENGINE="django.db.backends.sqlite3", NAME=str(tmp_path / "lite"))
    with lite, pytest.raises(NotSupportedError) as refused:
        enqueue(send.using(database="lite"), 1)
    says(refused.value)
    with pytest.raises(connections.exception_class, match="nowhere"):
        enqueue(send.using(database="nowhere"), 1)


def test_an_unknown_task_and_a_queue_without_a_worker() -> None:
    job = enqueue(example("tasks").send_receipt, 1)
    reason = why(job)
    says(f"{reason} {reason.fix}")
    Job.objects.filter(pk=job.pk).update(task_path="shop.tasks.send_recipt")
    says(run(job).waiting_reason)


def test_mistakes_with_the_command(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_unknown_queues("default", "--queues", ["mial"])
    says(caplog.messages[-1])
    with pytest.raises(CommandError) as caught, reachable("default"):
        raise OperationalError("connection refused")
    says(caught.value)
    with transaction.atomic(), pytest.raises(CommandError) as caught:
        call_command("runqueueworker", stdout=StringIO())
    says(caught.value)


def test_settings_of_the_project() -> None:
    with override_settings():
        (message,) = tasks.check_backends(None)
    says(message.msg.replace("@django_tasks.task", "@django.tasks.task"))
    name = "shop.tasks.send_receipt"
    lost = example("tasks").send_receipt.with_values({"queue_name": "mial"})
    backend = {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": ["default", "mail"]}
    with override_settings(TASKS={"default": backend}), patch.object(tasks, "declared_tasks", lambda: [lost]):
        (message,) = (each for each in tasks.check_tasks([]) if each.id == "pgqueue.E031")
    says(message.msg.replace(lost.module_path, name))
    program = (
        "from django.conf import settings\nsettings.configure(INSTALLED_APPS=[])\n"
        "import django\ndjango.setup()\nfrom django_pgqueue import task\n@task\ndef send(): ..."
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    says(done.stderr)


def test_there_is_no_message_that_no_test_has_seen() -> None:
    assert len(MESSAGES) == len(set(MESSAGES)) == len(CALLS) + OTHERS
