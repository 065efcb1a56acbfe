"""A time limit for each statement of a page.

The parts of a page that may have to read many rows have shorter limits, and the page is shown without them.
This limit is for all other statements, which are fast unless something holds them up: a migration that has
locked a table, or a server at its end. Without it, each look at the page would keep one more process and one
more connection waiting.

Only pages that are read are limited. What changes rows has to wait for their locks.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from django.http.response import HttpResponseBase
from django.template.response import SimpleTemplateResponse
from django.utils.translation import gettext as _

from ..models import JobStat
from ..time_limit import TimeLimitReached, time_limit
from .console import console_page
from .links import page_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest

    from .base import DatabaseAdmin

    View = Callable[..., HttpResponseBase]

__all__ = ["SECONDS", "limited"]

SECONDS = 5.0  # for one statement


def limited(admin: DatabaseAdmin[Any], view: View) -> View:
    """Return a view of an admin class whose statements have the time limit."""

    @wraps(view)
    def within_limit(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method not in {"GET", "HEAD"} or not admin.admin_site.has_permission(request):
            return view(request, *args, **kwargs)
        try:
            with time_limit(admin.database, SECONDS):
                response = view(request, *args, **kwargs)
        except TimeLimitReached:
            return _too_slow(admin, request)
        if isinstance(response, SimpleTemplateResponse) and not response.is_rendered:
            _limit_rendering(admin, request, response)
        return response

    return within_limit


def _limit_rendering(
    admin: DatabaseAdmin[Any], request: HttpRequest, response: SimpleTemplateResponse
) -> None:
    """A template also reads rows, and it is rendered after the view: a middleware may change its context."""
    render = response.render

    def render_within_limit() -> HttpResponseBase:
        del response.render  # a cache could not pickle it
        try:
            with time_limit(admin.database, SECONDS):
                return render()
        except TimeLimitReached:
            return _too_slow(admin, request).render()

    response.render = render_within_limit  # type: ignore[method-assign, assignment]


def _too_slow(admin: DatabaseAdmin[Any], request: HttpRequest) -> SimpleTemplateResponse:
    """Return a page that reads nothing from the tables of the queue."""
    page = console_page(
        admin,
        request,
        "admin/django_pgqueue/too_slow.html",
        _("The database is too slow"),
        seconds=int(SECONDS),
        database_url=page_url(admin.admin_site, request, JobStat, "database"),
    )
    page.status_code = 503
    return page
