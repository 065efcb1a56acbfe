"""Cases for type checkers, run by ``tests/test_typing.py``; nothing here is executed."""

from __future__ import annotations
