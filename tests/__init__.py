"""The tests: flat pytest functions against a real PostgreSQL."""

from __future__ import annotations
