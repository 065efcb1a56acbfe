"""Actions on schedules: buttons on the page, actions of the list, and the page that asks for confirmation.

A button and an action of the list lead to the same page, which says what would happen to each schedule. Its
form contains the names, so the action changes only schedules that were shown.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponseBadRequest, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from ...models import Schedule
from .. import display
from ..console import console_page
from .actions import ACTIONS
from .fields import ScheduleFields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse, HttpResponseBase
    from django.template.response import TemplateResponse
    from django.urls import URLPattern

    from .actions import Action

__all__ = ["ScheduleButtons"]

MOST_SHOWN = 100  # schedules on the page that asks for confirmation


class ScheduleButtons(ScheduleFields):
    """The part of ``ScheduleAdmin`` with the actions."""

    actions = ("pause_schedules", "resume_schedules", "run_schedules")

    def has_pause_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may pause and resume schedules."""
        return self._holds(request, "pause")

    def has_run_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may run schedules now."""
        return self._holds(request, "run")

    @admin.action(description=_("Pause selected %(verbose_name_plural)s"), permissions=["pause"])
    def pause_schedules(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> HttpResponse:
        """Pause the selected schedules."""
        return self._ask(request, ACTIONS["pause"], list(queryset.order_by("pk")))

    @admin.action(description=_("Resume selected %(verbose_name_plural)s"), permissions=["pause"])
    def resume_schedules(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> HttpResponse:
        """Resume the selected schedules."""
        return self._ask(request, ACTIONS["resume"], list(queryset.order_by("pk")))

    @admin.action(description=_("Run selected %(verbose_name_plural)s now"), permissions=["run"])
    def run_schedules(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> HttpResponse:
        """Run the selected schedules now."""
        return self._ask(request, ACTIONS["run"], list(queryset.order_by("pk")))

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the actions to Django's own URLs."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_act"
        return [
            path("act/<slug:name>/", self.admin_site.admin_view(self.act_view), name=name),
            *super().get_urls(),
        ]

    def act_view(self, request: HttpRequest, name: str) -> HttpResponseBase:
        """Ask for confirmation, or act on the schedules that the confirmed form names."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        action = ACTIONS.get(name)
        if action is None:
            raise Http404
        if not (self.has_view_permission(request) and self._may(request, action.permission)):
            raise PermissionDenied
        names = _names(request.POST.get("names", ""))
        if not names:
            return HttpResponseBadRequest()
        found = list(self.get_queryset(request).filter(pk__in=names).order_by("pk"))
        if not all(self._may_on(request, action, schedule) for schedule in found):
            raise PermissionDenied
        page = request.POST.get("page", "")
        if "confirmed" not in request.POST:
            return self._ask(request, action, found, page)
        reason = request.POST.get("reason", "").replace("\0", "").strip() if action.asks_for_reason else ""
        changed = action(request, self.writes_to, found, reason)
        level = messages.SUCCESS if changed else messages.WARNING
        self.message_user(request, action.outcome(changed), level)
        return HttpResponseRedirect(self._back(request, page if page in names else ""))

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Schedule | None = None,
    ) -> HttpResponse:
        """Add buttons for the actions that this user may run on the schedule now."""
        context["pgqueue_buttons"] = [
            {"label": action.label, "url": self._act_url(action)}
            for action in ACTIONS.values()
            if obj is not None and action.fits(obj) and self._may_on(request, action, obj)
        ]
        context["pgqueue_names"] = json.dumps([obj.pk] if obj else [])
        return super().render_change_form(request, context, add, change, form_url, obj)

    def _may(self, request: HttpRequest, permission: str) -> bool:
        """Return what the method for this permission says, which a project may have replaced."""
        return bool(getattr(self, f"has_{permission}_permission")(request))

    def _may_on(self, request: HttpRequest, action: Action, schedule: Schedule) -> bool:
        """Return whether this user may view this schedule and run the action on it."""
        if not self.has_view_permission(request, schedule):
            return False
        if action.permission == "change":
            return self.has_change_permission(request, schedule)
        return self._may(request, action.permission)

    def _holds(self, request: HttpRequest, permission: str) -> bool:
        return request.user.has_perm(f"{self.opts.app_label}.{permission}_{self.opts.model_name}")

    def _ask(
        self, request: HttpRequest, action: Action, found: Sequence[Schedule], page: str = ""
    ) -> TemplateResponse:
        self.for_user(request, found)
        effects = [(action.fits(schedule), action.effect(schedule)) for schedule in found]
        return console_page(
            self,
            request,
            "admin/django_pgqueue/schedule/confirm.html",
            action.title,
            selected=ngettext(
                "%(number)s schedule is selected.", "%(number)s schedules are selected.", len(found)
            )
            % {"number": display.number(len(found))},
            effects=effects[:MOST_SHOWN],
            more=len(effects[MOST_SHOWN:]),
            acts=any(acts for acts, _text in effects),
            asks_for_reason=action.asks_for_reason,
            reason_length=Schedule._meta.get_field("pause_reason").max_length,
            url=self._act_url(action),
            names=json.dumps([schedule.pk for schedule in found]),
            page=page,
            back=self._back(request, page),
        )

    def _act_url(self, action: Action) -> str:
        return self._url("act", action.name)

    def _back(self, request: HttpRequest, page: str) -> str:
        target = self._url("change", quote(page)) if page else self._url("changelist")
        query = request.META["QUERY_STRING"]
        return f"{target}?{query}" if query else target

    def _url(self, page: str, *arguments: str) -> str:
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}"
        return reverse(name, args=arguments, current_app=self.admin_site.name)


def _names(text: str) -> list[str]:
    """Return the names in a form; nothing if it is not a list of names."""
    try:
        names = json.loads(text)
    except ValueError:
        return []
    if not isinstance(names, list):
        return []
    return [name for name in names if isinstance(name, str) and "\0" not in name]
