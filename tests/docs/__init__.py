"""The documentation: every example runs, every name is there."""

from __future__ import annotations
