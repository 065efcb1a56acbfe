"""Tests of schedules: times, declarations, what workers write when they start, and the round that fires."""

from __future__ import annotations
