"""Why a job does not run, or what has become of it.

explain:  asks ``pgqueue_why`` in the database (``sql/why_v1.sql``)
facts:    what it has answered
words:    the reason in words, a function for each code; ``due`` has those of jobs that are due
cures:    what helps
parts:    what sentences are made of: the page shows times and links where the terminal shows text
"""

from __future__ import annotations

from .answer import Why, aexplain, explain

__all__ = ["Why", "aexplain", "explain"]
