"""Tests of the worker command as its users start it: real processes, real signals."""

from __future__ import annotations
