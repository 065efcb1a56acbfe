"""What an action does to jobs, state by state, in sentences for the page that asks before it does so.

The effects of an action name every state once, and never mix jobs that are over with those that are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import ngettext_lazy

from ..models.job import Status
from . import display

__all__ = ["CANCEL", "MOST_COUNTED", "RETRY", "RUN", "Effect", "number", "permitted"]

MOST_COUNTED = 10_000  # jobs of one effect

_WAITING = frozenset({Status.PENDING, Status.RETRY})
_RUNNING = frozenset({Status.RUNNING})
_BLOCKED = frozenset({Status.BLOCKED})
_OVER = frozenset(status for status in Status if status.is_terminal)


@dataclass(frozen=True, slots=True)
class Effect:
    """What happens to the jobs in some states."""

    key: str
    """Its name within the action; it travels in the form."""
    states: frozenset[Status]
    words: Any
    """A lazy plural of ``count`` (a number) and ``number`` (as it is shown)."""
    acts: bool = False
    """Whether these jobs change."""
    where: Q = field(default_factory=Q)
    """Which jobs in these states, if not all."""
    permission: str = ""
    """The codename without the model of what it needs beside the permission of the action."""
    denied: Any = None
    """The words for who does not have it: these jobs are left alone."""

    @property
    def is_over(self) -> bool:
        """Whether it is about jobs that are over."""
        return self.states <= _OVER

    @property
    def is_denied(self) -> bool:
        """Whether these jobs are left alone only because this user may not change them (``permitted``)."""
        return bool(self.permission) and not self.acts

    def sentence(self, count: int) -> str:
        """What happens to so many jobs."""
        return str(self.words % {"count": count, "number": number(count)})


def number(count: int) -> str:
    """A count that is exact up to its bound."""
    if count > MOST_COUNTED:
        return _("More than %(number)s") % {"number": display.number(MOST_COUNTED)}
    return display.number(count)


def permitted(effects: tuple[Effect, ...], may: Callable[[str], bool]) -> list[Effect]:
    """The same effects for somebody who may do only some of it."""
    return [
        replace(effect, acts=False, words=effect.denied)
        if effect.permission and not may(effect.permission)
        else effect
        for effect in effects
    ]


_RUNNING_STAY = Effect(
    "running",
    _RUNNING,
    ngettext_lazy(
        "%(number)s running job is left alone.", "%(number)s running jobs are left alone.", "count"
    ),
)
_BLOCKED_STAY = Effect(
    "blocked",
    _BLOCKED,
    ngettext_lazy(
        "%(number)s blocked job is left alone.", "%(number)s blocked jobs are left alone.", "count"
    ),
)
_OVER_STAY = Effect(
    "over",
    _OVER,
    ngettext_lazy(
        "%(number)s job that is over stays as it is.",
        "%(number)s jobs that are over stay as they are.",
        "count",
    ),
)

RETRY = (
    Effect(
        "done",
        frozenset({Status.DONE}),
        ngettext_lazy(
            "%(number)s done job would run a second time.",
            "%(number)s done jobs would run a second time.",
            "count",
        ),
        acts=True,
        permission="rerun_done",
        denied=ngettext_lazy(
            "%(number)s done job is left alone: you may not run done jobs again.",
            "%(number)s done jobs are left alone: you may not run done jobs again.",
            "count",
        ),
    ),
    Effect(
        "failed",
        frozenset({Status.FAILED}),
        ngettext_lazy(
            "%(number)s failed job would run again.", "%(number)s failed jobs would run again.", "count"
        ),
        acts=True,
    ),
    Effect(
        "cancelled",
        frozenset({Status.CANCELLED}),
        ngettext_lazy(
            "%(number)s cancelled job would run after all.",
            "%(number)s cancelled jobs would run after all.",
            "count",
        ),
        acts=True,
    ),
    Effect(
        "waiting",
        _WAITING,
        ngettext_lazy(
            "%(number)s waiting job would be due now, with all its attempts again.",
            "%(number)s waiting jobs would be due now, with all their attempts again.",
            "count",
        ),
        acts=True,
    ),
    _RUNNING_STAY,
    _BLOCKED_STAY,
)

RUN = (
    Effect(
        "later",
        _WAITING,
        ngettext_lazy(
            "%(number)s job that waits for a later time would be due now.",
            "%(number)s jobs that wait for a later time would be due now.",
            "count",
        ),
        acts=True,
        where=Q(run_after__gt=Now()),
    ),
    Effect(
        "due",
        _WAITING,
        ngettext_lazy(
            "%(number)s waiting job is due already.", "%(number)s waiting jobs are due already.", "count"
        ),
        where=Q(run_after__lte=Now()),
    ),
    _RUNNING_STAY,
    _BLOCKED_STAY,
    _OVER_STAY,
)

CANCEL = (
    Effect(
        "waiting",
        _WAITING | _BLOCKED,
        ngettext_lazy(
            "%(number)s waiting job would be cancelled.",
            "%(number)s waiting jobs would be cancelled.",
            "count",
        ),
        acts=True,
    ),
    Effect(
        "running",
        _RUNNING,
        ngettext_lazy(
            "%(number)s running job would be asked to stop.",
            "%(number)s running jobs would be asked to stop.",
            "count",
        ),
        acts=True,
        where=Q(cancel_requested_at__isnull=True),
    ),
    Effect(
        "asked",
        _RUNNING,
        ngettext_lazy(
            "%(number)s running job was asked to stop before.",
            "%(number)s running jobs were asked to stop before.",
            "count",
        ),
        where=Q(cancel_requested_at__isnull=False),
    ),
    _OVER_STAY,
)
