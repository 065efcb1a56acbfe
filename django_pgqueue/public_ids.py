"""The public id of a job: ``"5"`` in the database ``default``, and ``"other:5"`` in another one."""

from __future__ import annotations

from django.db import DEFAULT_DB_ALIAS

__all__ = ["LONGEST_ALIAS", "MAX_ID", "parse_id", "public_id"]

MAX_ID = 2**63 - 1

#: The longest alias with which every id is shorter than 64 characters, which `django.tasks` promises.
LONGEST_ALIAS = 63 - len(f":{MAX_ID}")


def public_id(job_id: int, alias: str | None) -> str:
    """Return a job's public id: ``"5"`` in the database ``default``, and ``"other:5"`` in another one.

    It contains the alias, not the backend, so that it means the same job whichever backend is asked.
    """
    return str(job_id) if alias in (None, DEFAULT_DB_ALIAS) else f"{alias}:{job_id}"


def parse_id(public: str) -> tuple[str, int]:
    """Return the alias and the number of an id. Raise ValueError."""
    alias, colon, number = public.rpartition(":")  # an alias may contain colons, a number cannot
    is_number = number.isascii() and number.isdigit() and len(number) <= 19
    if not is_number or (colon and not alias) or not 0 < int(number) <= MAX_ID:
        raise ValueError(
            f"{public!r} is not the id of a job. An id looks like '5', or 'other:5' for another database."
        )
    return alias or DEFAULT_DB_ALIAS, int(number)
