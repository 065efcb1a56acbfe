"""The addresses of the Wagtail site."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [
    path("admin/", include("wagtail.admin.urls")),
    path("documents/", include("wagtail.documents.urls")),
    path("", include("wagtail.urls")),
]
