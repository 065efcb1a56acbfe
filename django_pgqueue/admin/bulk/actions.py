"""The actions on jobs in the admin, each with its permission and its messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import QuerySet, TextField
from django.db.models.expressions import RawSQL
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from ... import formatting
from ...formatting import get_logger
from ...jobs import control
from ...models import Job
from ...models.job import Status
from ..history import action_words, filter_words, note_all, note_each
from ..jobs.filters import LIVE_SHELF
from ..jobs.search import MEANING
from . import effects
from .edit_form import EditForm
from .effects import Effect

logger = get_logger(__name__)


# ----------------------------------------------------------------------------
# The jobs that an action holds, and which of them it has changed.
#
# The functions of the queue return how many jobs they have changed, but not which. Nobody else can change a
# row that is locked, so a job has changed if its row is another version than before, or is gone.

#: The leaf and the place in it: each UPDATE writes a version in another place.
_VERSION = "(pgqueue_job.tableoid, pgqueue_job.ctid)::text"


class Held(NamedTuple):
    """Jobs whose rows are locked until the end of the transaction."""

    alias: str
    rows: list[tuple[int, str, int, str]]
    """Of each job: the id, the path of the task, the shelf, the version of the row."""

    @property
    def jobs(self) -> QuerySet[Job]:
        """These jobs, and no other."""
        shelves = sorted({shelf for _pk, _path, shelf, _version in self.rows})  # the plan leaves out others
        rows = Job.objects.using(self.alias)
        return rows.filter(pk__in=[pk for pk, _path, _shelf, _version in self.rows], shelf__in=shelves)

    def changed(self) -> list[Job]:
        """Return the jobs that have changed since, with their ids and paths."""
        ids = [pk for pk, _path, _shelf, _version in self.rows]
        now = dict(_versions(Job.objects.using(self.alias).filter(pk__in=ids)).values_list("pk", "version"))
        return [
            Job(pk=pk, task_path=path) for pk, path, _shelf, version in self.rows if now.get(pk) != version
        ]


def hold(locked: QuerySet[Job], most: int) -> Held:
    """Lock jobs and return them, but no more than ``most``."""
    rows = _versions(locked).values_list("pk", "task_path", "shelf", "version")
    return Held(locked.db, list(rows[:most]))


def _versions(jobs: QuerySet[Job]) -> QuerySet[Any]:
    version = RawSQL(_VERSION, (), TextField())  # noqa: S611 - a constant
    return jobs.annotate(version=version)


# ----------------------------------------------------------------------------
# The actions.


EXTENSION = timedelta(hours=1)
MOST_LOGGED = 500  # jobs of one action in the admin's own history


@dataclass(frozen=True, slots=True)
class Action:
    """An action on jobs. ``permission`` is the codename without the model."""

    permission: str
    label: Any
    run: Callable[..., int]
    """Called with a queryset, and with the values of the form, if there is one. Returns how many changed."""
    fits: Callable[[Job], bool]
    """Whether the page of a job offers it. The database decides whether the job changes."""
    _done: Any
    _refused: Any
    effects: tuple[Effect, ...] = ()
    """What it does to jobs in each state; empty for an action without a confirmation page."""
    title: Any = ""
    """The title of the confirmation page."""
    form: type[EditForm] | None = None
    """The form on the confirmation page, which is then shown for a single job, too."""
    stays: bool = False
    """Whether its jobs keep their keys, so that it waits for no task that holds the row of its own job."""

    def __call__(
        self, request: HttpRequest, parts: Sequence[QuerySet[Job]], form: EditForm | None = None
    ) -> int:
        """Run the action on some querysets of jobs, in one transaction. Return how many jobs changed.

        Race: a job may change its state after it was found. So the statement that finds it locks it, and the
        one that changes it sees the same state. The history tells of the jobs that have changed: others may
        have been left alone. If there are many, it has one entry for all of them.
        """
        values = {} if form is None else form.values()
        changed, found = 0, 0
        told: list[Job] = []
        with ExitStack() as stack:
            for jobs in parts:
                locked = jobs.select_for_update(no_key=self.stays).order_by("pk")
                stack.enter_context(transaction.atomic(using=locked.db))
                held = hold(locked, MOST_LOGGED + 1)
                changed += self.run(locked if len(held.rows) > MOST_LOGGED else held.jobs, **values)
                found += len(held.rows)
                told += held.changed() if found <= MOST_LOGGED else []
        logger.info("%s by user %s: %d jobs changed", self.permission, request.user.pk, changed)
        if changed:
            words = action_words(self.label, "" if form is None else form.words())
            filters = filter_words(request.GET, str(getattr(request, MEANING, "")))
            if found <= MOST_LOGGED:
                note_each(request.user.pk, told, words, filters)
            else:
                note_all(request.user.pk, words, self.outcome(changed), filters)
        return changed

    def outcome(self, changed: int) -> str:
        """Return the message for the user."""
        if not changed:
            return str(self._refused)
        return str(self._done % {"count": changed, "number": formatting.number(changed)})


def _can_cancel(job: Job) -> bool:
    return not job.is_finished and job.cancel_requested_at is None


def _can_retry(job: Job) -> bool:
    is_paused = job.status == Status.BLOCKED and job.waiting_reason.startswith("paused")
    return job.is_finished or job.status == Status.RETRY or is_paused


def _can_hurry(job: Any) -> bool:
    is_later: bool = job.run_after > job.now  # the time of the server, as the page of a job has it
    return Status(job.status).is_claimable and is_later


def _can_be_extended(job: Job) -> bool:
    return job.status == Status.RUNNING and job.deadline is not None


def _can_be_edited(job: Job) -> bool:
    return not job.is_finished and job.status != Status.RUNNING


def extendable(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Return those of the jobs that can have more time: not the history, where jobs have deadlines, too."""
    return jobs.filter(shelf=LIVE_SHELF, status=Status.RUNNING, deadline__isnull=False)


