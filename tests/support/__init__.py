"""Helpers of the tests: connections of their own, forced interleavings, query plans."""

from __future__ import annotations
