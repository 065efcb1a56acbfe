"""The documents in the admin. They can be viewed and indexed again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from django_pgqueue import enqueue_many

from .models import Document
from .tasks import index_document

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Document]
else:
    ModelAdmin = admin.ModelAdmin  # only the class in the stubs takes a parameter


@admin.register(Document)
class DocumentAdmin(ModelAdmin):
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
        """Enqueue a job for each document, in the transaction that marks them as waiting."""
        with transaction.atomic():
            ids = list(queryset.values_list("pk", flat=True))
            Document.objects.filter(pk__in=ids).update(
                state=Document.State.WAITING, cause="", reason="", digest=""
            )
            enqueue_many(index_document.bind(pk) for pk in ids)
        self.message_user(request, f"{len(ids)} jobs enqueued.")
