"""Forced interleavings on real connections. Each of these tests was seen to fail with its guard removed."""

from __future__ import annotations
