"""The buttons and the actions that cancel batches, and run their failed jobs again, after a confirmation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from ...lifecycle.batches import Batch
from ...models import JobBatch
from ...models.batch import counts_of
from .. import display
from ..ask import Effect, about, ask, is_confirmed
from ..base import ReadOnlyAdmin
from ..job_permissions import may_with_jobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse, HttpResponseBase
    from django.urls import URLPattern

    from ...models import BatchCounts

    Act = Literal["cancel", "retry"]

__all__ = ["BatchActions"]

_LABELS = {"cancel": _("Cancel batch"), "retry": _("Retry failed jobs")}
_TITLES = {"cancel": _("Cancel batches"), "retry": _("Retry the failed jobs of batches")}
_IS_CANCELLED = _(
    "{name} would be closed, and {jobs} would be cancelled; running ones would be asked to stop."
)
_IS_OVER = _("{name} is over.")
_IS_RETRIED = _("{name} would go on: {jobs} would run again.")
_NONE_FAILED = _("{name} has no failed jobs.")


class BatchActions(ReadOnlyAdmin[JobBatch]):
    """The part of ``BatchAdmin`` with the actions. They need the permissions for the same on jobs."""

    actions = ("cancel_batches", "retry_batches")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may cancel jobs."""
        return may_with_jobs(self.admin_site, request, "cancel")

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may retry jobs."""
        return may_with_jobs(self.admin_site, request, "retry")

    @admin.action(description=_("Cancel selected batches"), permissions=["cancel"])
    def cancel_batches(self, request: HttpRequest, queryset: QuerySet[JobBatch]) -> HttpResponse | None:
        """Cancel the jobs of the selected batches that are not over."""
        return self._ask_or_act(request, list(queryset), "cancel", request.get_full_path())

    @admin.action(description=_("Retry the failed jobs of selected batches"), permissions=["retry"])
    def retry_batches(self, request: HttpRequest, queryset: QuerySet[JobBatch]) -> HttpResponse | None:
        """Run the failed jobs of the selected batches again."""
        return self._ask_or_act(request, list(queryset), "retry", request.get_full_path())

    def get_urls(self) -> list[URLPattern]:
        """Add a URL for each button."""
        prefix = f"{self.opts.app_label}_{self.opts.model_name}"
        view = self.admin_site.admin_view(self.act_view)
        buttons = [
            path(f"<path:object_id>/{act}/", view, {"act": act}, name=f"{prefix}_{act}") for act in _LABELS
        ]
        return buttons + super().get_urls()

    def act_view(self, request: HttpRequest, object_id: str, act: str) -> HttpResponseBase:
        """Handle a button of the page of a batch."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        batch = self.get_object(request, unquote(object_id))
        if not (self.has_view_permission(request, batch) and self._may(request, act)):
            raise PermissionDenied
        if batch is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        back = self._url("change", quote(batch.pk))
        return self._ask_or_act(request, [batch], cast("Act", act), back) or HttpResponseRedirect(back)

    def batch_buttons(
        self, request: HttpRequest, batch: JobBatch, counts: BatchCounts
    ) -> list[dict[str, Any]]:
        """Return the buttons that this user may press on the page of a batch now."""
        fitting = {"cancel": not batch.is_over, "retry": counts.failed > 0}
        return [
            {"label": label, "url": self._url(act, quote(batch.pk))}
            for act, label in _LABELS.items()
            if fitting[act] and self._may(request, act)
        ]

    def _ask_or_act(
        self, request: HttpRequest, batches: Sequence[JobBatch], act: Act, back: str
    ) -> HttpResponse | None:
        """Show what would happen; if that was confirmed, do it."""
        if not is_confirmed(request):
            counts = counts_of(self.database, [batch.pk for batch in batches])
            effects = [_effect(batch, counts[batch.pk], act) for batch in batches]
            return ask(self, request, _TITLES[act], effects, batches, back=back)
        changed = {batch: self._act(batch, act) for batch in batches}
        # A cancel also closes a batch that has no live jobs.
        acted = [batch for batch, jobs in changed.items() if jobs or (act == "cancel" and not batch.is_over)]
        message = str(_("Action: %(action)s.") % {"action": _LABELS[act]})
        LogEntry.objects.log_actions(request.user.pk, acted, CHANGE, change_message=message)  # type: ignore[arg-type]
        number = sum(changed.values())
        words = {
            "cancel": ngettext(
                "%(count)s job was cancelled or asked to stop.",
                "%(count)s jobs were cancelled or asked to stop.",
                number,
            ),
            "retry": ngettext("%(count)s job runs again.", "%(count)s jobs run again.", number),
        }[act] % {"count": display.number(number)}
        self.message_user(request, words, messages.SUCCESS if number else messages.WARNING)
        return None

    def _act(self, batch: JobBatch, act: Act) -> int:
        """Return how many jobs have changed. A batch that was deleted in the meantime has none."""
        known = Batch.of(batch.pk, self.writes_to)
        try:
            return known.cancel() if act == "cancel" else known.retry_failed()
        except JobBatch.DoesNotExist:
            return 0

    def _may(self, request: HttpRequest, act: str) -> bool:
        """Return what the method for this permission says, which a project may have replaced."""
        return bool(getattr(self, f"has_{act}_permission")(request))

    def _url(self, page: str, *arguments: str) -> str:
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}"
        return reverse(name, args=arguments, current_app=self.admin_site.name)


def _effect(batch: JobBatch, counts: BatchCounts, act: Act) -> Effect:
    """Return what would happen to a batch."""
    if act == "cancel":
        if batch.is_over:
            return Effect(about(batch, _IS_OVER), acts=False)
        return Effect(about(batch, _IS_CANCELLED, jobs=_jobs(counts.live)))
    if not counts.failed:
        return Effect(about(batch, _NONE_FAILED), acts=False)
    return Effect(about(batch, _IS_RETRIED, jobs=_jobs(counts.failed)))


def _jobs(count: int) -> str:
    return ngettext("%(count)s job", "%(count)s jobs", count) % {"count": display.number(count)}
