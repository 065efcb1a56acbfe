"""The strictest useful content security policy, which the pages promise to work with; and the time zones of
users, as in Django's documentation: from a cookie here.
"""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

__all__ = ["POLICY", "strict_policy", "zone_of_the_user"]

POLICY = "default-src 'self'"
Respond = Callable[[HttpRequest], HttpResponse]


def strict_policy(get_response: Respond) -> Respond:
    """Send the policy with each answer."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers["Content-Security-Policy"] = POLICY
        return response

    return middleware


def zone_of_the_user(get_response: Respond) -> Respond:
    """Activate the time zone of the user, if it is known."""

    def middleware(request: HttpRequest) -> HttpResponse:
        with timezone.override(request.COOKIES.get("zone")):
            return get_response(request)

    return middleware
