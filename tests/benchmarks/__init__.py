"""Tests of the benchmark suite."""

from __future__ import annotations
