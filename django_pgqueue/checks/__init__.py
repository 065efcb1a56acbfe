"""The system checks, which Django runs before it starts."""

from __future__ import annotations
