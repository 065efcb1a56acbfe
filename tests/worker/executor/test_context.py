"""The context of an enqueue is there when its job runs, wherever it runs, and gone when the next one does.

With OpenTelemetry, an enqueue and the run of its job are spans of one trace.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.utils import translation
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from syrupy.assertion import SnapshotAssertion

from django_pgqueue import cancel, conf, encoding, enqueue, enqueue_many, retry
from django_pgqueue.context import acting_as
from django_pgqueue.encoding import TOO_DEEP
from django_pgqueue.models import Job
from django_pgqueue.telemetry import tracing
from django_pgqueue.telemetry.tracing import CARRIER
from tests.app import context_tasks as tasks, secret_tasks, worker_tasks
from tests.support.jobs import sql
from tests.support.workers import fresh, ran, run_due, run_here

pytestmark = pytest.mark.django_db

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CARRIED = {"language": "de", "tenant": [5], "user": 7, "trace": TRACEPARENT}
NOTHING = {"language": "en-us", "tenant": None, "user": None, "trace": None}


@pytest.fixture
def names(settings: Any) -> None:
    settings.PGQUEUE = {"CONTEXT": ["language", "trace", "user", tasks.TENANT_PATH]}


@contextmanager
def request() -> Iterator[None]:
    """Code that has all that travels."""
    carrier, tenant = CARRIER.set({"traceparent": TRACEPARENT}), tasks.TENANT.set([5])
    try:
        with translation.override("de"), acting_as(7):
            yield
    finally:
        CARRIER.reset(carrier)
        tasks.TENANT.reset(tenant)


@pytest.mark.usefixtures("names")
@pytest.mark.django_db(transaction=True)
@pytest.mark.promise("context-ends")
def test_it_travels_and_is_gone_afterwards() -> None:
    looks: list[Any] = [tasks.look, tasks.alook, tasks.look_in_a_thread, tasks.look_atomic]
    jobs = []
    for task in looks:
        jobs.append(enqueue(task))
        with request():
            jobs.append(enqueue(task))
            enqueue(tasks.change_the_language)
        jobs.append(enqueue(task))
        enqueue(tasks.change_the_language)
    run_due(threads=1)
    assert [fresh(job).result for job in jobs] == [NOTHING, CARRIED, NOTHING] * len(looks)


@pytest.mark.usefixtures("names")
@pytest.mark.promise("context-passed-on")
def test_a_job_passes_it_on_to_the_jobs_that_it_enqueues() -> None:
    with request():
        job = ran(tasks.pass_on.bind())
    assert fresh(job.result).result == CARRIED


@pytest.mark.usefixtures("names")
def test_a_variable_that_is_no_longer_in_the_setting_is_left_out(settings: Any) -> None:
    with request():
        job = enqueue(tasks.look)
    settings.PGQUEUE = {}
    run_here()
    assert fresh(job).result == {**CARRIED, "tenant": None}


@pytest.mark.usefixtures("names")
def test_a_language_without_a_catalog_of_its_own_travels() -> None:
    with translation.override("de-at"):
        job = enqueue(tasks.look)
    run_here()
    assert fresh(job).result == {**NOTHING, "language": "de-at"}


@pytest.mark.usefixtures("names")
@pytest.mark.promise("context-stays")
def test_it_stays_with_the_job_through_its_life() -> None:
    with request():
        job = enqueue(tasks.look)
    stored = job.context
    cancel(job)
    assert fresh(job).context == stored
    retry(job)
    run_here()
    assert (fresh(job).context, fresh(job).status) == (stored, "done")
    retry(job)
    assert fresh(job).context == stored
    run_here()
    assert fresh(job).result == CARRIED
    assert Job.objects.filter(context__user=7).count() == 1


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("task", [tasks.look, tasks.alook])
def test_a_context_that_python_cannot_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, task: Any
) -> None:
    """SQL can store it. How deep Python reads depends on its version."""
    monkeypatch.setattr(encoding, "load", lambda text: TOO_DEEP)
    with request():
        job = enqueue(task)
    run_here()
    result: Any = fresh(job).result
    assert (result["language"], result["tenant"]) == ("en-us", None)
    assert f"job {job.pk} runs without its context, which is nested too deeply" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_context_that_cannot_be_restored_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    """The variable is not what the setting says. The jobs wait until that is mended."""
    settings.PGQUEUE = {"CONTEXT": [tasks.TENANT_PATH], "TIMEOUT": 60}
    with request():
        jobs = [enqueue(tasks.look), enqueue(tasks.alook)]
    with monkeypatch.context() as patch:
        patch.setattr(conf, "object_at", lambda setting, path: "no variable")
        runner = run_due()._runner
    assert not runner.running
    assert not runner.timeouts._watched
    assert [(fresh(job).status, fresh(job).attempts) for job in jobs] == [("pending", 0)] * 2
    assert "names 'tests.app.context_tasks.TENANT', which is of type str" in caplog.text


# -- traces


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


def spans(exporter: InMemorySpanExporter) -> dict[str, Any]:
    return {span.name: span for span in exporter.get_finished_spans()}


def ids(span: Any) -> tuple[int, int]:
    return span.context.trace_id, span.context.span_id


@pytest.mark.django_db(transaction=True)
def test_a_request_its_enqueue_and_the_run_are_one_trace(
    exporter: InMemorySpanExporter, wording: SnapshotAssertion
) -> None:
    looks = {"mail": tasks.look, "chat": tasks.alook}
    with trace.get_tracer("shop").start_as_current_span("GET /checkout"):
        jobs: dict[str, Any] = {name: enqueue(task.using(queue_name=name)) for name, task in looks.items()}
    run_due()
    found = spans(exporter)
    assert len(exporter.get_finished_spans()) == len(found) == 5
    for name, job in jobs.items():
        sent, run = found[f"enqueue {name}"], found[f"process {name}"]
        assert (sent.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
        assert sent.parent.span_id == ids(found["GET /checkout"])[1]
        assert (run.parent.trace_id, run.parent.span_id) == ids(sent)
        assert [link.context.span_id for link in run.links] == [ids(sent)[1]]
        told = "\n".join(f"{key}: {value}" for span in (sent, run) for key, value in span.attributes.items())
        assert told.replace(f"message.id: {job.pk}", "message.id: <id>") == wording
        assert str(job.traceparent)[:-3] == f"00-{ids(sent)[0]:032x}-{ids(sent)[1]:016x}"
        assert run.status.status_code == StatusCode.UNSET
    assert not trace.get_current_span().get_span_context().is_valid


def test_what_a_job_enqueues_is_below_its_run(exporter: InMemorySpanExporter) -> None:
    enqueue(tasks.pass_on.using(queue_name="first"))
    run_here()
    found = spans(exporter)
    assert len({ids(span)[0] for span in found.values()}) == 1
    child = found["enqueue default"]
    assert child.parent.span_id == ids(found["process first"])[1]


def test_a_failed_attempt_is_an_error_and_a_snooze_is_not(exporter: InMemorySpanExporter) -> None:
    enqueue(worker_tasks.raise_odd.using(queue_name="bad"), "nul")
    enqueue(worker_tasks.snooze.using(queue_name="sleepy"), 3600)
    enqueue(worker_tasks.raise_odd.using(queue_name="odd"), "unprintable")
    run_here()
    found = spans(exporter)
    bad = found["process bad"]
    assert bad.status.status_code == found["process odd"].status.status_code == StatusCode.ERROR
    assert bad.attributes["error.type"] == "builtins.ValueError"
    assert [event.name for event in bad.events] == ["exception"]
    assert found["process sleepy"].status.status_code == StatusCode.UNSET


@pytest.mark.promise("redaction-everywhere")
def test_the_exception_of_a_span_is_redacted(exporter: InMemorySpanExporter, settings: Any) -> None:
    enqueue(secret_tasks.sign_in.using(queue_name="mail"), "nobody", "x")
    settings.PGQUEUE = {"REDACT": [r"re:\d{4}(-\d{4}){3}"]}
    run_here()
    run = spans(exporter)["process mail"]
    [event] = run.events
    told = [run.status.description, *(event.attributes or {}).values()]
    assert sum("card [redacted] of nobody" in str(text) for text in told) == 3
    assert "4111" not in str(told)


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
    options = f'{{"context": {{"trace": {{"traceparent": "{TRACEPARENT}"}}}}}}'
    sql("SELECT pgqueue_enqueue(%s, options => %s)", tasks.look.module_path, options)
    run_here()
    (run,) = exporter.get_finished_spans()
    assert run.parent is not None
    assert f"{run.parent.trace_id:032x}-{run.parent.span_id:016x}" == TRACEPARENT[3:-3]


def test_the_setting_turns_it_off(exporter: InMemorySpanExporter, settings: Any) -> None:
    settings.PGQUEUE = {"CONTEXT": []}
    job = enqueue(tasks.look)
    enqueue_many([tasks.look.bind()])
    run_here()
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
