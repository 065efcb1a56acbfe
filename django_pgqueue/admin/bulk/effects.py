"""What an action does to the jobs in each state, in sentences for the confirmation page.

The effects of an action cover every state once. No effect mixes finished jobs with live jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import ngettext_lazy

from ... import formatting
from ...models.job import Status

_WAITING = frozenset({Status.PENDING, Status.RETRY})
_RUNNING = frozenset({Status.RUNNING})
_BLOCKED = frozenset({Status.BLOCKED})
_OVER = frozenset(status for status in Status if status.is_terminal)


_PAUSED = Q(waiting_reason__startswith="paused")


@dataclass(frozen=True, slots=True)
class Effect:
    """What happens to the jobs in some states."""

    key: str
    """Its name within the action, stored in the form."""
    states: frozenset[Status]
    words: Any
    """A lazy plural of ``count`` (a number) and ``number`` (formatted)."""
    acts: bool = False
    """Whether these jobs change."""
    where: Q = field(default_factory=Q)
    """A condition for the jobs in these states, if it is not about all of them."""
    permission: str = ""
    """The codename, without the model, of an additional permission that it requires."""
    denied: Any = None
    """The words for users without this permission, for whom these jobs do not change."""

    @property
    def is_finished(self) -> bool:
        """Whether these jobs have finished."""
        return self.states <= _OVER

    @property
    def condition(self) -> Q:
        """The condition for these jobs."""
        return Q(status__in=sorted(self.states)) & self.where

    @property
    def is_denied(self) -> bool:
        """Whether these jobs do not change only because this user lacks the permission (``permitted``)."""
        return bool(self.permission) and not self.acts

    def sentence(self, number: int, *, is_exact: bool = True) -> str:
        """Return what happens to this many jobs, or to this many or more."""
        count = number if is_exact else max(number, 2)  # "1 or more" is a plural
        return str(self.words % {"count": count, "number": number_words(number, is_exact=is_exact)})


def number_words(number: int, *, is_exact: bool) -> str:
    """Format a number of jobs, of which there may be more."""
    words = formatting.number(number)
    return words if is_exact else _("%(number)s or more") % {"number": words}


def permitted(effects: tuple[Effect, ...], may: Callable[[str], bool]) -> list[Effect]:
    """Return the effects for a user with some of the permissions."""
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
        "%(number)s running job does not change.", "%(number)s running jobs do not change.", "count"
    ),
)
_BLOCKED_STAY = Effect(
    "blocked",
    _BLOCKED,
    ngettext_lazy(
        "%(number)s blocked job does not change.", "%(number)s blocked jobs do not change.", "count"
    ),
    where=~_PAUSED,
)
_OVER_STAY = Effect(
    "over",
    _OVER,
    ngettext_lazy(
        "%(number)s finished job does not change.",
        "%(number)s finished jobs do not change.",
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
            "%(number)s done job does not change: you may not run done jobs again.",
            "%(number)s done jobs do not change: you may not run done jobs again.",
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
    Effect(
        "paused",
        _BLOCKED,
        ngettext_lazy(
            "%(number)s job whose task is paused would have all its attempts again when the pause ends.",
            "%(number)s jobs whose task is paused would have all their attempts again when the pause ends.",
            "count",
        ),
        acts=True,
        where=_PAUSED,
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
            "%(number)s waiting job is already due.", "%(number)s waiting jobs are already due.", "count"
        ),
        where=Q(run_after__lte=Now()),
    ),
    Effect(
        "paused",
        _BLOCKED,
        ngettext_lazy(
            "%(number)s job runs when the pause of its task ends.",
            "%(number)s jobs run when the pause of their task ends.",
            "count",
        ),
        where=_PAUSED,
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
            "%(number)s running job was already asked to stop.",
            "%(number)s running jobs were already asked to stop.",
            "count",
        ),
        where=Q(cancel_requested_at__isnull=False),
    ),
    _OVER_STAY,
)

EDIT = (
    Effect(
        "waiting",
        _WAITING | _BLOCKED,
        ngettext_lazy(
            "%(number)s waiting job would get the values below.",
            "%(number)s waiting jobs would get the values below.",
            "count",
        ),
        acts=True,
    ),
    _RUNNING_STAY,
    _OVER_STAY,
)
