"""The documents, runs and exports in the admin. Documents can be viewed and indexed again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from django_pgqueue.admin import PayloadAdmin

from .models import Document, Export, Run
from .progress import progress_of
from .runs import new_run

if TYPE_CHECKING:
    DocumentBase = admin.ModelAdmin[Document]
    ExportBase = admin.ModelAdmin[Export]
    RunBase = admin.ModelAdmin[Run]
else:
    DocumentBase = ExportBase = RunBase = admin.ModelAdmin  # only the class in the stubs takes a parameter


@admin.register(Document)
class DocumentAdmin(DocumentBase):
    list_display = ["path", "title", "state", "cause", "size", "indexed_at"]
    list_filter = ["state", "cause"]
    search_fields = ["path", "title"]
    fields = ("path", "title", "state", "cause", "reason", "size", "indexed_at", "text")
    readonly_fields = fields
    actions = ["index_again"]
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Document]:
        return super().get_queryset(request).defer("text", "vector")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # `index_folder` adds the documents

    @admin.action(description="Index again", permissions=["change"])
    def index_again(self, request: HttpRequest, queryset: QuerySet[Document]) -> None:
        """Start a run with these documents, in the transaction that marks them as waiting."""
        documents = list(queryset.values_list("pk", "size"))
        with new_run(len(documents)) as begun:
            Document.objects.filter(pk__in=[pk for pk, _ in documents]).update(
                state=Document.State.WAITING, cause="", reason="", digest="", run=begun.run
            )
            begun.add(documents)
        self.message_user(request, f"{len(documents)} jobs enqueued.")


@admin.register(Run)
class RunAdmin(RunBase):
    list_display = ["__str__", "started_at", "files", "progress", "batch"]
    fields = ("started_at", "files", "progress", "batch", "summary")
    readonly_fields = fields

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # `index_folder` starts a run

    @admin.display(description="progress")
    def progress(self, run: Run) -> str:
        """Return how many of its jobs have finished."""
        return str(progress_of(run) or "its jobs are no longer kept")

    @admin.display(description="batch")
    def batch(self, run: Run) -> str:
        """Return a link to its batch, where the failed jobs can be retried."""
        address = reverse("admin:django_pgqueue_jobbatch_change", args=[run.batch_id])
        return format_html('<a href="{}">{}</a>', address, run.batch_id)


@admin.register(Export)
class ExportAdmin(PayloadAdmin, ExportBase):
    list_display = ["query", "created_at", "documents", "job_status", "job_link"]
    fields = ["query"]
    readonly_fields = ["created_at", "documents"]

    def has_change_permission(self, request: HttpRequest, obj: Export | None = None) -> bool:
        return False  # its file would not change
