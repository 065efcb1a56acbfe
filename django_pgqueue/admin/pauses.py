"""Pauses: what is paused, by whom, why, and until when. Adding one pauses, and resuming one deletes it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django.contrib.admin.models import DELETION
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext, pgettext_lazy

from ..compat import InvalidTask
from ..jobs.limits import argument_problem, pause, resume
from ..models import Pause
from ..postgres.clock import server_now
from ..tasks import options
from . import display
from .ask import RowAction, RowActions, RowEffect, about, ask, held, is_confirmed, listed
from .base import DatabaseForm
from .console import details, target
from .display import column
from .history import note_and_tell
from .lists import queue_names, task_paths
from .shard_lists import PARTS

_SUGGESTIONS = "pgqueue-names"  # the id of the list on the page


class PauseForm(DatabaseForm):
    """Checks that the name fits what is paused, and that the end is in the future."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Django looks there for another pause of the same target.
        self.instance._state.db = self.using
        if "name" in self.fields:
            self.fields["name"].widget.attrs["list"] = _SUGGESTIONS
        if "until" in self.fields:
            words = _("In the time zone %(zone)s. Empty: until a user resumes it.")
            self.fields["until"].help_text = words % {"zone": display.zone_name()}

    def clean(self) -> dict[str, Any]:
        """Refuse what ``pause()`` would refuse."""
        cleaned = super().clean() or self.cleaned_data
        kind, name = cleaned.get("kind", self.instance.kind), cleaned.get("name", self.instance.name)
        if kind == Pause.Kind.ALL and name:
            self.add_error("name", _("A pause of everything has no name."))
        check = {Pause.Kind.QUEUE: options.queue_name, Pause.Kind.TASK: options.task_path}.get(kind)
        try:
            if check is not None and "name" not in self.errors:
                check(name)
        except InvalidTask:
            text = {
                Pause.Kind.QUEUE: _("Enter the name of a queue: letters, digits and the characters _ - ."),
                Pause.Kind.TASK: _("Enter the path of a task, such as shop.tasks.sync."),
            }
            self.add_error("name", text[kind])
        if kind == Pause.Kind.ARGUMENT and "name" not in self.errors and argument_problem(name):
            words = _(
                "Enter a task and an argument that is not redacted: shop.tasks.sync kwargs.tenant=acme."
            )
            self.add_error("name", words)
        elif kind in {Pause.Kind.GROUP, Pause.Kind.LIMIT_KEY} and not name:
            self.add_error("name", _("Enter the key."))
        end = cleaned.get("until")
        if end is not None and not timedelta(0) < end - server_now(self.using) <= options.CENTURY:
            self.add_error("until", _("Enter a time in the future, within 100 years."))
        return cleaned


class PauseAdmin(RowActions[Pause]):
    """Pauses and resumes queues, tasks, some of their jobs, or everything."""

    form = PauseForm
    purpose = _(
        "Nothing is paused. A pause keeps workers from starting the jobs of a queue, of a task, of a group, "
        "of a limit key, or all jobs. Add one here, or with manage.py pgqueue pause."
    )
    list_display = ("what", "reason", "author", "since", "end")
    list_display_links = ("what",)
    ordering = ("kind", "name")
    search_fields = ("name", "reason", "author")
    sortable_by = ()
    fixed_fields = ("kind", "name", "author", "since")
    actions = ("resume_selected",)
    row_actions: ClassVar = {"resume": RowAction("resume", _("Resume"), _("Resume"))}
    resume_selected = listed("resume", _("Resume selected"))

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Leave out the end. Django passes on a text, which the field for a time cannot show."""
        return {**super().get_changeform_initial_data(request), "until": None}

    def get_fields(self, request: HttpRequest, obj: Pause | None = None) -> tuple[str, ...]:
        """Show also who paused it, and when."""
        return ("kind", "name", *(() if obj is None else ("author", "since")), "reason", "until")

    def save_model(self, request: HttpRequest, obj: Pause, form: Any, change: bool) -> None:
        """Pause with ``pause()``, which notifies the workers, as does a change of the reason or the end."""
        saved = pause(
            **_arguments(obj), reason=obj.reason, author=request.user.get_username()[:150], until=obj.until,
            using=self.writes_to,
        )  # fmt: skip
        obj.pk = saved.pk
        obj.author, obj.paused_at = saved.author, saved.paused_at

    def has_delete_permission(self, request: HttpRequest, obj: Pause | None = None) -> bool:
        """Never show Django's own pages and buttons that delete: it is called resume here."""
        return False

    has_resume_permission = held("delete")  # to resume deletes a pause

    def ask_or_act(self, request: HttpRequest, name: str, rows: QuerySet[Pause]) -> HttpResponse | None:
        """Resume, and note in the history of the admin which pauses this has ended, and not another user.

        It asks first if an accident would start the jobs of more than one queue or task.
        """
        pauses, text = list(rows), _("{name} is {details}. Workers would start these jobs again.")
        hurts = len(pauses) * getattr(request, PARTS, 1) > 1 or any(
            row.kind == Pause.Kind.ALL for row in pauses
        )
        if hurts and not is_confirmed(request):
            effects = [RowEffect(about(target(row), text, details=details(row))) for row in pauses]
            return ask(self, request, _("Resume"), effects, pauses)
        ended = [row for row in pauses if resume(**_arguments(row), using=self.writes_to)]
        words = ngettext("%(count)d pause has ended.", "%(count)d pauses have ended.", len(ended))
        note_and_tell(self, request, ended, str(_("Resumed.")), words % {"count": len(ended)}, DELETION)
        return None

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """Add the button that resumes, and suggestions for the name."""
        context = super().page_context(request, obj)
        if obj is None:
            context["pgqueue_suggestions_id"] = _SUGGESTIONS
            context["pgqueue_suggestions"] = [
                *((name, _("queue")) for name in queue_names(self.database)),
                *((name, _("task")) for name in task_paths(self.database)),
            ]
        else:
            context["pgqueue_buttons"] = self.buttons(request, obj, ["resume"])
        return context

    what = column(pgettext_lazy("pause", "what"), target)
    since = column(_("since"), lambda row: display.time(row.paused_at))
    end = column(_("until"), lambda row: display.time(row.until) or str(_("it is resumed")))


def _arguments(row: Pause) -> dict[str, Any]:
    """Return the target as arguments of ``pause()`` and ``resume()``."""
    return {"everything": True} if row.kind == Pause.Kind.ALL else {str(row.kind): row.name}
