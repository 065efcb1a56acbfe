"""Views for monitoring: the metrics for Prometheus, the health for load balancers and probes, and the wanted
slots for autoscalers.

A project adds them to its URLs:

    path("queue/metrics/", django_pgqueue.views.metrics)
    path("queue/health/", django_pgqueue.views.health)
    path("queue/scale/", django_pgqueue.views.scale)
"""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address

from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from . import conf
from .checks.tasks import queue_databases
from .formatting import plain
from .monitoring import health as figures
from .monitoring.workers import scale_hint
from .postgres.ask import ask_all

__all__ = ["health", "may_monitor", "metrics", "scale"]

_PLAIN = "text/plain; charset=utf-8"
_REFUSED = (
    "Send the token of PGQUEUE['MONITORING_TOKEN'] as \"Authorization: Bearer ...\", or request this from an "
    "address in MONITORING_NETWORKS, or as a staff user who may view statistics.\n"
)


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics of all databases that jobs go to, in the format that the scraper asks for."""
    if not may_monitor(request):
        return _refusal()
    try:
        from prometheus_client.exposition import choose_encoder

        from .metrics import registry
    except ImportError as error:
        raise ImproperlyConfigured(
            "The view of the metrics needs prometheus-client. Install it, or the extra `metrics`."
        ) from error
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(registry()), content_type=content_type)


@require_safe
@never_cache
def health(request: HttpRequest) -> HttpResponse:
    """Return 200 if the queues of all databases are healthy, otherwise 503, with a line for each database.

    ``?queue=mail`` limits it to a queue; it may be repeated. ``?database=other`` limits it to a database.
    """
    if not may_monitor(request):
        return _refusal()
    queues, wanted = request.GET.getlist("queue"), request.GET.getlist("database")
    databases = sorted(alias for alias in queue_databases() if alias in wanted or not wanted)
    if unknown := set(wanted).difference(databases):
        return HttpResponse(f"No jobs go to the database {min(unknown)!r}.\n", _PLAIN, status=404)
    shards = [alias for alias in databases if alias in conf.current().shards]
    answers = ask_all(shards if len(shards) > 1 else (), lambda alias: figures.health(alias, queues))
    answers.given.update({alias: figures.unreadable(alias) for alias in answers.failed})
    found = [answers.given.get(alias) or figures.health(alias, queues) for alias in databases]
    text = "".join(f"{each.database}: {plain(each.probe_line)}\n" for each in found)
    is_healthy = all(each.is_healthy for each in found)
    return HttpResponse(text, content_type=_PLAIN, status=200 if is_healthy else 503)


@require_safe
@never_cache
def scale(request: HttpRequest) -> HttpResponse:
    """Return how many slots the jobs of a database want now, as JSON with ``slots`` and ``queues``.

    ``?queue=mail`` limits it to a queue; it may be repeated. ``?database=other`` names another database than
    ``default``, or one of the shards. Without it, the jobs of all shards that answer count.
    ``?drain_within=30`` is in seconds.
    """
    if not may_monitor(request):
        return _refusal()
    shards, alias = conf.current().shards, request.GET.get("database", "")
    if not alias and len(shards) < 2:
        alias = DEFAULT_DB_ALIAS
    if alias and alias not in queue_databases():
        return HttpResponse(f"No jobs go to the database {alias!r}.\n", _PLAIN, status=404)
    within = request.GET.get("drain_within", "60")
    if not (within.isdecimal() and 0 < int(within) <= 86_400):
        return HttpResponse("drain_within must be a number of seconds, 1 to 86400.\n", _PLAIN, status=400)
    hint = scale_hint(alias or shards, request.GET.getlist("queue"), drain_within=int(within))
    document = {"slots": hint.slots, "queues": [row.document for row in hint.queues]}
    return JsonResponse(document | ({"unanswered": hint.failed} if hint.failed else {}))


def _refusal() -> HttpResponse:
    response = HttpResponse(_REFUSED, content_type=_PLAIN, status=401)
    response.headers["WWW-Authenticate"] = 'Bearer realm="django_pgqueue"'
    return response


# Who may read the views of metrics and health: a monitoring system by its token or its address, and users who
# may view the statistics. The address is that of the connection (``REMOTE_ADDR``). Headers such as
# ``X-Forwarded-For`` do not count, since anybody can send them.

PERMISSION = "django_pgqueue.view_jobstat"


def may_monitor(request: HttpRequest) -> bool:
    """Return whether to answer a request."""
    settings, user = conf.current(), getattr(request, "user", None)
    kind, _, given = request.headers.get("Authorization", "").partition(" ")
    token = settings.monitoring_token
    if token is not None and kind.lower() == "bearer" and constant_time_compare(given.strip(), token):
        return True
    with suppress(ValueError):  # a Unix socket has no address
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
        # A server that listens on IPv6 sees the IPv4 address 10.1.2.3 as ::ffff:10.1.2.3.
        address = getattr(address, "ipv4_mapped", None) or address
        if any(address in network for network in settings.monitoring_networks):
            return True
    return bool(user is not None and user.is_active and user.is_staff and user.has_perm(PERMISSION))
