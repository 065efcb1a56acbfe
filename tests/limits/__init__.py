"""Tests of limits and rates, wherever they can be seen: in declarations, Python, SQL and the admin."""

from __future__ import annotations
