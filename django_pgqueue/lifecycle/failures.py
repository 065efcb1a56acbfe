"""Mute groups of failures that are known, until they change (``fold_failures_v1.sql`` says when that is)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models.functions import Now

from ..models import FailureGroup

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["mute", "unmute"]


def mute(alias: str, fingerprints: Collection[str], author: str = "") -> int:
    """Mute these groups, and return how many were not muted before."""
    known = FailureGroup.objects.using(alias).filter(pk__in=fingerprints, muted_at=None)
    return known.update(muted_at=Now(), muted_by=author[:150])


def unmute(alias: str, fingerprints: Collection[str]) -> int:
    """Unmute these groups, and return how many were muted before."""
    known = FailureGroup.objects.using(alias).filter(pk__in=fingerprints, muted_at__isnull=False)
    return known.update(muted_at=None, muted_by="")
