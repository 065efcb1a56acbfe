"""Counts with a noun, for log lines and for the output of the command: "1 job", "2 jobs"."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, one: str, many: str = "") -> str:
    """Return ``number`` with its noun: ``one`` for 1, otherwise ``many`` (default: ``one`` plus "s").

    These texts are for logs and terminals and are not translated; the admin uses ``ngettext``.
    """
    return f"{number} {one if number == 1 else many or f'{one}s'}"
