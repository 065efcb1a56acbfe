"""Limits: how many jobs may run at once, or start in a period, what the code declares, and how many run now.
Numbers can be changed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from .. import formatting
from ..jobs.limits import UNCHANGED, clear_limit, write_limit
from ..models import Limit
from ..monitoring.limits import numbers_text, origin, rate_text, with_running
from ..tasks.keys import RateLimit, rate_problem
from .base import DatabaseAdmin, DatabaseForm
from .display import column, dimmed
from .jobs.texts import breakable


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
