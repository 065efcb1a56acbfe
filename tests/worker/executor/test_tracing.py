"""With OpenTelemetry, an enqueue and the run of its job are spans of one trace."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from django_pgqueue import enqueue, enqueue_many
from django_pgqueue.models import Job
from django_pgqueue.telemetry import tracing
from tests.app import context_tasks as tasks
from tests.app import secret_tasks, worker_tasks
from tests.support.workers import fresh, run_due

pytestmark = pytest.mark.django_db(transaction=True)

REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans that have ended, while a tracer of its own is in use."""
    found = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield found
    provider.shutdown()


def spans(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    found = {span.name: span for span in exporter.get_finished_spans()}
    assert len(found) == len(exporter.get_finished_spans())
    return found


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


@pytest.mark.parametrize("task", [tasks.look, tasks.alook])
def test_a_request_its_enqueue_and_the_run_are_one_trace(task: Any, exporter: InMemorySpanExporter) -> None:
    with trace.get_tracer("shop").start_as_current_span("GET /checkout"):
        job = enqueue(task.using(queue_name="mail"))
    run_due()
    found = spans(exporter)
    assert set(found) == {"GET /checkout", "enqueue mail", "process mail"}
    request, sent, run = found["GET /checkout"], found["enqueue mail"], found["process mail"]
    assert (sent.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert sent.parent is not None
    assert run.parent is not None
    assert sent.parent.span_id == ids(request)[1]
    assert (run.parent.trace_id, run.parent.span_id) == ids(sent)
    assert [link.context.span_id for link in run.links] == [ids(sent)[1]]
    assert sent.attributes == {
        "messaging.system": "pgqueue",
        "messaging.operation.type": "send",
        "messaging.operation.name": "enqueue",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job.pk),
        "pgqueue.task": task.module_path,
        "pgqueue.enqueue_outcome": "created",
    }
    assert run.attributes == {
        "messaging.system": "pgqueue",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job.pk),
        "pgqueue.task": task.module_path,
        "pgqueue.attempt": 1,
    }
    assert str(job.traceparent)[:-3] == f"00-{ids(sent)[0]:032x}-{ids(sent)[1]:016x}"
    assert run.status.status_code == StatusCode.UNSET
    assert not trace.get_current_span().get_span_context().is_valid


def test_what_a_job_enqueues_is_below_its_run(exporter: InMemorySpanExporter) -> None:
    enqueue(tasks.pass_on.using(queue_name="first"))
    run_due()
    found = spans(exporter)
    assert len({ids(span)[0] for span in found.values()}) == 1
    child = found["enqueue default"]
    assert child.parent is not None
    assert child.parent.span_id == ids(found["process first"])[1]


def test_a_failed_attempt_is_an_error_and_a_snooze_is_not(exporter: InMemorySpanExporter) -> None:
    enqueue(worker_tasks.fail.using(queue_name="bad"))
    enqueue(worker_tasks.snooze.using(queue_name="sleepy"), 3600)
    run_due()
    by_queue: dict[str, list[ReadableSpan]] = {}
    for span in exporter.get_finished_spans():
        by_queue.setdefault(span.name, []).append(span)
    for run in by_queue["process bad"]:
        assert run.status.status_code == StatusCode.ERROR
        assert run.attributes is not None
        assert run.attributes["error.type"] == "builtins.ValueError"
        assert [event.name for event in run.events] == ["exception"]
    assert {run.status.status_code for run in by_queue["process sleepy"]} == {StatusCode.UNSET}


@pytest.mark.promise("redaction-everywhere")
def test_the_exception_of_a_span_is_redacted(exporter: InMemorySpanExporter) -> None:
    enqueue(secret_tasks.sign_in.using(queue_name="mail"), "nobody", "x")
    with override_settings(PGQUEUE={"REDACT": [r"re:\d{4}(-\d{4}){3}"]}):
        run_due()
    run = spans(exporter)["process mail"]
    [event] = run.events
    told = [run.status.description, *(event.attributes or {}).values()]
    assert sum("card [redacted] of nobody" in str(text) for text in told) == 3
    assert "4111" not in str(told)


def test_an_exception_that_cannot_be_printed_does_not_harm_the_worker(exporter: InMemorySpanExporter) -> None:
    job = enqueue(worker_tasks.raise_odd.with_values({"max_attempts": 1}), "unprintable")
    run_due()
    assert fresh(job).status == "failed"
    run = exporter.get_finished_spans()[-1]
    assert (run.status.status_code, run.name) == (StatusCode.ERROR, "process default")


def test_many_are_one_span(exporter: InMemorySpanExporter) -> None:
    enqueue_many(tasks.look.bind() for _ in range(3))
    (sent,) = exporter.get_finished_spans()
    assert sent.attributes is not None
    assert (sent.name, sent.attributes["messaging.batch.message_count"]) == ("enqueue", 3)
    expected = f"00-{ids(sent)[0]:032x}-{ids(sent)[1]:016x}"
    assert {str(job.traceparent)[:-3] for job in Job.objects.all()} == {expected}


def test_a_refused_enqueue_is_an_error(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(TypeError):
        enqueue(worker_tasks.noop, 1)  # type: ignore[call-arg]
    (sent,) = exporter.get_finished_spans()
    assert sent.status.status_code == StatusCode.ERROR


def test_a_job_from_sql_continues_the_trace_that_it_brings(exporter: InMemorySpanExporter) -> None:
    with connection.cursor() as cursor:
        options = f'{{"context": {{"trace": {{"traceparent": "{REMOTE}"}}}}}}'
        path = tasks.look.module_path
        cursor.execute("SELECT pgqueue_enqueue(%s, options => %s)", [path, options])
    run_due()
    (run,) = exporter.get_finished_spans()
    assert run.parent is not None
    assert f"{run.parent.trace_id:032x}-{run.parent.span_id:016x}" == REMOTE[3:-3]


def test_the_setting_turns_it_off(exporter: InMemorySpanExporter, settings: Any) -> None:
    settings.PGQUEUE = {"CONTEXT": []}
    job = enqueue(tasks.look)
    enqueue_many([tasks.look.bind()])
    run_due()
    assert (exporter.get_finished_spans(), fresh(job).context) == ((), None)


def test_flush_sends_what_waits(exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(trace.get_tracer_provider(), "force_flush", flushed.append)
    tracing.flush()
    assert flushed == [2000]


def test_a_project_without_opentelemetry_does_not_import_it() -> None:
    code = (
        "import sys; from django.conf import settings; settings.configure(); "
        "from django_pgqueue.telemetry import tracing; "
        "assert tracing.sending('a', 'b') is tracing.NO_SPAN; assert not tracing.in_use(); tracing.flush(); "
        "assert tracing.carrier() is None; assert not any(m.startswith('opentelemetry') for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
