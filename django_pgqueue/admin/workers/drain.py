"""The buttons and the action that ask workers to finish their jobs and end, after a confirmation."""

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

from ...lifecycle.drain import drain
from ...models import Worker
from ...vitals import Vital, busy_text, vital, with_vitals
from ..ask import Effect, about, ask, is_confirmed
from ..base import ReadOnlyAdmin

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse, HttpResponseBase
    from django.urls import URLPattern

    How = Literal["replace", "stop"]

__all__ = ["WorkerActions"]

_LABELS = {
    "replace": _("Replace this process"),
    "stop": _("Stop this worker (all processes)"),
}
_TITLES = {"replace": _("Replace processes"), "stop": _("Stop a worker")}
_ENDS = _("{name} would start no more jobs, finish those that run ({jobs}) within its grace period, and end.")
_IS_REPLACED = _(
    "{name} would start no more jobs, finish those that run ({jobs}) within its grace period, and be "
    "replaced."
)
_IS_ENDING = _("{name} already finishes its jobs and ends.")
_IS_DEAD = _("{name} is dead, and would not see it.")
_NOBODY = _("No worker would be left that starts jobs.")


class WorkerActions(ReadOnlyAdmin[Worker]):
    """The part of ``WorkerAdmin`` with the actions."""

    actions = ("replace_workers",)

    def has_drain_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may stop and replace workers."""
        return request.user.has_perm(f"{self.opts.app_label}.drain_{self.opts.model_name}")

    @admin.action(description=_("Replace selected processes"), permissions=["drain"])
    def replace_workers(self, request: HttpRequest, queryset: QuerySet[Worker]) -> HttpResponse | None:
        """Ask the selected processes to finish their jobs and end. Their supervisors replace them."""
        workers = list(queryset)
        if not is_confirmed(request):
            return self._ask(request, workers, "replace", request.get_full_path())
        self._drain(request, [worker for worker in workers if _can_be_replaced(worker)], "replace")
        return None

    def get_urls(self) -> list[URLPattern]:
        """Add a URL for each button."""
        prefix = f"{self.opts.app_label}_{self.opts.model_name}"
        view = self.admin_site.admin_view(self.drain_view)
        buttons = [
            path(f"<path:object_id>/{how}/", view, {"how": how}, name=f"{prefix}_{how}") for how in _LABELS
        ]
        return buttons + super().get_urls()

    def drain_view(self, request: HttpRequest, object_id: str, how: str) -> HttpResponseBase:
        """Handle a button of the page of a worker."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        worker = self.get_object(request, unquote(object_id))
        if not (self.has_view_permission(request, worker) and self.has_drain_permission(request)):
            raise PermissionDenied
        if worker is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        if not is_confirmed(request):
            return self._ask(request, [worker], cast("How", how), self._url("change", quote(worker.pk)))
        self._drain(request, [worker], cast("How", how))
        return HttpResponseRedirect(self._url("changelist"))

    def drain_buttons(self, request: HttpRequest, worker: Any) -> list[dict[str, Any]]:
        """Return the buttons that this user may press on the page of a worker now."""
        if not self.has_drain_permission(request) or vital(worker) == Vital.DEAD or worker.drain == "stop":
            return []
        # Nobody replaces a worker in another language, which has no supervisor.
        is_alone = worker.supervisor is None
        hows = ["stop"] if worker.drain or is_alone or vital(worker) == Vital.DRAINING else list(_LABELS)
        return [{"label": _LABELS[how], "url": self._url(how, quote(worker.pk))} for how in hows]

    def _ask(self, request: HttpRequest, workers: list[Worker], how: How, back: str) -> HttpResponse:
        """Show what would happen, to all processes of the worker that would end."""
        known = list(with_vitals(Worker.objects.using(self.database)).order_by("host", "pid", "pk"))
        given = {worker.pk for worker in workers}
        ending = [worker for worker in known if worker.pk in given]
        if how == "stop":
            together = {worker.supervisor for worker in ending} - {None}
            ending = [worker for worker in known if worker.pk in given or worker.supervisor in together]
        effects = [_effect(worker, how) for worker in ending]
        gone = {worker.pk for worker in ending if how == "stop" or worker.supervisor is None}
        is_last = not any(vital(worker) == Vital.RUNNING for worker in known if worker.pk not in gone)
        warning = _NOBODY if gone and is_last else ""
        return ask(self, request, _TITLES[how], effects, workers, back=back, warning=warning)

    def _drain(self, request: HttpRequest, workers: list[Worker], how: How) -> None:
        asked = [worker for worker in workers if drain(worker.pk, how, using=self.writes_to)]
        message = str(_("Action: %(action)s.") % {"action": _LABELS[how]})
        LogEntry.objects.log_actions(request.user.pk, asked, CHANGE, change_message=message)  # type: ignore[arg-type]
        words = ngettext(
            "%(count)d process was asked to finish its jobs and end.",
            "%(count)d processes were asked to finish their jobs and end.",
            len(asked),
        ) % {"count": len(asked)}
        if not asked:
            words = str(_("Nothing has changed: the worker has ended in the meantime."))
        elif how == "stop":
            words = str(_("The worker was asked to finish its jobs and end, with all its processes."))
        self.message_user(request, words, messages.SUCCESS if asked else messages.WARNING)

    def _url(self, page: str, *arguments: str) -> str:
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}"
        return reverse(name, args=arguments, current_app=self.admin_site.name)


def _can_be_replaced(worker: Any) -> bool:
    return not worker.drain and vital(worker) in {Vital.RUNNING, Vital.SILENT}


def _effect(worker: Any, how: How) -> Effect:
    """Return what would happen to a process."""
    if vital(worker) == Vital.DEAD:
        return Effect(about(worker, _IS_DEAD), acts=False)
    if not (how == "stop" or _can_be_replaced(worker)):
        return Effect(about(worker, _IS_ENDING), acts=False)
    words = _ENDS if how == "stop" or worker.supervisor is None else _IS_REPLACED
    return Effect(about(worker, words, jobs=busy_text(worker)))
