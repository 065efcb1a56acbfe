"""The rounds that any supervisor may do: recovery, the ring of history, the sweep."""

from __future__ import annotations
