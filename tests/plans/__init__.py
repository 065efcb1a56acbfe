"""Query plans with 100,000 rows: the number of rows that a statement reads must not grow with the table."""

from __future__ import annotations
