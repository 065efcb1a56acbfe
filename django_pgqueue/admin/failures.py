"""Failures by group: the list, the page of a group, and the block of the overview."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _, gettext_lazy, ngettext, pgettext
from django.views.decorators.http import require_POST

from .. import formatting
from ..models import FailureGroup, Job, Queue
from ..models.job import Status
from ..monitoring.depth import capped
from ..monitoring.failures import GroupFigures, Part, group, groups, mute, parts
from ..monitoring.health import PATIENCE
from ..monitoring.spans import DAY, SPAN_TIMEOUT, SPANS, TimeSpan
from ..postgres.timeout import TimeLimitReached, time_limit, within
from . import display
from .base import DatabaseAdmin
from .charts import MEDIA, Chart, chosen_span, numbers, span_filter, sparkline
from .console import console_page, hides, of_row, page_url, task_url, with_query
from .display import breakable, linked
from .jobs.filters import KEPT_SHELF, LIVE_SHELF
from .limits import pause_button
from .lists import NamesInUse, links, names_filter
from .shards import added_up, by_name, is_of_all, over_shards, said_without, shard_links, union

MOST_GROUPS = 100  # groups on the list
_TEMPLATES = "admin/django_pgqueue"
_PARTS = {
    "task": gettext_lazy("Tasks"),
    "queue": gettext_lazy("Queues"),
    "version": gettext_lazy("Versions"),
}


class FailurePages(DatabaseAdmin[Job]):
    """Adds the pages to the admin of jobs. Users who may view jobs see them."""

    class Media:
        css = {"all": ["django_pgqueue/failures.css"]}

    def has_view_failures_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may see failures by group. Their counts and texts are of all jobs, so not
        if ``get_queryset()`` hides some.
        """
        return self.has_view_permission(request) and not hides(self.get_queryset(request))

    def has_mute_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may mute and unmute groups of failures."""
        return request.user.has_perm("django_pgqueue.mute_failuregroup")

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the pages."""
        return [
            self.subpage("failures/", self.failures_view, "failures"),
            self.subpage("failures/<path:fingerprint>/mute/", self.mute_view, "failure_mute"),
            self.subpage("failures/<path:fingerprint>/", self.failure_view, "failure"),
            *super().get_urls(),
        ]

    def failures_view(self, request: HttpRequest) -> HttpResponse:
        """The groups with the most failures of a span."""
        self._check_failures(request)
        chosen = {name: request.GET.get(name, "") for name in ("queue", "task")}
        muted, is_all = request.GET.get("muted") == "1", is_of_all(request)

        def read(alias: str) -> Any:
            span, found = chosen_span(request, alias, SPANS, DAY), None  # None: not in time
            try:
                found = groups(alias, span, **chosen, muted=muted, most=MOST_GROUPS + 1)
            except TimeLimitReached:
                if is_all:  # like a shard that does not answer
                    raise
            names = NamesInUse(alias)
            return SimpleNamespace(span=span, groups=found, queues=names.queues, tasks=names.tasks)

        answers = over_shards(self, read)
        given = answers.given
        parts = by_name(
            {alias: {one.fingerprint: one for one in each.groups or ()} for alias, each in given.items()}
        )
        every = sorted(
            ((_added_up([*rows.values()]), rows) for rows in parts.values()),
            key=lambda pair: -pair[0].attempts,
        )
        span = next((each.span.name for each in given.values()), "")
        return console_page(
            self,
            request,
            f"{_TEMPLATES}/failures.html",
            _("Failures"),
            media=MEDIA,
            groups=[
                row(self, each, span) | {"shards": self._shards_of(request, each, rows, answers.failed)}
                for each, rows in every[:MOST_GROUPS]
            ],
            more=any(len(each.groups or ()) > MOST_GROUPS for each in given.values()),
            unanswered=said_without(answers),
            is_slow=any(each.groups is None for each in given.values()),
            muted=muted,
            filters=[
                {
                    "title": _("state"),
                    "choices": links(request, "muted", {"": _("not muted"), "1": _("muted")}),
                },
                names_filter(request, _("queue"), "queue", union(each.queues for each in given.values())),
                names_filter(request, _("task"), "task", union(each.tasks for each in given.values())),
                span_filter(request, SPANS, DAY),
            ],
        )

    def _shards_of(
        self, request: HttpRequest, group: GroupFigures, aliases: Iterable[str], without: Collection[str]
    ) -> Any:
        """Return links to the page of a group on each of its shards, if the page is about all."""
        address = partial(self.address, "failure", group.fingerprint)
        return shard_links(aliases, address, without) if is_of_all(request) else ""

    def failure_view(self, request: HttpRequest, fingerprint: str) -> HttpResponse:
        """One group: its sample, its failures over time, its tasks, queues and versions, and its jobs."""
        self._check_failures(request)
        fingerprint, is_all = unquote(fingerprint), is_of_all(request)

        def read(alias: str) -> Any:
            there = SimpleNamespace(span=chosen_span(request, alias, SPANS, DAY))
            there.group = group(alias, fingerprint, there.span)
            if there.group is None:
                return None
            sample = self.model._default_manager.using(alias).filter(pk=there.group.sample_job)
            there.is_kept, there.jobs = sample.exists(), jobs_of(alias, fingerprint)
            there.parts = parts(alias, fingerprint, there.span)
            return there

        try:
            answers = over_shards(self, read)
        except TimeLimitReached:
            title = _("Failures")
            return console_page(self, request, f"{_TEMPLATES}/failures.html", title, is_slow=True)
        known = {alias: each for alias, each in answers.given.items() if each is not None}
        unanswered = said_without(answers)
        if not known:  # its jobs may still be there
            text = unanswered or _("There is no such group of failures. It may have been forgotten.")
            self.message_user(request, text, messages.WARNING)
            query = urlencode({"q": f"fingerprint:{fingerprint}"})
            return HttpResponseRedirect(f"{self.address('changelist')}?{query}")
        found = _added_up([each.group for each in known.values()])
        newest = max(known, key=lambda alias: known[alias].group.last_seen)
        span, jobs = known[newest].span, jobs_in_words(each.jobs for each in known.values())
        short = application_part(found.traceback)
        mute_url = self.address("failure_mute", fingerprint) if self.has_mute_permission(request) else ""
        with of_row(newest if is_all else ""):
            sample_url = self.address("change", found.sample_job)
        tables = [
            (heading, self._part_rows(request, kind, [each.parts[kind] for each in known.values()]))
            for kind, heading in _PARTS.items()
        ]
        return console_page(
            self,
            request,
            f"{_TEMPLATES}/failure.html",
            found.name or _("Failure without an error"),
            media=MEDIA,
            **row(self, found),
            chart=_chart(found),
            trace=short or found.traceback,
            full_trace=found.traceback if short else "",
            parts=[(heading, rows) for heading, rows in tables if rows],
            jobs=jobs,
            times=span_filter(request, SPANS, DAY),
            span=span.name,
            jobs_url=self.address("changelist"),
            query=urlencode({"q": f"fingerprint:{fingerprint}"}),
            sample_url=sample_url if known[newest].is_kept else "",
            shards=self._shards_of(request, found, known, answers.failed),
            unanswered=unanswered,
            mute_url=mute_url,
            may_retry=self.may(request, "retry"),
            may_cancel=self.may(request, "cancel"),
        )

    @method_decorator(require_POST)
    def mute_view(self, request: HttpRequest, fingerprint: str) -> HttpResponseBase:
        """Mute a group or unmute it, and redirect to its page."""
        self._check_failures(request)
        if not self.has_mute_permission(request):
            raise PermissionDenied
        fingerprint, unmutes = unquote(fingerprint), request.POST.get("action") == "unmute"
        author = None if unmutes else request.user.get_username()

        def change(alias: str) -> tuple[FailureGroup | None, bool]:
            known = FailureGroup.objects.using(alias).defer("traceback").filter(pk=fingerprint).first()
            return known, known is not None and mute(alias, known.pk, author)

        answers = over_shards(self, change, keep=True)
        if not answers.failed and all(known is None for known, _changed in answers.given.values()):
            raise Http404(_("There is no such group of failures. It may have been forgotten."))
        changed = [known for known, changed in answers.given.values() if changed]
        words = _("The group is no longer muted.") if unmutes else _("The group is muted until it changes.")
        text = words if changed else _("Nothing changed: another user was first.")
        self.note_and_tell(request, changed, words, " ".join(filter(None, [text, str(answers)])))
        return HttpResponseRedirect(self.address("failure", fingerprint))

    def _part_rows(self, request: HttpRequest, kind: str, parts: list[list[Part]]) -> list[tuple[Any, ...]]:
        """Return the tasks, queues or versions of a group. Their pages and pauses are of one shard."""
        sums: dict[str, Counter[str]] = defaultdict(Counter)
        for part in chain.from_iterable(parts):
            if part.name:
                sums[part.name].update(failed=part.failed, retried=part.retried)
        has_page, rows = kind != "version" and not is_of_all(request), []
        url = partial(page_url, self.admin_site, request)
        for name, counts in sorted(sums.items(), key=lambda each: -each[1].total()):
            page = task_url(self.admin_site, request, name) if has_page and kind == "task" else ""
            if has_page and kind == "queue":
                page = url(Queue, "change", name)
            failed, retried = (formatting.number(counts[each]) for each in ("failed", "retried"))
            pause = pause_button(url, kind, name) if has_page else ""
            rows.append((linked(page, breakable(name)), failed, retried, pause))
        return rows

    def _check_failures(self, request: HttpRequest) -> None:
        if not self.has_view_failures_permission(request):
            raise PermissionDenied(_("Failures by group are of all jobs, and you may see only some of them."))


