"""What a user is told when an action on jobs is over: how many jobs changed, and why others did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _
from django.utils.translation import ngettext_lazy

from .. import display

if TYPE_CHECKING:
    from .actions import Action

__all__ = ["told"]

_OTHERS_TO_RETRY = ngettext_lazy(
    "%(number)s other was left alone: it changed in the meantime, or another job has its unique key.",
    "%(number)s others were left alone: they changed in the meantime, or other jobs have their unique keys.",
    "count",
)
_OTHERS = ngettext_lazy(
    "%(number)s other changed in the meantime and was left alone.",
    "%(number)s others changed in the meantime and were left alone.",
    "count",
)


def told(
    action: Action, changed: int, expected: int | None, *, denied: bool = False, whole: bool = True
) -> str:
    """Return the message about the jobs that changed, and about those that were shown but did not change.

    ``expected``: how many jobs would change; None if it is not known. ``denied``: some jobs did not change
    because this user may not run them again. ``whole``: whether all of them were reached.
    """
    if not changed and expected and whole and action.permission == "retry":
        return _("No job changed: all of them changed in the meantime, or other jobs have their unique keys.")
    if not changed and expected and whole:
        return _("No job changed: all of them changed in the meantime.")
    if not changed and denied:
        return _("No job changed: you may not run done jobs again.")
    if not changed and not whole:
        return _("No job changed.")
    words = action.outcome(changed)
    left = (expected or 0) - changed
    if changed and left > 0 and whole:
        others = _OTHERS_TO_RETRY if action.permission == "retry" else _OTHERS
        words += " " + str(others % {"count": left, "number": display.number(left)})
    return words
