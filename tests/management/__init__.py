"""The command itself: what it prints, refuses and reloads. ``worker`` and ``processes`` test its work."""

from __future__ import annotations
