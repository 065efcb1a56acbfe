"""Query plans at 100,000 rows: what a statement reads must not grow with the table."""

from __future__ import annotations
