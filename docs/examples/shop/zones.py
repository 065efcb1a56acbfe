from zoneinfo import ZoneInfo

from django.utils import timezone


def zone_of_the_user(get_response):
    """Activate the zone that the user has chosen, if there is one. Otherwise, the browser decides."""

    def middleware(request):
        name = request.session.get("zone")
        with timezone.override(ZoneInfo(name) if name else None):
            return get_response(request)

    return middleware
