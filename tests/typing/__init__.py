"""Cases for type checkers, checked by ``tests/project/test_sources.py``. Nothing here is executed."""

from __future__ import annotations
