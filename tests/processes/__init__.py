"""Tests of the worker command as users run it, with real processes and real signals.

It is also a URLconf without any pages, for the settings.
"""

from __future__ import annotations

urlpatterns: list[object] = []
