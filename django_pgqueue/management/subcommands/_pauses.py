"""A pause as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._moments import iso

if TYPE_CHECKING:
    from ...models import Pause

__all__ = ["as_json"]


def as_json(pause: Pause) -> dict[str, Any]:
    """Return the values of a pause."""
    return {
        **{name: getattr(pause, name) for name in ("kind", "name", "reason", "author")},
        "paused_at": iso(pause.paused_at),
        "until": iso(pause.until),
    }
