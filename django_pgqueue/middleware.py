"""Middleware that lets jobs carry what a request knows: the user, and the trace context.

Neither reads anything before a job is enqueued, so a view that enqueues nothing touches no session, and its
response does not get ``Vary: Cookie``.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase

from .context import holding, user_from
from .telemetry.tracing import CARRIER

__all__ = ["CurrentUserMiddleware", "TraceContextMiddleware"]

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


class _Around:
    """A middleware that runs the rest, sync or async, inside a context manager."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if self._is_async:
            return self._acall(request)
        with self.around(request):
            response: HttpResponseBase = self.get_response(request)
            return response

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        with self.around(request):
            response: HttpResponseBase = await self.get_response(request)
            return response

    def around(self, request: HttpRequest) -> AbstractContextManager[None]:
        """Return the context manager for a request."""
        raise NotImplementedError


class CurrentUserMiddleware(_Around):
    """Jobs that a request enqueues carry the primary key of ``request.user``, if CONTEXT contains "user"."""

    def around(self, request: HttpRequest) -> AbstractContextManager[None]:
        """Ask the request for its user when a job is enqueued: it may log in or out before."""
        return user_from(lambda: getattr(request, "user", None))


class TraceContextMiddleware(_Around):
    """Jobs that a request enqueues carry its ``traceparent`` and ``tracestate``.

    With OpenTelemetry you do not need it, because the span of the request travels.
    """

    def around(self, request: HttpRequest) -> AbstractContextManager[None]:
        """Accept a valid trace context, as https://www.w3.org/TR/trace-context/ describes it."""
        parent, state = request.headers.get("traceparent", ""), request.headers.get("tracestate", "")
        carrier = {"traceparent": parent} if _TRACEPARENT.fullmatch(parent) and len(parent) <= 200 else None
        if carrier is not None and 0 < len(state) <= 512:
            carrier["tracestate"] = state
        return holding(CARRIER, carrier)
