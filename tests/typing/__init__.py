"""Cases for type checkers, run by ``tests/project/test_typing.py``; nothing here is executed."""

from __future__ import annotations
