"""Read payloads by the ids of their jobs, all of one model in one query."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..exceptions import CancelJob

__all__ = ["load", "missing"]


def load(model: Any, alias: str, ids: Iterable[int]) -> dict[int, Any]:
    """Return the rows that exist, by id. The base manager is used, because no row may be hidden."""
    found: dict[int, Any] = model._base_manager.using(alias).in_bulk(list(ids))
    return found


def missing(model: Any) -> CancelJob:
    """Return what ends a job whose row does not exist: somebody has deleted it, or emptied the table."""
    return CancelJob(f"its row in {model._meta.db_table} does not exist")
