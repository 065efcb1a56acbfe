"""Tests of the admin: what it shows, what it permits, and that a long history does not slow it down."""

from __future__ import annotations
