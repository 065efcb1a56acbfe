"""The URLs of the search engine."""

from __future__ import annotations

from django.urls import path

from .views import export_file, export_page, new_export, progress_page, search_page

app_name = "search"
urlpatterns = [
    path("", search_page, name="page"),
    path("progress/", progress_page, name="progress"),
    path("export/", new_export, name="new_export"),
    path("export/<int:job>/", export_page, name="export"),
    path("export/<int:job>/results.csv", export_file, name="export_file"),
]
