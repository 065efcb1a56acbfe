"""Find the live jobs of a key: those that hold a slot of it, stand in its line, or have it as unique key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db.models import BooleanField, F, Func
from django.db.models.expressions import RawSQL

if TYPE_CHECKING:
    from django.db.models import QuerySet

__all__ = ["SQL", "with_key"]

#: Reads the ids. It takes the key four times.
SQL = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")


def with_key(jobs: QuerySet[Any], key: str) -> QuerySet[Any]:
    """Return those of the jobs that have this key and are not over."""
    # An array: with a subquery, PostgreSQL would read all jobs from the newest one on.
    ids = RawSQL(f"ARRAY({SQL})", [key] * 4)  # noqa: S611 - a constant
    is_one = Func(F("pk"), ids, template="%(expressions)s", arg_joiner=" = ANY ", output_field=BooleanField())
    return jobs.filter(is_one, shelf=0)
