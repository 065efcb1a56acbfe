"""Tests of everything around one job while it runs."""

from __future__ import annotations
