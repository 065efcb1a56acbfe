"""Who may read the views of metrics and health: a monitoring system by its token or its address, and users
who may view the statistics.

The address is that of the connection (``REMOTE_ADDR``). Headers such as ``X-Forwarded-For`` do not count,
since anybody can send them.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from django.utils.crypto import constant_time_compare

from . import conf

if TYPE_CHECKING:
    from django.http import HttpRequest

__all__ = ["may_monitor"]

PERMISSION = "django_pgqueue.view_jobstat"


def may_monitor(request: HttpRequest) -> bool:
    """Return whether to answer a request."""
    return _has_token(request) or _is_near(request) or _is_allowed_user(request)


def _has_token(request: HttpRequest) -> bool:
    token = conf.current().monitoring_token
    kind, _, given = request.headers.get("Authorization", "").partition(" ")
    return token is not None and kind.lower() == "bearer" and constant_time_compare(given.strip(), token)


def _is_near(request: HttpRequest) -> bool:
    try:
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:  # a Unix socket has none
        return False
    # A server that listens on IPv6 sees the IPv4 address 10.1.2.3 as ::ffff:10.1.2.3.
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in conf.current().monitoring_networks)


def _is_allowed_user(request: HttpRequest) -> bool:
    user = getattr(request, "user", None)
    return bool(user is not None and user.is_active and user.is_staff and user.has_perm(PERMISSION))
