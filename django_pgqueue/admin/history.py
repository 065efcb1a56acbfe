"""Who did what: the entries in the admin's own history (``LogEntry``) about actions on jobs.

An action on one job, or on a few, is in the history of each of them. An action that runs as a job of its own
is in the history of that job, when it starts and when it ends.

More users read the history than may view arguments, so it never contains a text that was searched, since
such a search also finds arguments, nor the value of a filter that this package does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.views.main import ERROR_FLAG, PAGE_VAR, SEARCH_VAR
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest, QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .. import formatting
from ..models import Job

_LONGEST_NAME = 200  # characters, of LogEntry.object_repr
#: The filters whose values say nothing about arguments, and what a search term is if it says nothing, either.
_TOLD = {"status", "due", "queue", "task", "worker", "enqueued", "finished"}
_TOLD_TERMS = {"id", "key", "batch", "fingerprint"}
_HIDDEN = "…"


def action_words(label: object, details: str = "") -> str:
    """Return which action it was. ``details``: the new values of an edit, in words."""
    return _("Action: %(action)s.") % {"action": f"{label} ({details})" if details else label}


def filter_words(query: QueryDict, meaning: str) -> str:
    """Return the filters of a list, such as "status=failed, queue=mail"; "" if it has none.

    ``meaning``: what the search term was (``jobs.search.meaning_of``), if there was one.
    """
    kept = {*_TOLD, SEARCH_VAR} if meaning in _TOLD_TERMS else _TOLD
    return ", ".join(
        f"{name}={text if name in kept else _HIDDEN}"
        for name, texts in query.lists()
        for text in texts
        if text and name not in {PAGE_VAR, ERROR_FLAG}
    )


def note_and_tell(
    admin: ModelAdmin[Any],
    request: HttpRequest,
    rows: Sequence[Any],
    note: str,
    words: str,
    flag: int = CHANGE,
) -> None:
    """Write a note for each of the rows that an action has changed, and show the user what has come of it."""
    LogEntry.objects.log_actions(request.user.pk, rows, flag, change_message=note)  # type: ignore[arg-type]
    admin.message_user(request, words, messages.SUCCESS if rows else messages.WARNING)


def note_each(user: Any, jobs: Sequence[Job], words: str, filters: str = "") -> None:
    """Write an entry for each of these jobs, which one action has changed."""
    if len(jobs) > 1:
        words += " " + ngettext("One of %(number)s job.", "One of %(number)s jobs.", len(jobs)) % {
            "number": formatting.number(len(jobs))
        }
        if filters:
            words += " " + _("Filters: %(filters)s.") % {"filters": filters}
    LogEntry.objects.log_actions(user, jobs, CHANGE, change_message=words)


def note_all(user: Any, words: str, outcome: str, filters: str) -> None:
    """Write one entry about an action that has changed too many jobs for an entry each."""
    parts = [words, _("Filters: %(filters)s.") % {"filters": filters} if filters else "", outcome]
    name = _("jobs with %(filters)s") % {"filters": filters} if filters else _("jobs")
    LogEntry.objects.create(
        user_id=user,
        content_type=ContentType.objects.get_for_model(Job),
        object_repr=name[:_LONGEST_NAME],
        action_flag=CHANGE,
        change_message=" ".join(filter(None, parts)),
    )


def is_noted(user: Any, job: Job) -> bool:
    """Return whether this user is in the history of a job."""
    of_jobs = LogEntry.objects.filter(content_type=ContentType.objects.get_for_model(Job), user_id=user)
    return of_jobs.filter(object_id=str(job.pk)).exists()