MOST_IN_BLOCK = 5


def failure_block(admin: Any, span: TimeSpan = DAY, task: str = "") -> dict[str, Any]:
    """Return ``failures`` of ``failures_block.html``, of one task or all. ``admin``: the admin of jobs."""
    read = partial(groups, admin.database, span, task=task, most=MOST_IN_BLOCK)
    found = within(admin.database, PATIENCE, read)
    rows = [row(admin, each) for each in found or []]
    return {"url": admin.address("failures"), "is_slow": found is None, "groups": rows}


MOST_JOBS = 10_000
_SHOWN = 3  # tasks and versions of a group on the list


def jobs_of(alias: str, fingerprint: str) -> tuple[int, int]:
    """Count the jobs of a group that have failed, and that are live, up to ``MOST_JOBS``. Each count reads an
    index of these jobs. Raises ``TimeLimitReached``.
    """
    jobs = Job.objects.using(alias).filter(error_fingerprint=fingerprint).exclude(error_fingerprint="")
    with time_limit(alias, SPAN_TIMEOUT):
        failed = jobs.filter(shelf=KEPT_SHELF, status=Status.FAILED)[: MOST_JOBS + 1].count()
        live = jobs.filter(shelf=LIVE_SHELF)[: MOST_JOBS + 1].count()
    return failed, live


