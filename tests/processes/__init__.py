"""Tests of the worker command as users run it, with real processes and real signals."""

from __future__ import annotations
