"""Tests of the rounds that any supervisor may run: recovery, the ring of history, the sweep."""

from __future__ import annotations
