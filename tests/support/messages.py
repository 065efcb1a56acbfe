"""Messages of system checks as text."""

from __future__ import annotations

from collections.abc import Iterable

from django.core.checks import CheckMessage

__all__ = ["text_of"]


def text_of(messages: Iterable[CheckMessage]) -> str:
    """Return the messages as one text. Each must have a hint."""
    found = list(messages)
    assert all(each.msg.strip() and each.hint for each in found)
    return "\n".join(f"{each.id}: {each.msg}\n    HINT: {each.hint}" for each in found)