def _extend(jobs: QuerySet[Job]) -> int:
    return control.extend(jobs, EXTENSION)


ACTIONS = {
    action.permission: action
    for action in (
        Action(
            "retry",
            _("Retry"),
            partial(
                control.retry, done=True
            ),  # the confirmation page lists done jobs, with a right of their own
            _can_retry,
            ngettext_lazy("%(number)s job runs again.", "%(number)s jobs run again.", "count"),
            _(
                "No job changed: running and blocked jobs cannot be retried, nor a job whose unique key "
                "another job has."
            ),
            effects.RETRY,
            _("Retry jobs"),
        ),
        Action(
            "run_now",
            _("Run now"),
            control.run_now,
            _can_hurry,
            ngettext_lazy("%(number)s job is due now.", "%(number)s jobs are due now.", "count"),
            _("No job changed: only jobs that wait for a later time can be run now."),
            effects.RUN,
            _("Run jobs now"),
        ),
        Action(
            "edit",
            _("Edit"),
            control.edit,
            _can_be_edited,
            ngettext_lazy("%(number)s job was edited.", "%(number)s jobs were edited.", "count"),
            _("No job changed: running and finished jobs cannot be edited; the others are as wanted."),
            effects.EDIT,
            _("Edit jobs"),
            EditForm,
        ),
        Action(
            "extend",
            _("Give it one more hour"),
            _extend,
            _can_be_extended,
            ngettext_lazy(
                "%(number)s job has one more hour.", "%(number)s jobs have one more hour each.", "count"
            ),
            _("No job changed: only running jobs with a timeout can be given more time."),
            stays=True,
        ),
        Action(
            "cancel",
            _("Cancel"),
            control.cancel,
            _can_cancel,
            ngettext_lazy(
                "%(number)s job was cancelled, or asked to stop if it was running.",
                "%(number)s jobs were cancelled, or asked to stop if they were running.",
                "count",
            ),
            _("No job changed: jobs that have finished, or were already asked to stop, cannot be cancelled."),
            effects.CANCEL,
            _("Cancel jobs"),
        ),
    )
}
