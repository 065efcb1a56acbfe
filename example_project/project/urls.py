"""The search page at the root, and the admin."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("", include("example_project.search.urls")),
    path("admin/", admin.site.urls),
]
