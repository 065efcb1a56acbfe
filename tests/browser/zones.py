"""A project that knows the time zones of its users, as in Django's documentation: from a cookie here."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

__all__ = ["zone_of_the_user"]


def zone_of_the_user(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Activate the time zone of the user, if it is known."""

    def middleware(request: HttpRequest) -> HttpResponse:
        with timezone.override(request.COOKIES.get("zone")):
            return get_response(request)

    return middleware
