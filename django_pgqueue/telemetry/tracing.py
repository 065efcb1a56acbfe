"""Trace context of jobs, and their spans if the project uses OpenTelemetry.

What travels with a job is a carrier: a dict of strings such as ``{"traceparent": "00-0af7...-01"}``. With
OpenTelemetry, its propagators write and read it, an enqueue is a PRODUCER span, and a run is a CONSUMER span.
The run is a child of the enqueue, so that a request and its jobs are one trace, and it has a link to it, as
the semantic conventions say. Without OpenTelemetry, the carrier that a request or a job came with is passed
on unchanged.

This package does not depend on OpenTelemetry. It uses the API if the project has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from traceback import format_exception
from typing import Any

from .. import conf
from ..redaction import redact_text

#: The carrier of the request or the job that runs here.
CARRIER: ContextVar[Mapping[str, str] | None] = ContextVar("django_pgqueue.carrier", default=None)

#: Bytes of a carrier that travel with a job. Baggage, which comes from outside, may be larger.
_MOST = 4096
_FLUSH_MILLISECONDS = 2000
_SYSTEM = {"messaging.system": "pgqueue"}


def in_use() -> bool:
    """Return whether the project uses OpenTelemetry."""
    return _otel() is not None


def carrier() -> dict[str, str] | None:
    """Return the trace context of this code, to be stored with a job; None if there is none."""
    otel = _otel()
    found: dict[str, str] = {}
    if otel is not None:
        otel.propagate.inject(found)
    given = found or CARRIER.get()
    if not given:
        return None
    kept: dict[str, str] = {}
    room = _MOST
    for key in sorted(given, key=lambda key: not key.startswith("trace")):
        room -= len(key) + len(given[key].encode())
        if room >= 0:
            kept[key] = given[key]
    return kept or None


class _Span:
    """A span that is the current one while the block runs."""

    def __init__(
        self, otel: Any, name: str, kind: Any, attributes: dict[str, Any], parent: Any = None
    ) -> None:
        self._otel = otel
        self._parent = parent
        self._task_path = attributes.get("pgqueue.task", "")
        remote = otel.trace.get_current_span(parent).get_span_context() if parent is not None else None
        links = [otel.trace.Link(remote)] if remote is not None and remote.is_valid else []
        self._span = otel.trace.get_tracer("django_pgqueue").start_span(
            name, context=parent, kind=kind, attributes=attributes, links=links
        )

    def __enter__(self) -> _Span:
        current = self._otel.trace.set_span_in_context(self._span, self._parent)
        self._token = self._otel.context.attach(current)
        return self

    def __exit__(self, *raised: Any) -> None:
        self.ended(raised[1])
        self._otel.context.detach(self._token)
        self._span.end()

    def stored(self, job: int | None, outcome: str, count: int = 1) -> None:
        """The jobs of an enqueue are in the database."""
        if job is not None:
            self._span.set_attribute("messaging.message.id", str(job))
            self._span.set_attribute("pgqueue.enqueue_outcome", outcome)
        else:
            self._span.set_attribute("messaging.batch.message_count", count)

    def ended(self, error: BaseException | None) -> None:
        """The run of a job has ended, with this error if the attempt has failed."""
        if error is not None:
            kind = type(error)
            self._span.set_attribute("error.type", f"{kind.__module__}.{kind.__qualname__}")
            failed = self._otel.trace.StatusCode.ERROR
            try:
                self._span.record_exception(error, _redacted(error, self._task_path))
                text = redact_text(f"{kind.__name__}: {error}", self._task_path)
                self._span.set_status(self._otel.trace.Status(failed, text))
            except BaseException:  # an exception of a task may raise anything when it is printed
                self._span.set_status(self._otel.trace.Status(failed, kind.__name__))


def _redacted(error: BaseException, task_path: str) -> dict[str, str] | None:
    """Return the attributes of an exception in place of OpenTelemetry's, if its text is redacted."""
    if conf.current().redact.are_names:
        return None
    texts = {"exception.message": str(error), "exception.stacktrace": "".join(format_exception(error))}
    return {name: redact_text(text, task_path) for name, text in texts.items()}


#: For code that is not traced.
NO_SPAN: AbstractContextManager[Any] = nullcontext()


def sending(queue_name: str | None, task_path: str | None) -> AbstractContextManager[Any]:
    """Return a context manager with the span of an enqueue; None without tracing. Of several: no names."""
    otel = _otel()
    if otel is None:
        return NO_SPAN
    attributes = {**_SYSTEM, "messaging.operation.type": "send", "messaging.operation.name": "enqueue"}
    if queue_name is None:
        return _Span(otel, "enqueue", otel.trace.SpanKind.PRODUCER, attributes)
    attributes |= {"messaging.destination.name": queue_name, "pgqueue.task": str(task_path)}
    return _Span(otel, f"enqueue {queue_name}", otel.trace.SpanKind.PRODUCER, attributes)


def processing(job: Any, given: Mapping[str, str] | None) -> AbstractContextManager[Any]:
    """Like ``sending``, for the run of a job. ``given``: the carrier of the job."""
    otel = _otel()
    if otel is None:
        return NO_SPAN
    attributes = {
        **_SYSTEM,
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": job.queue_name,
        "messaging.message.id": str(job.id),
        "pgqueue.task": job.task_path,
        "pgqueue.attempt": job.attempts,
    }
    parent = otel.propagate.extract(given) if given else otel.context.get_current()
    return _Span(otel, f"process {job.queue_name}", otel.trace.SpanKind.CONSUMER, attributes, parent)


def flush() -> None:
    """Send what OpenTelemetry has collected, before the process ends without running its exit handlers."""
    otel = _otel()
    force_flush = getattr(otel.trace.get_tracer_provider(), "force_flush", None) if otel is not None else None
    if force_flush is not None:
        force_flush(_FLUSH_MILLISECONDS)


def _otel() -> Any:
    """Return the API if the project has imported it and CONTEXT has "trace", and otherwise None."""
    if "opentelemetry.trace" not in sys.modules or "trace" not in conf.current().context:
        return None
    # Another thread may be importing it. These imports wait for that.
    import opentelemetry.context
    import opentelemetry.propagate
    import opentelemetry.trace

    return opentelemetry
