"""The buttons of the overview that pause and resume a queue. Each needs the permission of the page of pauses:
add a pause to pause, delete one to resume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.contrib.admin.models import ADDITION, DELETION, LogEntry
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseBadRequest, HttpResponseRedirect
from django.utils.translation import gettext as _

from ...compat import InvalidTask
from ...lifecycle.pause import pause, resume
from ...models import Pause

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite
    from django.http import HttpRequest, HttpResponse

    from ..base import DatabaseAdmin

__all__ = ["may_pause", "may_resume", "press"]

_MOST_OF_REASON = 400


def may_pause(site: AdminSite, request: HttpRequest) -> bool:
    """Return whether this user may pause a queue, and whether the site has pauses at all."""
    return site.is_registered(Pause) and site.get_model_admin(Pause).has_add_permission(request)


def may_resume(site: AdminSite, request: HttpRequest) -> bool:
    """Return whether this user may resume a queue, which deletes its pause."""
    if not site.is_registered(Pause):
        return False
    admin: Any = site.get_model_admin(Pause)
    allowed = getattr(admin, "has_resume_permission", admin.has_delete_permission)
    return bool(allowed(request))


def press(admin: DatabaseAdmin[Any], request: HttpRequest) -> HttpResponse:
    """Do what the button says, and show the overview again."""
    queue, button = request.POST.get("queue", ""), request.POST.get("button", "")
    allowed = {"pause": may_pause, "resume": may_resume}.get(button)
    if allowed is None or not queue or "\0" in queue:
        return HttpResponseBadRequest()
    if not allowed(admin.admin_site, request):
        raise PermissionDenied
    try:
        text, level = (_pause if button == "pause" else _resume)(admin, request, queue)
    except InvalidTask:  # somebody has changed the form
        return HttpResponseBadRequest()
    admin.message_user(request, text, level)
    return HttpResponseRedirect(request.get_full_path())


def _pause(admin: DatabaseAdmin[Any], request: HttpRequest, queue: str) -> tuple[str, int]:
    made = pause(
        queue=queue,
        reason=request.POST.get("reason", "").replace("\0", "")[:_MOST_OF_REASON],
        author=request.user.get_username()[:150],
        using=admin.writes_to,
    )
    _note(request, made, ADDITION, _("Paused."))
    return _("Queue %(name)s is paused.") % {"name": queue}, messages.SUCCESS


def _resume(admin: DatabaseAdmin[Any], request: HttpRequest, queue: str) -> tuple[str, int]:
    found = Pause.objects.using(admin.writes_to).filter(kind=Pause.Kind.QUEUE, name=queue).first()
    if not resume(queue=queue, using=admin.writes_to):
        return _("It was not paused any more."), messages.WARNING
    if found is not None:
        _note(request, found, DELETION, _("Resumed."))
    return _("Queue %(name)s is resumed.") % {"name": queue}, messages.SUCCESS


def _note(request: HttpRequest, row: Pause, flag: int, text: str) -> None:
    LogEntry.objects.log_actions(request.user.pk, [row], flag, change_message=text)  # type: ignore[arg-type]
