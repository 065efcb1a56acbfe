"""Actions on selected jobs and buttons on the page of a job, each with its permission.

An action that changes more than one job, or that asks for values, is confirmed first (``confirm``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.translation import gettext_lazy as _

from ...models import Job
from ..base import ReadOnlyAdmin
from ..bulk.actions import ACTIONS, extendable
from ..bulk.confirm import act_on_many
from ..bulk.effects import permitted
from ..bulk.selection import affected, bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse, HttpResponseBase
    from django.urls import URLPattern

    from ..bulk.effects import Effect

__all__ = ["JobActions"]


class JobActions(ReadOnlyAdmin[Job]):
    """The part of ``JobAdmin`` with the actions."""

    actions = ("retry_jobs", "run_jobs", "edit_jobs", "extend_jobs", "cancel_jobs")

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may retry jobs."""
        return self._holds(request, "retry")

    def has_rerun_done_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may also retry jobs that are done."""
        return self._holds(request, "rerun_done")

    def has_run_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may run jobs now that wait for a later time."""
        return self._holds(request, "run")

    def has_edit_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may edit waiting jobs."""
        return self._holds(request, "edit")

    def has_extend_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may extend the timeout of running jobs."""
        return self._holds(request, "extend")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may cancel jobs."""
        return self._holds(request, "cancel")

    @admin.action(description=_("Retry selected %(verbose_name_plural)s"), permissions=["retry"])
    def retry_jobs(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse | None:
        """Retry the selected jobs."""
        return self._act_on_many("retry", request, queryset)

    @admin.action(description=_("Run selected %(verbose_name_plural)s now"), permissions=["run"])
    def run_jobs(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse | None:
        """Run the selected jobs now."""
        return self._act_on_many("run", request, queryset)

    @admin.action(description=_("Edit selected %(verbose_name_plural)s"), permissions=["edit"])
    def edit_jobs(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse | None:
        """Change the priority, the time or the queue of the selected jobs."""
        return self._act_on_many("edit", request, queryset)

    @admin.action(
        description=_("Give selected %(verbose_name_plural)s one more hour"), permissions=["extend"]
    )
    def extend_jobs(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Extend the timeout of the selected jobs."""
        self._act("extend", request, [extendable(queryset)])

    @admin.action(description=_("Cancel selected %(verbose_name_plural)s"), permissions=["cancel"])
    def cancel_jobs(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse | None:
        """Cancel the selected jobs."""
        return self._act_on_many("cancel", request, queryset)

    def get_urls(self) -> list[URLPattern]:
        """Add a URL for each button to Django's own URLs."""
        prefix = f"{self.opts.app_label}_{self.opts.model_name}"
        view = self.admin_site.admin_view(self.act_view)
        buttons = [
            path(f"<path:object_id>/{name}/", view, {"name": name}, name=f"{prefix}_{name}")
            for name in ACTIONS
        ]
        return buttons + super().get_urls()

    def act_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponseBase:
        """Handle a button of the page of a job: run one action on this job, and redirect to the page."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        job = self.get_object(request, unquote(object_id))
        if not (self.has_view_permission(request, job) and self._may(request, name)):
            raise PermissionDenied
        if job is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        if self._is_denied(name, request, job):
            raise PermissionDenied
        jobs = self.get_queryset(request).filter(pk=job.pk)
        query = request.META["QUERY_STRING"]
        if ACTIONS[name].form is not None:
            back = self._url("change", job) + (f"?{query}" if query else "")
            page = act_on_many(self, request, name, jobs, partial(self._may, request), back)
            return page or HttpResponseRedirect(back)
        shown = request.POST.get("status", job.status)
        by_now = _("No job changed: this job is now %(status)s.") % {"status": job.get_status_display()}
        parts = self._parts(name, request, jobs, shown)
        self._act(name, request, parts, refused="" if shown == job.status else str(by_now))
        # In a queue that does not keep jobs, a cancelled job no longer exists.
        target = self._url("change", job) if jobs.exists() else self._url("changelist")
        return HttpResponseRedirect(f"{target}?{query}" if query else target)

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Job | None = None,
    ) -> HttpResponse:
        """Add buttons for the actions that this user may run on the job now."""
        context["pgqueue_buttons"] = [
            {"label": action.label, "url": self._url(name, obj)}
            for name, action in ACTIONS.items()
            if obj is not None
            and action.fits(obj)
            and self._may(request, name)
            and not self._is_denied(name, request, obj)
        ]
        return super().render_change_form(request, context, add, change, form_url, obj)

    def _act_on_many(self, name: str, request: HttpRequest, jobs: QuerySet[Job]) -> HttpResponse | None:
        again = request.GET.urlencode()
        return act_on_many(self, request, name, jobs, partial(self._may, request), again=again)

    def _may(self, request: HttpRequest, name: str) -> bool:
        """Return what the method for this permission says, which a project may have replaced."""
        return bool(getattr(self, f"has_{name}_permission")(request))

    def _holds(self, request: HttpRequest, name: str) -> bool:
        return request.user.has_perm(f"{self.opts.app_label}.{name}_{self.opts.model_name}")

    def _permitted(self, name: str, request: HttpRequest) -> list[Effect]:
        return permitted(ACTIONS[name].effects, partial(self._may, request))

    def _is_denied(self, name: str, request: HttpRequest, job: Job) -> bool:
        """Return whether this user may run the action, but not on a job in this state."""
        effects = self._permitted(name, request)
        return any(job.status in effect.states and effect.is_denied for effect in effects)

    def _parts(self, name: str, request: HttpRequest, jobs: QuerySet[Job], shown: str) -> list[QuerySet[Job]]:
        """Return the ``jobs`` on which this user may run the action. An effect with its own permission counts
        only if the page has shown this state: a job that was failed on the page may be done in the meantime.
        """
        if not ACTIONS[name].effects:  # it gives more time
            return [extendable(jobs)]
        acting = [effect for effect in self._permitted(name, request) if effect.acts]
        acting = [effect for effect in acting if not effect.permission or shown in effect.states]
        return affected(jobs, bounds(jobs, across=False), acting)

    def _act(
        self, name: str, request: HttpRequest, parts: Sequence[QuerySet[Job]], refused: str = ""
    ) -> None:
        action = ACTIONS[name]
        changed = action(request, parts)
        words = action.outcome(changed) if changed else refused or action.outcome(0)
        self.message_user(request, words, messages.SUCCESS if changed else messages.WARNING)

    def _url(self, page: str, job: Job | None = None) -> str:
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}"
        return reverse(name, args=() if job is None else (quote(job.pk),), current_app=self.admin_site.name)
