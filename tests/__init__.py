"""The tests are plain pytest functions that run against a real PostgreSQL."""

from __future__ import annotations
