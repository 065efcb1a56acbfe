"""The examples about what travels with a job."""

from __future__ import annotations

import logging
import logging.config
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.checks import run_checks
from django.db import connections
from django.test import override_settings
from django.utils import translation
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from django_pgqueue import conf
from django_pgqueue.models import Job
from tests.support.loggers import loggers_restored

from .shop import example, fresh, in_shop, setting, statements, work


@in_shop
def test_a_job_knows_who_enqueued_it(settings: Any) -> None:
    settings.PGQUEUE = setting("context")["PGQUEUE"]
    logger = logging.getLogger("shop.carrying")
    logger.setLevel(logging.INFO)
    user = get_user_model().objects.create_user("ada")
    with translation.override("de"):
        pk = example("carrying").export_for(user, "acme")
    work()
    logger.setLevel(logging.NOTSET)
    job = fresh(Job(pk=pk))
    assert job.result == "Willkommen, ada (acme)"
    assert job.context == {
        "language": "de",
        "user": user.pk,
        "vars": {"shop.carrying.current_tenant": "acme"},
    }
    ((line,),) = [[line["message"] for line in entry["lines"]] for entry in job.logs or []]
    assert line == "exporting the orders of acme"


@in_shop
def test_the_settings_are_valid() -> None:
    with override_settings(**setting("context")):
        # Not all messages: tasks that other tests have declared may be wrong.
        found = {message.id for message in run_checks(tags=["pgqueue"])}
        assert found.isdisjoint({"pgqueue.E002", "pgqueue.E003", "pgqueue.E018"})
    with override_settings(**setting("capture_logs")):
        assert conf.problems() == []
        assert conf.current().capture_logs == {"reports": 20, "*": 30}


def test_the_logging_example(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("shop")  # what exists is restored
    with loggers_restored():
        logging.config.dictConfig(setting("job_logging")["LOGGING"])
        logging.getLogger("shop.views").info("hello")
    assert capsys.readouterr().err == "INFO [job - -] hello\n"


def test_the_example_of_opentelemetry(shop: None, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Any] = []
    monkeypatch.setattr(trace, "set_tracer_provider", used.append)
    exporter = InMemorySpanExporter()
    provider = example("telemetry").set_up(exporter)
    assert used == [provider]
    with provider.get_tracer("shop").start_as_current_span("request"):
        pass
    provider.shutdown()
    assert [span.name for span in exporter.get_finished_spans()] == ["request"]


@in_shop
def test_the_context_in_sql() -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute(statements("context"))
        ((pk,),) = cursor.fetchall()
        for _ in range(2):
            cursor.nextset()
            assert cursor.fetchall() == [(pk, "pending")]
    assert Job.objects.get(pk=pk).user_id == 5
