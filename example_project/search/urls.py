"""The URLs of the search engine."""

from __future__ import annotations

from django.urls import path

from .views import progress_page, search_page

app_name = "search"
urlpatterns = [
    path("", search_page, name="page"),
    path("progress/", progress_page, name="progress"),
]
