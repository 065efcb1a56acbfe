"""A URLconf without any pages."""

from __future__ import annotations

urlpatterns: list[object] = []
