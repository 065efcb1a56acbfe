"""The search page, the small page inside it that shows the progress of the indexing, and exports."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_POST, require_safe

from .forms import SearchForm
from .models import Export
from .progress import progress
from .queries import search


@require_safe
def search_page(request: HttpRequest) -> HttpResponse:
    """Handle `/?q=words&page=2`. The search covers the documents that are indexed so far."""
    form = SearchForm(request.GET)
    answers = None
    if form.is_valid() and form.cleaned_data["q"]:
        answers = search(form.cleaned_data["q"], _page_number(request))
    return render(
        request,
        "search/page.html",
        {"form": form, "query": form.data.get("q", "").replace("\0", ""), "answers": answers},
    )


@require_safe
@never_cache
@xframe_options_sameorigin
def progress_page(request: HttpRequest) -> HttpResponse:
    """Show the progress in a separate frame that reloads itself, so that the rest of the page does not
    change.
    """
    return render(request, "search/progress.html", {"progress": progress()})


@require_POST
def new_export(request: HttpRequest) -> HttpResponse:
    """Create an export of a search: its row is the job that writes it."""
    form = SearchForm(request.POST)
    if not form.is_valid() or not form.cleaned_data["q"]:
        return redirect("search:page")
    export = Export.objects.create(query=form.cleaned_data["q"])
    return redirect("search:export", export.pk)


@require_safe
@never_cache
def export_page(request: HttpRequest, job: int) -> HttpResponse:
    """Show what has become of an export. While its job is live, the page reloads itself."""
    export = get_object_or_404(Export.objects.select_related("job"), pk=job)
    return render(request, "search/export.html", {"export": export})


@require_safe
def export_file(request: HttpRequest, job: int) -> HttpResponse:
    """Return the file of an export that is done."""
    export = get_object_or_404(Export, pk=job, documents__isnull=False)
    name = {"Content-Disposition": f'attachment; filename="results-{export.pk}.csv"'}
    return HttpResponse(export.content, content_type="text/csv; charset=utf-8", headers=name)


def _page_number(request: HttpRequest) -> int:
    text = request.GET.get("page", "1")
    return int(text) if text.isdecimal() and len(text) < 7 else 1
