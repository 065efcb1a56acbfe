"""Tests of the worker within one process: claim, run, finish."""

from __future__ import annotations
