"""Tasks that the tests enqueue."""

from __future__ import annotations
