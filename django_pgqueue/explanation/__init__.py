"""Why a job does not run, or what has become of it.

answer  asks ``pgqueue_why`` in the database (``sql/why_v1.sql``), and says what helps
facts   what it has answered, as moments, periods and counts
words   the reason in words, a text or a function for each code
"""

from __future__ import annotations

from .answer import Reason, awhy, why

__all__ = ["Reason", "awhy", "why"]
