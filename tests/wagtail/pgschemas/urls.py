"""No pages."""

from __future__ import annotations

urlpatterns: list[object] = []
