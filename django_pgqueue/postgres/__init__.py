"""What is about PostgreSQL and connections to it, and knows nothing of jobs."""

from __future__ import annotations
