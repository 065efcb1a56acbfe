"""The search page, and the small page inside it that shows how far the indexing is."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_safe

from .forms import SearchForm
from .queries import progress, search


@require_safe
def search_page(request: HttpRequest) -> HttpResponse:
    """`/?q=words&page=2`; answers from whatever is indexed so far."""
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
    """Shown in a frame of its own, which reloads by itself: the rest of the page stays as it is."""
    return render(request, "search/progress.html", {"progress": progress()})


def _page_number(request: HttpRequest) -> int:
    text = request.GET.get("page", "1")
    return int(text) if text.isdecimal() and len(text) < 7 else 1