def jobs_in_words(counts: Iterable[tuple[int, int]]) -> dict[str, str]:
    """Return the sums in words, which are empty if there are no jobs."""
    failed, live = map(sum, zip(*counts, strict=True))
    failed_words = ngettext("%(number)s job has failed", "%(number)s jobs have failed", failed)
    live_words = ngettext(
        "%(number)s job waits for another attempt or runs",
        "%(number)s jobs wait for another attempt or run",
        live,
    )
    return {
        "failed": failed_words % {"number": capped(failed, MOST_JOBS)} if failed else "",
        "live": live_words % {"number": capped(live, MOST_JOBS)} if live else "",
    }


def _added_up(rows: Sequence[GroupFigures]) -> GroupFigures:
    """Return the group of several shards, with what the newest failure says."""
    rows = sorted(rows, key=lambda row: row.last_seen, reverse=True)
    added = added_up(rows, most={"last_seen"}, least={"first_seen"})
    return replace(added, sample_job=rows[0].sample_job)


def row(admin: DatabaseAdmin[Any], group: GroupFigures, span: str = "") -> dict[str, Any]:
    """Return what the list shows of a group, and its page."""
    muted = ""
    if group.muted_at is not None:
        text = _("muted by %(author)s at %(time)s") if group.muted_by else _("muted at %(time)s")
        muted = display.filled(text, time=display.time(group.muted_at), author=group.muted_by)
    return {
        "url": with_query(admin.address("failure", group.fingerprint), span=span),
        "group": group,
        "kind": breakable(group.error_class) or _("without an error"),
        "muted": muted,
        "spark": sparkline([point.attempts for point in group.points], "alarm"),
        "tasks": _few(group.tasks),
        "versions": _few(group.versions),
    }


def _chart(group: GroupFigures) -> Chart:
    points = group.points
    series = [
        numbers(pgettext("number of jobs", "failed"), [point.failed for point in points], "alarm"),
        numbers(pgettext("number of jobs", "retried"), [point.retried for point in points], "quiet"),
    ]
    starts = [point.start for point in points]
    return Chart("pgqueue-failures", _("Failed attempts"), starts, series, kind="bars")


def _few(names: Sequence[str]) -> dict[str, Any]:
    left = len(names) - _SHOWN
    more = ngettext("and %(count)d more", "and %(count)d more", left) % {"count": left} if left > 0 else ""
    return {"names": [breakable(name) for name in names[:_SHOWN]], "more": more}


_LIBRARIES = r"/site-packages/|/dist-packages/|/lib/python|<frozen |\\site-packages\\|\\Lib\\"
#: A frame with its lines of code. In an exception group, each line begins with a bar.
_FRAME = r'^(?P<prefix>[ |]*?)  File "[^"\n]*{}[^"\n]*", line \d+.*\n?(?:(?P=prefix)    .*\n?)*'
_LIBRARY_FRAME = re.compile(_FRAME.format(f"(?:{_LIBRARIES})"), re.MULTILINE)
_ANY_FRAME = re.compile(_FRAME.format(""), re.MULTILINE)


def application_part(traceback: str) -> str:
    """Return the frames of a traceback that lie in the code of the project, without frames of libraries;
    empty if there are none, or no others.
    """
    own, left_out = _LIBRARY_FRAME.subn("", traceback)
    return own if left_out and _ANY_FRAME.search(own) else ""
