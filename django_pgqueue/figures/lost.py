"""Lost jobs: those that run according to their rows, but whose worker is dead. Any live worker recovers
them.
"""

from __future__ import annotations

from pathlib import Path

from django.db import connections

from .. import conf
from .depth import MOST

__all__ = ["lost_jobs"]

_SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")


def lost_jobs(alias: str) -> dict[str, int]:
    """Return how many jobs of each queue are lost. Queues without lost jobs are left out."""
    with connections[alias].cursor() as cursor:
        cursor.execute(_SQL, {"most": MOST, "lease": conf.current().lease})
        return dict(cursor.fetchall())
