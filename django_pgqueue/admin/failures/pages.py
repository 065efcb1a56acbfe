"""The pages of failures by group: the list, one group, and the buttons that mute a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import Http404, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...figures.failures import group, groups, parts
from ...figures.spans import DAY, SPANS
from ...lifecycle.failures import mute, unmute
from ...models import FailureGroup
from ...time_limit import TimeLimitReached
from ..base import DatabaseAdmin
from ..charts.chart import MEDIA
from ..charts.span_tabs import LABELS, SpanTab
from ..console import console_page
from ..lists.names import queue_names, task_paths
from .rows import detail, jobs_of, parts_rows, row

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse, HttpResponseBase
    from django.urls import URLPattern

    from ...figures.spans import Span

__all__ = ["MUTE", "FailurePages"]

M = TypeVar("M", bound=Model)

MUTE = "django_pgqueue.mute_failuregroup"
MOST = 100  # groups on the list
_TEMPLATES = "admin/django_pgqueue"
_PARTS = {
    "task": gettext_lazy("Tasks"),
    "queue": gettext_lazy("Queues"),
    "version": gettext_lazy("Versions"),
}


class FailurePages(DatabaseAdmin[M]):
    """Adds the pages to the admin of jobs. Users who may view jobs see them."""

    class Media:
        css = {"all": ["django_pgqueue/failures.css"]}

    def has_mute_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may mute and unmute groups of failures."""
        return request.user.has_perm(MUTE)

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the pages."""
        view, name = self.admin_site.admin_view, f"{self.opts.app_label}_{self.opts.model_name}"
        return [
            path("failures/", view(self.failures_view), name=f"{name}_failures"),
            path("failures/<path:fingerprint>/mute/", view(self.mute_view), name=f"{name}_failure_mute"),
            path("failures/<path:fingerprint>/", view(self.failure_view), name=f"{name}_failure"),
            *super().get_urls(),
        ]

    def failures_view(self, request: HttpRequest) -> HttpResponse:
        """The groups with the most failures of a span."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        span = _span(request)
        chosen = {name: _given(request, name) for name in ("queue", "task")}
        muted = _given(request, "muted") == "1"
        rows, is_slow = [], False
        try:
            found = groups(self.database, span, **chosen, muted=muted, most=MOST + 1)
            rows = [
                row(
                    each, self._failures_page("failure", quote(each.fingerprint)) + f"?span={span.name}", span
                )
                for each in found
            ]
        except TimeLimitReached:
            is_slow = True
        kept = {name: value for name, value in {**chosen, "muted": "1" if muted else ""}.items() if value}
        return console_page(
            self,
            request,
            f"{_TEMPLATES}/failures.html",
            _("Failures"),
            media=MEDIA,
            groups=rows[:MOST],
            more=len(rows) > MOST,
            is_slow=is_slow,
            spans=_spans(span, kept),
            span=span.name,
            source="?" + urlencode({"span": span.name, **kept}),
            muted=muted,
            queues=_choices(queue_names(self.database), chosen["queue"]),
            tasks=_choices(task_paths(self.database), chosen["task"]),
            queue=chosen["queue"],
            task=chosen["task"],
        )

    def failure_view(self, request: HttpRequest, fingerprint: str) -> HttpResponse:
        """One group: its sample, its failures over time, its tasks, queues and versions, and its jobs."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        span, alias = _span(request), self.database
        fingerprint = unquote(fingerprint).replace("\0", "")
        try:
            found = group(alias, fingerprint, span)
            if found is None:
                raise Http404(_("There is no such group of failures. It may have been forgotten."))
            by = parts(alias, fingerprint, span)
            jobs = jobs_of(alias, fingerprint)
        except TimeLimitReached:
            return self._failures_were_slow(request)
        context = {
            **detail(found, span),
            "parts": [(_PARTS[kind], rows) for kind, some in by.items() if (rows := parts_rows(some))],
            "jobs": jobs,
            "spans": _spans(span, {}),
            "jobs_url": self._failures_page("changelist"),
            "query": urlencode({"q": f"fingerprint:{fingerprint}"}),
            "sample_url": self._sample_url(found.sample_job),
            "mute_url": self._failures_page("failure_mute", quote(fingerprint))
            if self.has_mute_permission(request)
            else "",
            "may_retry": self._may_act(request, "retry"),
            "may_cancel": self._may_act(request, "cancel"),
            "list_url": self._failures_page("failures"),
        }
        title = found.name or _("Failure without an error")
        return console_page(self, request, f"{_TEMPLATES}/failure.html", title, media=MEDIA, **context)

    def mute_view(self, request: HttpRequest, fingerprint: str) -> HttpResponseBase:
        """Mute a group or unmute it, and redirect to its page."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not (self.has_view_permission(request) and self.has_mute_permission(request)):
            raise PermissionDenied
        found = FailureGroup.objects.using(self.writes_to).filter(pk=unquote(fingerprint).replace("\0", ""))
        known = found.defer("traceback").first()
        if known is None:
            raise Http404(_("There is no such group of failures. It may have been forgotten."))
        if request.POST.get("action") == "unmute":
            changed = unmute(self.writes_to, [known.pk])
            words = _("The group is no longer muted.")
        else:
            changed = mute(self.writes_to, [known.pk], request.user.get_username())
            words = _("The group is muted until it changes.")
        if changed:
            LogEntry.objects.log_actions(request.user.pk, [known], CHANGE, change_message=words)  # type: ignore[arg-type]
            self.message_user(request, words, messages.SUCCESS)
        else:
            self.message_user(request, _("Nothing changed: somebody else was first."), messages.WARNING)
        return HttpResponseRedirect(self._failures_page("failure", quote(known.pk)))

    def _failures_were_slow(self, request: HttpRequest) -> HttpResponse:
        """Return the page of a group that could not be read in time."""
        title = _("Failures")
        return console_page(self, request, f"{_TEMPLATES}/failures.html", title, is_slow=True, spans=[])

    def _may_act(self, request: HttpRequest, what: str) -> bool:
        """Return what the method for this permission says, which a project may have replaced."""
        return bool(getattr(self, f"has_{what}_permission")(request))

    def _sample_url(self, job: int) -> str:
        """Return the URL of the newest job; empty if it is no longer kept."""
        rows = self.model._default_manager.using(self.database).filter(pk=job)
        return self._failures_page("change", job) if rows.exists() else ""

    def _failures_page(self, page: str, *arguments: Any) -> str:
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}"
        return reverse(name, args=arguments, current_app=self.admin_site.name)


def _span(request: HttpRequest) -> Span:
    return SPANS.get(_given(request, "span"), DAY)


def _spans(current: Span, kept: dict[str, str]) -> list[SpanTab]:
    """Return the links to the other spans."""
    return [
        SpanTab(str(LABELS[name]), "?" + urlencode({"span": name, **kept}), name == current.name)
        for name in SPANS
    ]


def _given(request: HttpRequest, name: str) -> str:
    value: str = request.GET.get(name, "")
    return "" if "\0" in value else value


def _choices(names: list[str], chosen: str) -> list[str]:
    names = names[:200]
    return names if not chosen or chosen in names else [chosen, *names]
