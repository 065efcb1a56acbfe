"""What is around one job while it runs."""

from __future__ import annotations
