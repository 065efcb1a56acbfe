"""The URLs of ``benchmarks.console_pages``, which only asks for pages of the admin."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]
