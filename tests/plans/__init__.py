"""Query plans beside tens of thousands of rows: what a statement reads must not grow with the table."""

from __future__ import annotations
