"""Forced interleavings on real connections. Each of these tests was seen to fail without its guard."""

from __future__ import annotations
