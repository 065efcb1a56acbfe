"""Counts in log lines and in what the command prints: "1 job", "2 jobs"."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, one: str, many: str = "") -> str:
    """``number`` with its noun: ``one`` for 1, else ``many`` (default: ``one`` and an "s").

    These texts are for logs and terminals and are not translated; the admin uses ``ngettext``.
    """
    return f"{number} {one if number == 1 else many or f'{one}s'}"
