"""The choice of a span in the address of a page, and the links to the same page with another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext_lazy as _

from ...figures.spans import DAY, HOUR, MONTH, WEEK, Span

if TYPE_CHECKING:
    from django.http import HttpRequest

__all__ = ["LABELS", "SpanTab", "address", "chosen_span", "span_tabs"]

SPAN_VAR = "span"
#: The names of all spans. Failures are the only ones that are kept for a month.
LABELS = {HOUR.name: _("1 hour"), DAY.name: _("24 hours"), WEEK.name: _("7 days"), MONTH.name: _("30 days")}
_SPANS = {span.name: span for span in (HOUR, DAY, WEEK)}


@dataclass(frozen=True, slots=True)
class SpanTab:
    """A link to the page with one span."""

    label: str
    url: str
    is_chosen: bool


def chosen_span(request: HttpRequest) -> Span:
    """Return the span of the address; the hour if there is none, or one that does not exist."""
    return _SPANS.get(request.GET.get(SPAN_VAR, ""), HOUR)


def span_tabs(request: HttpRequest) -> list[SpanTab]:
    """Return the links, which keep the rest of the address."""
    chosen = chosen_span(request)
    return [
        SpanTab(str(LABELS[name]), address(request, {SPAN_VAR: name, "p": None}), name == chosen.name)
        for name in _SPANS
    ]


def address(request: HttpRequest, changes: dict[str, Any]) -> str:
    """Return the query string of the page with changes; None removes a parameter."""
    query = request.GET.copy()
    for name, value in changes.items():
        query.pop(name, None)
        if value is not None:
            query[name] = value
    return f"?{query.urlencode()}"
