"""The search page, and the small page inside it that shows the progress of the indexing."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_safe

from .forms import SearchForm
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


def _page_number(request: HttpRequest) -> int:
    text = request.GET.get("page", "1")
    return int(text) if text.isdecimal() and len(text) < 7 else 1
