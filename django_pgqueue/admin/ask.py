"""Actions on rows: their buttons, the page that asks for confirmation, and who did what.

The page says what would happen to each row. It posts to its own address what was posted to show it, together
with the rows that it has shown, so the same view runs again: it checks the permissions, and acts on no other
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from django.contrib import admin as django_admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ERROR_FLAG, PAGE_VAR, SEARCH_VAR
from django.contrib.contenttypes.models import ContentType
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.translation import gettext as _, ngettext
from django.views.decorators.http import require_POST

from .. import formatting
from ..models import Job
from .base import DatabaseAdmin, M
from .console import console_page

FIELD = "confirmed"
MOST_SHOWN = 100  # rows


class RowEffect(NamedTuple):
    """What would happen to a row."""

    sentence: Any  # it contains the name (``about``)
    acts: bool = True  # whether the row would change
    mark: str = "row"  # the end of the name of its CSS class, if it would


def about(row: Any, sentence: Any, *, acts: bool = True, **values: Any) -> RowEffect:
    """Return what would happen to a row, with its name in the place of ``{name}``. The name is a part of the
    sentence, because it does not come first in every language.
    """
    name = format_html("<strong>{}</strong>", row)
    return RowEffect(format_html(str(sentence), name=name, **values), acts)


def is_confirmed(request: HttpRequest) -> bool:
    """Return whether the form of the page was sent."""
    return FIELD in request.POST


def _query(request: HttpRequest) -> str:
    return f"?{request.META['QUERY_STRING']}" if request.META["QUERY_STRING"] else ""


@dataclass(frozen=True, slots=True)
class RowAction:
    """An action on rows, of a list or a page."""

    permission: str  # the codename without the model
    label: Any  # what its button and the history call it
    title: Any = ""  # the title of the page that asks


def held(action: str, *, of_jobs: bool = False) -> Callable[[Any, HttpRequest], bool]:
    """Return the method that says whether a user has the permission for an action; ``of_jobs``: for the same
    on jobs, which the admin class of jobs on the same site says, as the project has it.
    """

    def has_permission(self: Any, request: HttpRequest) -> bool:
        if not of_jobs:
            return bool(self.holds(request, action))
        jobs = self.admin_site.get_model_admin(Job) if self.admin_site.is_registered(Job) else None
        may = getattr(jobs, f"has_{action}_permission", None)
        return bool(may(request)) if may else request.user.has_perm(f"django_pgqueue.{action}_job")

    return has_permission


def listed(name: str, label: Any, permission: str = "") -> Callable[[Any, HttpRequest, QuerySet[Any]], Any]:
    """Return an action of a list."""

    @django_admin.action(description=label, permissions=[permission or name])
    def act(self: RowActions[Any], request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        return self.ask_or_act(request, name, queryset)

    return act


class RowActions(DatabaseAdmin[M]):
    """The part of an admin class with the buttons."""

    row_actions: ClassVar[Mapping[str, RowAction]]
    """Each action by its name, which is also the end of the URL of its button."""

    def ask_or_act(self, request: HttpRequest, name: str, rows: QuerySet[M]) -> HttpResponse | None:
        """Return the page that asks; if that was confirmed, act."""
        raise NotImplementedError

    def get_urls(self) -> list[URLPattern]:
        """Add a URL for each button."""
        buttons = [
            self.rowpage(name, self.act_view, action.permission, name=name)
            for name, action in self.row_actions.items()
        ]
        return buttons + super().get_urls()

    @method_decorator(require_POST)
    def act_view(self, request: HttpRequest, row: M, name: str) -> HttpResponseBase:
        """Handle a button of the page of a row."""
        rows = self.get_queryset(request).filter(pk=row.pk)
        page = self.press(request, name, row, rows)
        # The row may be gone: a resumed pause, or a cancelled job of a queue that does not keep jobs.
        is_there = rows.all().exists()  # not what was read before the action
        next_page = self.address("change", row.pk) if is_there else self.address("changelist")
        return page or HttpResponseRedirect(next_page + _query(request))

    def ask(
        self,
        request: HttpRequest,
        title: Any,
        effects: Sequence[RowEffect],
        rows: Sequence[Any] = (),
        *,
        fields: Sequence[tuple[str, Any]] = (),
        **more: Any,
    ) -> TemplateResponse:
        """Return the page for an action on these rows.

        ``fields`` name the rows in another way. ``more`` is for the template: a "warning", what is
        "selected", the "reason_length" of an action that takes a reason, and what ``bulk.confirm`` shows.
        """
        # The user may go back to the list, or to the page of the row.
        key = request.resolver_match.kwargs.get("object_id") if request.resolver_match else None
        row = None if key is None else self.address("change", unquote(key)) + _query(request)
        if not fields:
            # Django needs the action of a list to find it again.
            kept = {FIELD: 1, **({"action": request.POST["action"]} if "action" in request.POST else {})}
            fields = [*kept.items(), *((ACTION_CHECKBOX_NAME, row.pk) for row in rows)]
        return console_page(
            self,
            request,
            "admin/django_pgqueue/confirm.html",
            title,
            effects=effects[:MOST_SHOWN],
            more=len(effects[MOST_SHOWN:]),
            acts=any(effect.acts for effect in effects),
            fields=fields,
            back=row or request.get_full_path(),
            **more,
        )

    def press(self, request: HttpRequest, name: str, row: M, rows: QuerySet[M]) -> HttpResponse | None:
        """Ask or act after a button. ``rows`` has only this row."""
        return self.ask_or_act(request, name, rows)

    def buttons(self, request: HttpRequest, row: M, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return the buttons that fit the row and that this user may press."""
        return [
            {"name": name, "label": self.row_actions[name].label, "url": self.address(name, row.pk)}
            for name in names
            if self.may(request, self.row_actions[name].permission)
        ]


# Who did what: the entries in the admin's own history (``LogEntry``) about actions on jobs. An action on one
# job, or on a few, is in the history of each of them. An action that runs as a job of its own is in the
# history of that job, when it starts and when it ends.
#
# More users read the history than may view arguments, so it never contains a text that was searched, since
# such a search also finds arguments, nor the value of a filter that this package does not know.

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


def note_each(user: Any, jobs: Sequence[Job], words: str, filters: str = "") -> None:
    """Write an entry for each of these jobs, which one action has changed."""
    if len(jobs) > 1:
        one = ngettext("One of %(number)s job.", "One of %(number)s jobs.", len(jobs))
        words += " " + one % {"number": formatting.number(len(jobs))}
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
