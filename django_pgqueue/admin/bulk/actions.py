"""The actions on jobs in the admin: the permission of each, what it does to the jobs in each state, and in
which words; and which jobs are selected, and how many they are.

The effects of an action cover every state once. No effect mixes finished jobs with live jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial, reduce
from operator import or_
from time import monotonic
from typing import Any, NamedTuple

from django.core.exceptions import EmptyResultSet
from django.db.models import Case, Q, QuerySet, When
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.translation import gettext as _, gettext_lazy

from ...models import Job, changes
from ...models.job import Status
from ...monitoring.depth import Counted
from ...postgres import fetch_rows
from ...postgres.clock import server_now
from ...postgres.timeout import time_limit, within
from ..ask import RowAction
from ..base import DatabaseAdmin
from ..display import plural, with_count
from ..jobs.filters import LIVE_SHELF, on_shelves
from ..jobs.forms import EditForm

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

# The jobs that an action selects, described so that the same jobs are found again after the confirmation.
#
# Selected rows are described by their ids. All jobs that match the filters of a list are described by bounds:
# jobs up to the newest one at the time of the count, and, among the finished jobs, the last
# ``MOST_FINISHED``. In both cases, a job that ended after the count does not count as finished: the page did
# not show that it was done, so the user has not confirmed that it runs a second time.
#
# All jobs that match are counted twice, as a list is read: at first only as far as ``FIRST_LOOK`` allows, so
# that the page comes at once, and then, when its script or a button asks for it, up to ``MOST_COUNTED``.
#
# The bounds cannot exclude a job whose transaction had taken its id but was not committed at the time of the
# count.

MOST_FINISHED = 60_000  # jobs
MOST_COUNTED = 100_000  # jobs for each effect; beyond it, the page says "100,000+"
SECONDS = 3.0  # for each statement that counts
FIRST_LOOK = 0.04  # seconds, for all statements of the first count together
FIRST_COUNTED = (100, 10_000)  # live jobs, and as many finished ones, as long as that time lasts


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the confirmation page has shown, as stored in its form: the bounds, and what would change."""

    as_of: str  # when the jobs were counted, on the clock of the database, in ISO format
    newest: int | None = None  # the highest id at that time; None for selected rows
    oldest: int | None = None
    """The lowest id of the finished jobs that are meant; None if there are no older ones."""
    action: str = ""
    effects: list[str] = field(default_factory=list)  # the kinds of jobs that would change
    counted: int = 0  # how many jobs would change, or more if this is not exact
    is_exact: bool = True
    meaning: str = ""  # what the search term was (``search.meaning_of``); "" if there was none

    @property
    def expected(self) -> int | None:
        """How many jobs would change; None if that is not known."""
        return self.counted if self.is_exact else None


def bounds(pool: QuerySet[Job], *, across: bool) -> Shown:
    """Return the current bounds in the jobs that the list reads. ``across``: whether all jobs that match are
    selected, or single rows.
    """
    pool = pool.order_by("-pk")
    newest, now = pool.values_list("pk", Now()).first() or (0, server_now(pool.db))
    if not across:
        return Shown(as_of=now.isoformat())
    over = pool.filter(pk__lte=newest, shelf__gt=LIVE_SHELF).values_list("pk", flat=True)
    end = list(over[MOST_FINISHED - 1 : MOST_FINISHED + 1])
    oldest = end[0] if len(end) == 2 else None
    return Shown(as_of=now.isoformat(), newest=newest, oldest=oldest)


def affected(jobs: QuerySet[Job], limits: Shown, meant: Sequence[Effect]) -> list[QuerySet[Job]]:
    """Return the jobs of these effects, in one queryset for live jobs and one for finished jobs."""
    parts = []
    live = [effect for effect in meant if not effect.is_finished]
    over = [effect for effect in meant if effect.is_finished]
    if limits.newest is not None:
        jobs = jobs.filter(pk__lte=limits.newest)
    if live:
        parts.append(jobs.filter(reduce(or_, (effect.condition for effect in live)), shelf=LIVE_SHELF))
    if over:
        ended = jobs.filter(
            reduce(or_, (effect.condition for effect in over)),
            shelf__gt=LIVE_SHELF,
            finished_at__lte=datetime.fromisoformat(limits.as_of),
        )
        statuses = {status for effect in over for status in effect.states}
        if len(statuses) == 1:
            ended = on_shelves(statuses.pop(), ended)
        if limits.oldest is not None:
            ended = ended.filter(pk__gte=limits.oldest)
        parts.append(ended)
    return parts


def glance(jobs: QuerySet[Job], limits: Shown, meant: Sequence[Effect]) -> list[Counted]:
    """Return the number of jobs for each effect, as far as it is found in ``FIRST_LOOK``: "?" for none."""
    kind = Case(*(When(effect.condition, then=place) for place, effect in enumerate(meant)))
    parts = [
        part.order_by().annotate(pgqueue_kind=kind).values_list("pgqueue_kind")
        for part in affected(jobs, limits, meant)
    ]
    until, found = monotonic() + FIRST_LOOK, [Counted(0, is_exact=False)] * len(meant)
    with time_limit(jobs.db, SECONDS):  # of which the ones below are parts
        for most in FIRST_COUNTED:
            left = until - monotonic()
            numbers = within(jobs.db, left, partial(_by_kind, parts, most)) if left > 0 else None
            if numbers is None:
                break
            for is_over in (False, True):
                places = [place for place, effect in enumerate(meant) if effect.is_finished == is_over]
                is_exact = sum(numbers[place] for place in places) <= most
                for place in places:
                    found[place] = Counted(min(numbers[place], most), is_exact)
            if all(each.is_exact for each in found):
                break
    return found


def _by_kind(parts: Sequence[QuerySet[Any, Any]], most: int) -> Counter[int]:
    """Return how many of the first jobs of the parts are of each kind. One more than ``most`` are read."""
    first, *others = [part[: most + 1] for part in parts]
    try:
        query, alias = first.union(*others, all=True).query, first.db
        statement, parameters = query.get_compiler(alias).as_sql()
    except EmptyResultSet:  # the search cannot find anything
        return Counter()
    sql = f"SELECT kind, count(*) FROM ({statement}) AS found (kind) GROUP BY kind"  # noqa: S608 - from Django
    return Counter(dict(fetch_rows(alias, sql, parameters)))


def count(jobs: QuerySet[Job], limits: Shown, meant: Sequence[Effect]) -> list[Counted]:
    """Return the number of jobs for each effect, or what a glance finds, if the count takes too long.

    A job that ends between two statements is counted once: it had not finished when the bounds were read.
    """
    parts = [affected(jobs, limits, [effect])[0].order_by()[: MOST_COUNTED + 1] for effect in meant]
    numbers = within(jobs.db, SECONDS, lambda: [part.count() for part in parts])
    if numbers is None:
        return glance(jobs, limits, meant)
    return [Counted(min(number, MOST_COUNTED), number <= MOST_COUNTED) for number in numbers]
