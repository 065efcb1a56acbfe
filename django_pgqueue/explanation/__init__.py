"""Why a job does not run, or what has become of it.

answer     asks ``pgqueue_why`` in the database (``sql/why_v1.sql``), and says what helps
words      the reason in words
schedules  a schedule in plain language, and the list of all
"""

from __future__ import annotations

from .answer import Reason, awhy, why

__all__ = ["Reason", "awhy", "why"]
