"""What the admin lets people do to jobs: four actions, each with its permission and its words."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from ..lifecycle import control
from ..models.job import Status

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest

    from ..models import Job

__all__ = ["ACTIONS", "Action"]

logger = logging.getLogger(__name__)

EXTENSION = timedelta(hours=1)
MOST_LOGGED = 200  # jobs of one action in the admin's own history


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do with jobs. ``permission`` is the codename without the model."""

    permission: str
    label: Any
    run: Callable[[QuerySet[Job]], int]
    fits: Callable[[Job], bool]
    """Whether the detail page offers it; the database decides in the end."""
    _done: Callable[[int], str]
    _refused: Any

    def __call__(self, request: HttpRequest, jobs: QuerySet[Job]) -> tuple[int, str]:
        """Do it in one statement; returns how many jobs changed and what to tell the user."""
        meant = list(jobs.only("pk", "task_path")[: MOST_LOGGED + 1])
        changed = self.run(jobs)
        logger.info("%s by user %s: %d jobs changed", self.permission, request.user.pk, changed)
        if changed and len(meant) <= MOST_LOGGED:
            message = _("Asked for: %(action)s.") % {"action": self.label}
            LogEntry.objects.log_actions(request.user.pk, meant, CHANGE, change_message=str(message))  # type: ignore[arg-type]
        return changed, self._done(changed) if changed else str(self._refused)


def _can_cancel(job: Job) -> bool:
    return not job.is_over and job.cancel_requested_at is None


def _can_retry(job: Job) -> bool:
    return job.is_over or job.status == Status.RETRY


def _can_hurry(job: Job) -> bool:
    return Status(job.status).is_claimable and job.run_after > timezone.now()


def _can_be_extended(job: Job) -> bool:
    return job.status == Status.RUNNING and job.deadline is not None


def _extend(jobs: QuerySet[Job]) -> int:
    return control.extend(jobs.filter(deadline__isnull=False), EXTENSION)


ACTIONS = {
    action.permission: action
    for action in (
        Action(
            "retry",
            _("Retry"),
            control.retry,
            _can_retry,
            lambda count: ngettext("%d job runs again.", "%d jobs run again.", count) % count,
            _("No job changed: running and blocked ones are left alone."),
        ),
        Action(
            "run",
            _("Run now"),
            control.run_now,
            _can_hurry,
            lambda count: ngettext("%d job is due now.", "%d jobs are due now.", count) % count,
            _("No job changed: only those that wait for a later time can be hurried."),
        ),
        Action(
            "extend",
            _("Give it one more hour"),
            _extend,
            _can_be_extended,
            lambda count: (
                ngettext("%d job has one more hour.", "%d jobs have one more hour each.", count) % count
            ),
            _("No job changed: only those that run and have a timeout can be given more time."),
        ),
        Action(
            "cancel",
            _("Cancel"),
            control.cancel,
            _can_cancel,
            lambda count: (
                ngettext(
                    "%d job was cancelled, or asked to stop if it runs.",
                    "%d jobs were cancelled, or asked to stop if they run.",
                    count,
                )
                % count
            ),
            _("No job changed: those that are over, or were asked to stop before, are left alone."),
        ),
    )
}
