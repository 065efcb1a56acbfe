"""The actions on jobs in the admin: the permission of each, what it does to the jobs in each state, and in
which words.

The effects of an action cover every state once. No effect mixes finished jobs with live jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...models import Job, changes
from ...models.job import Status
from ...monitoring.depth import Counted
from ..ask import RowAction
from ..base import DatabaseAdmin
from ..display import plural, with_count
from ..jobs.filters import LIVE_SHELF
from .edit_form import EditForm

_WAITING = frozenset({Status.PENDING, Status.RETRY})
_BLOCKED = frozenset({Status.BLOCKED})
_RUNNING = frozenset({Status.RUNNING})
_OVER = frozenset(status for status in Status if status.is_terminal)
#: Each kind: the states of its jobs, and a further condition.
_KINDS = {
    "done": (frozenset({Status.DONE}), Q()),
    "failed": (frozenset({Status.FAILED}), Q()),
    "cancelled": (frozenset({Status.CANCELLED}), Q()),
    "over": (_OVER, Q()),
    "waiting": (_WAITING, Q()),
    "later": (_WAITING, Q(run_after__gt=Now())),
    "due": (_WAITING, Q(run_after__lte=Now())),
    "paused": (_BLOCKED, Q(waiting_reason__startswith="paused")),
    "blocked": (_BLOCKED, ~Q(waiting_reason__startswith="paused")),
    "not started": (_WAITING | _BLOCKED, Q()),
    "running": (_RUNNING, Q()),
    "not asked": (_RUNNING, Q(cancel_requested_at__isnull=True)),
    "asked": (_RUNNING, Q(cancel_requested_at__isnull=False)),
}


class Effect(NamedTuple):
    """What happens to the jobs of a kind."""

    kind: str
    states: frozenset[Status]
    where: Q
    words: Any  # a lazy plural of ``count`` (a number) and ``number`` (formatted)
    acts: bool

    @property
    def is_finished(self) -> bool:
        """Whether these jobs have finished."""
        return self.states <= _OVER

    @property
    def condition(self) -> Q:
        """The condition for these jobs."""
        return Q(status__in=sorted(self.states)) & self.where

    @property
    def reruns(self) -> bool:
        """Whether it is about work that has succeeded. It then requires a permission of its own."""
        return self.kind == "done"

    @property
    def is_denied(self) -> bool:
        """Whether these jobs do not change only because this user lacks the permission (``permitted``)."""
        return self.reruns and not self.acts

    def sentence(self, jobs: Counted) -> str:
        """Return what happens to this many jobs."""
        return str(self.words % {"count": jobs.plural, "number": jobs})


#: Jobs that most actions leave as they are.
_STAY = {
    "running": plural("%(number)s running job does not change.", "%(number)s running jobs do not change."),
    "blocked": plural("%(number)s blocked job does not change.", "%(number)s blocked jobs do not change."),
    "over": plural("%(number)s finished job does not change.", "%(number)s finished jobs do not change."),
}


def _effects(
    stay: tuple[str, ...], acts: dict[str, Any], rest: dict[str, Any] | None = None
) -> tuple[Effect, ...]:
    """Return the effects on the kinds of jobs that ``_STAY``, on jobs that change, and on the rest."""
    words = {**acts, **(rest or {}), **{kind: _STAY[kind] for kind in stay}}
    return tuple(Effect(kind, *_KINDS[kind], words[kind], kind in acts) for kind in words)


RETRY = _effects(
    ("running", "blocked"),
    {
        "done": plural(
            "%(number)s done job would run a second time.", "%(number)s done jobs would run a second time."
        ),
        "failed": plural("%(number)s failed job would run again.", "%(number)s failed jobs would run again."),
        "cancelled": plural(
            "%(number)s cancelled job would run after all.", "%(number)s cancelled jobs would run after all."
        ),
        "waiting": plural(
            "%(number)s waiting job would be due now, with all its attempts again.",
            "%(number)s waiting jobs would be due now, with all their attempts again.",
        ),
        "paused": plural(
            "%(number)s job whose task is paused would have all its attempts again when the pause ends.",
            "%(number)s jobs whose task is paused would have all their attempts again when the pause ends.",
        ),
    },
)

RUN = _effects(
    ("running", "blocked", "over"),
    {
        "later": plural(
            "%(number)s job that waits for a later time would be due now.",
            "%(number)s jobs that wait for a later time would be due now.",
        ),
    },
    {
        "due": plural("%(number)s waiting job is already due.", "%(number)s waiting jobs are already due."),
        "paused": plural(
            "%(number)s job runs when the pause of its task ends.",
            "%(number)s jobs run when the pause of their task ends.",
        ),
    },
)

CANCEL = _effects(
    ("over",),
    {
        "not started": plural(
            "%(number)s waiting job would be cancelled.", "%(number)s waiting jobs would be cancelled."
        ),
        "not asked": plural(
            "%(number)s running job would be asked to stop.",
            "%(number)s running jobs would be asked to stop.",
        ),
    },
    {
        "asked": plural(
            "%(number)s running job was already asked to stop.",
            "%(number)s running jobs were already asked to stop.",
        ),
    },
)

EDIT = _effects(
    ("running", "over"),
    {
        "not started": plural(
            "%(number)s waiting job would get the values below.",
            "%(number)s waiting jobs would get the values below.",
        ),
    },
)

_NOT_AGAIN = plural(
    "%(number)s done job does not change: you may not run done jobs again.",
    "%(number)s done jobs do not change: you may not run done jobs again.",
)

_OTHERS_TO_RETRY = plural(
    "%(number)s other was left alone: it changed in the meantime, or another job has its unique key.",
    "%(number)s others were left alone: they changed in the meantime, or other jobs have their unique keys.",
)
_OTHERS = plural(
    "%(number)s other changed in the meantime and was left alone.",
    "%(number)s others changed in the meantime and were left alone.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(RowAction):
    """An action on jobs."""

    run: Callable[..., list[int]]
    """Called with a queryset, and with the values of the form, if there is one. It returns which changed."""
    fits: Callable[[Any], bool]
    """Whether the page of a job offers it. The database decides whether the job changes."""
    done: Any
    refused: Any
    effects: tuple[Effect, ...] = ()
    """What it does to jobs in each state; empty for an action without a confirmation page."""
    form: type[EditForm] | None = None
    """The form on the confirmation page, which is then shown for a single job, too."""

    def message(self, changed: int, expected: int | None, *, denied: bool = False, whole: bool = True) -> str:
        """Return the message about the jobs that changed, and about shown jobs that did not.

        ``expected``: how many jobs would change; None if it is not known. ``denied``: some jobs did not
        change because this user may not run them again. ``whole``: whether all of them were reached.
        """
        if changed:
            left = (expected or 0) - changed if whole else 0
            others = _OTHERS_TO_RETRY if self.permission == "retry" else _OTHERS
            words = with_count(others, left) if left > 0 else ""
            return f"{with_count(self.done, changed)} {words}".rstrip()
        if expected and whole and self.permission == "retry":
            return _(
                "No job changed: all of them changed in the meantime, or other jobs have their unique keys."
            )
        if expected and whole:
            return _("No job changed: all of them changed in the meantime.")
        if denied:
            return _("No job changed: you may not run done jobs again.")
        return str(self.refused) if whole else _("No job changed.")


def permitted(name: str, admin: DatabaseAdmin[Job], request: HttpRequest) -> list[Effect]:
    """Return the effects of an action for this user."""
    effects = list(ACTIONS[name].effects)
    if admin.may(request, "rerun_done"):
        return effects
    return [each._replace(words=_NOT_AGAIN, acts=False) if each.reruns else each for each in effects]


def extendable(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Return the jobs that can have more time: not the history, where jobs have deadlines, too.

    They keep their keys, so that this waits for no task that holds the row of its own job.
    """
    running = jobs.filter(shelf=LIVE_SHELF, status=Status.RUNNING, deadline__isnull=False)
    return running.select_for_update(no_key=True)


