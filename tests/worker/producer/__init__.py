"""What a worker claims, reports, and sleeps on."""

from __future__ import annotations
