"""Limits and pauses: what holds jobs back, whatever the code declares.

A limit is how many jobs may run at once, or start in a period. Its numbers can be changed. A pause says what
is paused, by whom, why, and until when. To add one pauses, and to resume one deletes it.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from django.contrib.admin.models import DELETION
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _, ngettext, pgettext_lazy

from .. import formatting
from ..jobs.limits import UNCHANGED, clear_limit, pause, paused_target, resume, write_limit
from ..models import Limit, Pause
from ..monitoring.limits import numbers_text, origin, rate_text, with_running
from ..postgres.clock import server_now
from ..tasks import options
from ..tasks.keys import RateLimit, rate_problem
from . import display
from .ask import RowAction, RowActions, about, held, is_confirmed, listed
from .base import DatabaseAdmin, DatabaseForm
from .console import details, target, with_query
from .display import breakable, column, dimmed
from .lists import NamesInUse
from .shards import PARTS


class LimitForm(DatabaseForm):
    """Checks a limit, and that its name is not used in the displayed database."""

    taken = _("A limit with this name already exists.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "on_full" in self.fields:
            self.fields["on_full"].initial = Limit.OnFull.WAIT
        if self.instance.is_declared and "concurrency" in self.fields:
            self.fields["concurrency"].help_text = _(
                "Empty, and no starts: as the code declares (%(numbers)s)."
            ) % {"numbers": numbers_text(self.instance)}

    def clean(self) -> dict[str, Any]:
        """Refuse a limit of a queue, or a rate, that does not let jobs wait; and a rate that is not whole."""
        cleaned = super().clean() or self.cleaned_data
        name = cleaned.get("name") or self.instance.pk or ""
        conflict = cleaned.get("on_full", self.instance.on_full)
        if (name == "*" or name.startswith("queue:")) and conflict != "wait":
            self.add_error("on_full", _("Jobs always wait for the limit of a queue or of all jobs."))
        if self.errors:
            return cleaned
        rate, per, burst = (cleaned.get(name) for name in ("rate", "per", "burst"))
        if rate is None:
            if (per, burst) != (None, None):
                self.add_error("rate", _("A period and a burst need a number of starts."))
            elif cleaned.get("concurrency") is None and not self.instance.is_declared:
                self.add_error(
                    "concurrency", _("Enter how many jobs may run at once, or how many may start.")
                )
        elif per is None or per <= timedelta(0):
            self.add_error("per", _("Enter a period greater than zero."))
        # Numbers below 1 are refused by the validators of the fields, later.
        elif rate >= 1 <= (burst or 1) and rate_problem(rate, per, burst or 1):
            self.add_error(
                "burst", _("The period, or the time for the whole burst, is longer than 100 years.")
            )
        elif conflict != "wait":
            self.add_error(None, _("Jobs always wait for a rate: no other choice is possible with it."))
        return cleaned


class LimitAdmin(DatabaseAdmin[Limit]):
    """Limits that code declares can be changed, and set back to that. Others can also be deleted."""

    form = LimitForm
    purpose = _(
        "There are no limits yet. A limit is how many jobs of a queue, a task or a key may run at "
        "once, or start in a period. Declare one with a task, as in @task(concurrency=5), or add "
        "one here."
    )
    list_display = ("named", "allowed", "rated", "busy", "on_full", "origin")
    search_fields = ("name",)
    sortable_by = ()
    ordering = ("name",)
    actions = None
    fields = ("name", "concurrency", ("rate", "per", "burst"), "on_full")
    fixed_fields = ("name", "origin")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Limit]:
        """The limits, with the number of jobs that hold their slots."""
        return with_running(super().get_queryset(request))

    named = column(_("name"), lambda limit: breakable(limit.name))
    allowed = column(
        _("jobs at once"),
        lambda limit: "-" if limit.concurrency is None else formatting.number(limit.concurrency),
    )
    rated = column(_("rate"), lambda limit: rate_text(limit.rate, limit.per, limit.burst) or "-")
    busy = column(_("running, all keys"), lambda limit: dimmed(formatting.number(limit.running_now)))
    origin = column(_("source"), origin)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """Make ``on_full`` read-only, too, if the code declares the limit."""
        fixed = super().get_readonly_fields(request, obj)
        return [*fixed, "on_full"] if obj is not None and obj.is_declared else fixed

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str | tuple[str, ...], ...]:
        """Show where an existing limit comes from."""
        return self.fields if obj is None else (*self.fields, "origin")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Do not permit it for a limit that the code declares: the next worker would write it again."""
        return super().has_delete_permission(request, obj) and (obj is None or not obj.is_declared)

    def save_model(self, request: HttpRequest, obj: Limit, form: Any, change: bool) -> None:
        """Set the limit in the database of this class. Without numbers, go back to what the code declares."""
        data = form.cleaned_data
        number, rate = data.get("concurrency"), data.get("rate")
        if number is None and rate is None:
            clear_limit(obj.pk, using=self.writes_to)
            return
        limit = None if rate is None else RateLimit(rate, per=data["per"], burst=data.get("burst") or 1)
        write_limit(obj.pk, number, limit, data.get("on_full", UNCHANGED), using=self.writes_to)

    def delete_model(self, request: HttpRequest, obj: Limit) -> None:
        """Delete the limit, and release the wait queues of its keys as far as one job may run."""
        clear_limit(obj.pk, using=self.writes_to)


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
        words = {
            Pause.Kind.QUEUE: _("Enter the name of a queue: letters, digits and the characters _ - ."),
            Pause.Kind.TASK: _("Enter the path of a task, such as shop.tasks.sync."),
            Pause.Kind.ARGUMENT: _(
                "Enter a task and an argument that is not redacted: shop.tasks.sync kwargs.tenant=acme."
            ),
            Pause.Kind.GROUP: _("Enter the key."),
            Pause.Kind.LIMIT_KEY: _("Enter the key."),
        }
        if kind in words and "name" not in self.errors:
            try:
                paused_target("pause", **{str(kind): name})
            except ValueError:
                self.add_error("name", words[kind])
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
        are_many = len(pauses) * getattr(request, PARTS, 1) > 1
        if (are_many or any(row.kind == Pause.Kind.ALL for row in pauses)) and not is_confirmed(request):
            effects = [about(target(row), text, details=details(row)) for row in pauses]
            return self.ask(request, _("Resume"), effects, pauses)
        ended = [row for row in pauses if resume(**_arguments(row), using=self.writes_to)]
        words = ngettext("%(count)d pause has ended.", "%(count)d pauses have ended.", len(ended))
        self.note_and_tell(request, ended, str(_("Resumed.")), words % {"count": len(ended)}, DELETION)
        return None

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """Add the button that resumes, and suggestions for the name."""
        context = super().page_context(request, obj)
        if obj is None:
            names = NamesInUse(self.database)
            context["pgqueue_suggestions_id"] = _SUGGESTIONS
            context["pgqueue_suggestions"] = [
                *((name, _("queue")) for name in names.queues),
                *((name, _("task")) for name in names.tasks),
            ]
        else:
            context["pgqueue_buttons"] = self.buttons(request, obj, ["resume"])
        return context

    what = column(pgettext_lazy("pause", "what"), target)
    since = column(_("since"), lambda row: display.time(row.paused_at))
    end = column(_("until"), lambda row: display.time(row.until) or str(_("it is resumed")))


def pause_button(url: partial[str], kind: str, name: str) -> str:
    """Return the button that leads to the form of a pause; empty for a user who may not pause anything."""
    form = with_query(url(Pause, "add"), kind=kind, name=name)
    return format_html('<a class="pgqueue-button" href="{}">{}</a>', form, _("Pause")) if form else ""


def _arguments(row: Pause) -> dict[str, Any]:
    """Return the target as arguments of ``pause()`` and ``resume()``."""
    return {"everything": True} if row.kind == Pause.Kind.ALL else {str(row.kind): row.name}