def _can_retry(job: Job) -> bool:
    is_paused = job.status == Status.BLOCKED and job.waiting_reason.startswith("paused")
    return job.is_finished or job.status == Status.RETRY or is_paused


ACTIONS = {
    action.permission: action
    for action in (
        Action(
            permission="retry",
            label=gettext_lazy("Retry"),
            title=gettext_lazy("Retry jobs"),
            # The confirmation page lists done jobs, with a permission of their own.
            run=partial(changes.retry_ids, done=True),
            fits=_can_retry,
            done=plural("%(number)s job runs again.", "%(number)s jobs run again."),
            refused=gettext_lazy(
                "No job changed: running and blocked jobs cannot be retried, nor a job whose unique key "
                "another job has."
            ),
            effects=RETRY,
        ),
        Action(
            permission="run_now",
            label=gettext_lazy("Run now"),
            title=gettext_lazy("Run jobs now"),
            run=changes.run_now_ids,
            # The page of a job has the time of the server.
            fits=lambda job: Status(job.status).is_claimable and job.run_after > job.now,
            done=plural("%(number)s job is due now.", "%(number)s jobs are due now."),
            refused=gettext_lazy("No job changed: only jobs that wait for a later time can be run now."),
            effects=RUN,
        ),
        Action(
            permission="edit",
            label=gettext_lazy("Edit"),
            title=gettext_lazy("Edit jobs"),
            run=changes.edit_ids,
            fits=lambda job: not job.is_finished and job.status != Status.RUNNING,
            done=plural("%(number)s job was edited.", "%(number)s jobs were edited."),
            refused=gettext_lazy(
                "No job changed: running and finished jobs cannot be edited; the others are as wanted."
            ),
            effects=EDIT,
            form=EditForm,
        ),
        Action(
            permission="extend",
            label=gettext_lazy("Give it one more hour"),
            run=lambda jobs: changes.extend_ids(jobs, timedelta(hours=1)),
            fits=lambda job: job.status == Status.RUNNING and job.deadline is not None,
            done=plural("%(number)s job has one more hour.", "%(number)s jobs have one more hour each."),
            refused=gettext_lazy("No job changed: only running jobs with a timeout can be given more time."),
        ),
        Action(
            permission="cancel",
            label=gettext_lazy("Cancel"),
            title=gettext_lazy("Cancel jobs"),
            run=changes.cancel_ids,
            fits=lambda job: not job.is_finished and job.cancel_requested_at is None,
            done=plural(
                "%(number)s job was cancelled, or asked to stop if it was running.",
                "%(number)s jobs were cancelled, or asked to stop if they were running.",
            ),
            refused=gettext_lazy(
                "No job changed: jobs that have finished, or were already asked to stop, cannot be cancelled."
            ),
            effects=CANCEL,
        ),
    )
}
