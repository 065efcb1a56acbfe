"""How the nodes of a drawing are called, in the drawing and in the table below it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unicodedata import east_asian_width

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from ...models.job import Status
from .. import display
from .nodes import LIVE, MATTERS, Kind

if TYPE_CHECKING:
    from collections import Counter

    from .nodes import Node

__all__ = ["counted", "cut", "full_name", "label", "state_text"]


def label(node: Node) -> str:
    """Return the name in the drawing: of a task without its module, and how many there are."""
    name = _short(node)
    return f"{name} × {display.number(node.size)}" if node.size > 1 else name


def _short(node: Node) -> str:
    if node.kind in {Kind.JOB, Kind.MANY_JOBS}:
        return node.name.rpartition(".")[2] or _("other tasks")
    if node.kind == Kind.GONE:
        return _("no longer kept")
    return node.name or (_("batch") if node.kind == Kind.BATCH else _("batches"))


def full_name(node: Node) -> str:
    """Return the name in the table, with the whole path of a task and the id of a job or batch."""
    if node.kind == Kind.JOB:
        return _("%(task)s (%(id)s)") % {"task": node.name, "id": node.key}
    if node.kind == Kind.BATCH:
        name = node.name or _("without a name")
        return _("batch %(id)s, %(name)s") % {"id": node.key, "name": name}
    if node.kind == Kind.GONE:
        return _("%(id)s, no longer kept") % {"id": node.key} if node.size == 1 else label(node)
    name = node.name or _short(node)
    return f"{name} × {display.number(node.size)}"


def state_text(node: Node) -> str:
    """Return the state of a job, or the number of jobs in each state."""
    if node.kind == Kind.JOB:
        return _state(node.state)
    if node.kind == Kind.GONE:
        return ""
    if node.kind == Kind.BATCH and not node.counts:
        return pgettext("batch", "empty")
    return ", ".join(counted(node.counts).values())


def counted(counts: Counter[str]) -> dict[str, str]:
    """Return for each state "12 failed", "9,000 done", and so on, that which matters most first."""
    return {
        state: _("%(count)s %(status)s") % {"count": display.number(counts[state]), "status": _state(state)}
        for state in MATTERS
        if counts[state]
    }


def _state(state: str) -> str:
    return _("not over") if state == LIVE else str(Status(state).label)


def cut(text: str, columns: int) -> str:
    """Return the beginning of a text that is at most so wide. Some characters are two columns wide."""
    width = 0
    for place, character in enumerate(text):
        width += 2 if east_asian_width(character) in "WF" else 1
        if width > columns:
            return text[: max(0, place - 1)] + "…"
    return text
