"""Batches: a list with their numbers as bars, and a page with their failed jobs and what waits for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from django.contrib import messages
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _, ngettext, pgettext_lazy

from .. import formatting
from ..encoding import whole_number
from ..jobs.batches import Batch
from ..models import Job, JobBatch
from ..models.batch import counts_of
from ..models.job import Status
from . import display
from .ask import RowAction, RowActions, RowEffect, about, action_words, held, is_confirmed, listed
from .console import is_restricted, page_url, visible_jobs, with_query
from .display import batch_bar, batch_name, batch_state, column
from .job_page.formatter import Section
from .job_page.page import children_of, shown_jobs
from .jobs.filters import PAUSE, SpanFilter, on_shelves
from .lists import ConditionFilter, KeysetChangeList
from .workflow import WorkflowPages

MOST_FAILED = 20  # on the page of a batch


_STATES: dict[str, tuple[Any, Q]] = {
    "open": (pgettext_lazy("batch", "open"), Q(finished_at__isnull=True, is_open=True)),
    "running": (pgettext_lazy("batch", "running"), Q(finished_at__isnull=True, is_open=False)),
    **{
        outcome: (label, Q(finished_at__isnull=False, outcome=outcome))
        for outcome, label in JobBatch.Outcome.choices
    },
}


class BatchAdmin(WorkflowPages[JobBatch], RowActions[JobBatch]):
    """Shows batches, and can cancel them and retry their failed jobs, with the same permissions on jobs."""

    change_list = KeysetChangeList
    reading_pages = frozenset({"changelist"})
    purpose = _(
        "There are no batches yet. A batch counts jobs that belong together, and others can run "
        'when all of them have ended. Your code makes one: with Batch("import") as batch: '
        "batch.add(calls)"
    )
    list_display = ("id", "named", "state_now", "numbers", "created", "age")
    list_display_links = ("id", "named")
    actions = ("cancel_batches", "retry_batches")
    list_filter = (
        ConditionFilter.of(_("state"), "state", _STATES),
        SpanFilter.of(_("created"), "created_at"),
        SpanFilter.of(_("finished"), "finished_at"),
    )
    search_fields = ("id", "name")
    sortable_by = ()
    fieldsets = ((None, {"fields": (("state_now", "age"), "numbers", ("created", "over"))}),)

    def get_queryset(self, request: HttpRequest) -> QuerySet[JobBatch]:
        """Return the batches with the time of the database."""
        return super().get_queryset(request).annotate(now=Now())

    def rows_for_list(self, batches: Iterable[JobBatch]) -> list[Any]:
        """Read the batches of a page with their numbers."""
        rows: list[Any] = list(batches)
        counts = counts_of(self.database, [row.pk for row in rows])
        for row in rows:
            row.counts = counts[row.pk]
        return rows

    def searched_rows(self, changelist: KeysetChangeList) -> QuerySet[JobBatch] | None:
        """Return the rows that filters read one by one. Unfinished ones have an index."""
        chosen = changelist.get_filters_params()
        is_over = chosen.get("state", [""])[-1] in JobBatch.Outcome.values
        if changelist.query or is_over or chosen.keys() & {"created", "finished"}:
            rows: QuerySet[JobBatch] = changelist.root_queryset
            return rows
        return None

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[JobBatch], search_term: str
    ) -> tuple[QuerySet[JobBatch], bool]:
        """Search by id, or by a part of the name."""
        term = search_term.strip()
        if (number := whole_number(term)) is not None:
            return queryset.filter(pk=number) | queryset.filter(name__icontains=term), False
        return (queryset.filter(name__icontains=term) if term else queryset), False

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> JobBatch | None:
        """Return the batch with its numbers."""
        batch: Any = super().get_object(request, object_id, from_field)
        return batch and self.rows_for_list([batch])[0]  # type: ignore[no-any-return]

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """Add the buttons; and for users who may view jobs, its jobs and the jobs that wait for it."""
        context = super().page_context(request, obj)
        context["pgqueue_heading"] = batch_name(obj)
        context["pgqueue_pause"] = 0 if obj.is_finished else PAUSE
        if not self._has_hidden(request, obj):
            fitting = {"cancel": not obj.is_finished, "retry": obj.counts.failed}
            names = [name for name, fits in fitting.items() if fits]
            context["pgqueue_buttons"] = self.buttons(request, obj, names)
        if jobs := page_url(self.admin_site, request, Job, "changelist"):
            context["pgqueue_members"] = _member_links(obj, jobs)
            context["pgqueue_tables"] = self._tables(request, obj)
        return context

    def _tables(self, request: HttpRequest, batch: Any) -> list[Section]:
        tables, jobs = [], visible_jobs(self.admin_site, request, self.database)
        if batch.counts.failed:  # a batch may have a million jobs in the other shelves
            failed = on_shelves(Status.FAILED, jobs)
            failed = failed.filter(batch_id=batch.pk, status=Status.FAILED).order_by("pk")
            tables.append(shown_jobs(self.admin_site, request, _("Failed jobs"), failed, MOST_FAILED))
        children = children_of(batch.pk, jobs)
        tables.append(shown_jobs(self.admin_site, request, _("Jobs that run after this batch"), children))
        return tables

    named = column(_("name"), batch_name)
    state_now = column(_("state"), batch_state)
    numbers = column(_("jobs"), lambda batch: batch_bar(batch.counts))
    created = column(_("created"), lambda batch: display.time(batch.created_at))
    age = column(
        _("lasts"), lambda batch: formatting.period((batch.finished_at or batch.now) - batch.created_at)
    )
    over = column(_("finished"), lambda batch: display.time(batch.finished_at))

    row_actions: ClassVar = {
        "cancel": RowAction("cancel", _("Cancel batch"), _("Cancel batches")),
        "retry": RowAction("retry", _("Retry failed jobs"), _("Retry the failed jobs of batches")),
    }
    cancel_batches = listed("cancel", _("Cancel selected batches"))
    retry_batches = listed("retry", _("Retry the failed jobs of selected batches"))

    has_cancel_permission = held("cancel", of_jobs=True)
    has_retry_permission = held("retry", of_jobs=True)

    def ask_or_act(self, request: HttpRequest, name: str, rows: QuerySet[JobBatch]) -> HttpResponse | None:
        """Show what would happen; if that was confirmed, do it. Batches with hidden jobs are left alone."""
        batches, action = list(rows), self.row_actions[name]
        refused = [batch for batch in batches if self._has_hidden(request, batch)]
        if refused:
            refusal = _("You may not see all jobs of %(batches)s, so you may not do this.")
            names = {"batches": ", ".join(map(str, refused))}
            self.message_user(request, refusal % names, messages.ERROR)
            batches = [batch for batch in batches if batch not in refused]
        if not batches:
            return None
        if not is_confirmed(request):
            effects = [_effect(batch, name) for batch in self.rows_for_list(batches)]
            return self.ask(request, action.title, effects, batches)
        changed = {batch: self._act(batch, name) for batch in batches}
        # A cancel also closes a batch that has no live jobs.
        acted = [
            batch for batch, jobs in changed.items() if jobs or (name == "cancel" and not batch.is_finished)
        ]
        number = sum(changed.values())
        words = ngettext("%(count)s job runs again.", "%(count)s jobs run again.", number)
        if name == "cancel":
            words = ngettext(
                "%(count)s job was cancelled or asked to stop.",
                "%(count)s jobs were cancelled or asked to stop.",
                number,
            )
        words %= {"count": formatting.number(number)}
        self.note_and_tell(request, acted, action_words(action.label), words)
        return None

    def _has_hidden(self, request: HttpRequest, batch: JobBatch) -> bool:
        """Return whether the batch has jobs that this user may not see.

        Race: a hidden job that joins the batch afterwards is cancelled with it. It has asked for that.
        """
        if not is_restricted(self.admin_site, request):
            return False
        members = Job.objects.using(self.writes_to).filter(batch_id=batch.pk)
        seen = visible_jobs(self.admin_site, request, self.writes_to).filter(batch_id=batch.pk)
        return members.count() > seen.values("pk").distinct().count()

    def _act(self, batch: JobBatch, name: str) -> int:
        """Return how many jobs have changed. A batch that was deleted in the meantime has none."""
        known = Batch.of(batch.pk, self.writes_to)
        try:
            return known.cancel() if name == "cancel" else known.retry_failed()
        except JobBatch.DoesNotExist:
            return 0


def _effect(batch: Any, name: str) -> RowEffect:
    """Return what would happen to a batch."""
    if name == "cancel" and batch.is_finished:
        return about(batch, _("{name} has finished."), acts=False)
    if name == "cancel":
        text = _(
            "{name} would be closed, and {jobs} would be cancelled; running ones would be asked to stop."
        )
        return about(batch, text, jobs=_jobs(batch.counts.live))
    if not batch.counts.failed:
        return about(batch, _("{name} has no failed jobs."), acts=False)
    return about(batch, _("{name} would go on: {jobs} would run again."), jobs=_jobs(batch.counts.failed))


def _jobs(count: int) -> str:
    return ngettext("%(count)s job", "%(count)s jobs", count) % {"count": formatting.number(count)}


def _member_links(batch: Any, jobs: str) -> list[dict[str, Any]]:
    """Return links to the lists of its jobs, by what has become of them."""
    ended = (Status.DONE, Status.FAILED, Status.CANCELLED)
    counts = ((each.value, each.label, getattr(batch.counts, each.value)) for each in ended)
    query = f"batch:{batch.pk}"
    return [
        {"label": label, "count": formatting.number(count), "url": with_query(jobs, q=query, status=status)}
        for status, label, count in [("", _("All jobs"), batch.counts.added), *counts]
        if count
    ]
