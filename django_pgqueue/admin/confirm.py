"""The confirmation page for an action on more than one job, and the action after the confirmation.

The selected jobs, or "all that match", are counted by state. If there is only one, the action runs
immediately. Otherwise, the confirmation page is shown. Its form contains the counts, signed, so that the
action changes only the jobs that were shown.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import SEARCH_VAR
from django.core import signing
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, ngettext_lazy

from ..models.job import Status
from ..time_limit import TimeLimitReached, time_limit
from . import changelist, display, effects, job_search
from .actions import ACTIONS
from .effects import number, permitted
from .filters import on_shelves
from .selection import Bounds, affected, bounds, counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse

    from ..models import Job
    from .actions import Action
    from .base import DatabaseAdmin
    from .edit_form import EditForm
    from .effects import Effect

__all__ = ["act_on_many"]

FIELD = "confirmed"
SALT = "django_pgqueue.admin.confirm"

_OTHERS_TO_RETRY = ngettext_lazy(
    "%(number)s other was left alone: it changed in the meantime, or another job has its unique key.",
    "%(number)s others were left alone: they changed in the meantime, or other jobs have their unique keys.",
    "count",
)
_OTHERS = ngettext_lazy(
    "%(number)s other changed in the meantime and was left alone.",
    "%(number)s others changed in the meantime and were left alone.",
    "count",
)


@dataclass(frozen=True, slots=True)
class Shown:
    """What the confirmation page has shown, as stored in its form."""

    action: str
    effects: list[str]
    """The effects that change jobs."""
    expected: int | None
    """How many jobs would change; None if there were too many to count."""
    limits: Bounds


def act_on_many(
    admin: DatabaseAdmin[Job],
    request: HttpRequest,
    name: str,
    jobs: QuerySet[Job],
    may: Callable[[str], bool],
    back: str = "",
) -> HttpResponse | None:
    """Run an action of the list, or show its confirmation page. ``jobs`` are those that Django's changelist
    has selected, or the one of the page with the URL ``back``.

    ``may`` returns whether this user has a permission, named by its codename without the model.
    """
    action = ACTIONS[name]
    meant = permitted(action.effects, may)
    shown = _confirmed(request, name)
    form = None if action.form is None else action.form(request.POST if shown else None)
    if form is not None and not form.is_valid():
        shown = None  # the page is shown again, with the errors and the jobs as they are now
    if shown is None:
        status = request.GET.get("status", "")
        if status in Status.values:
            meant = [effect for effect in meant if status in effect.states]
        pool = on_shelves(status, admin.get_queryset(request))
        limit = job_search.SECONDS if request.GET.get(SEARCH_VAR) else None
        try:
            with time_limit(jobs.db, limit) if limit else nullcontext():
                limits = bounds(pool, across=_is_across(request))
                numbers = counts(jobs, limits, meant)
        except TimeLimitReached:
            words = _("The search gave up after %(seconds)g s. No job changed.") % {"seconds": limit}
            admin.message_user(request, words, messages.WARNING)
            return None
        found = [pair for pair in zip(meant, numbers, strict=True) if pair[1]]
        meant = [effect for effect, _count in found]
        shown = _shown(name, found, limits)
        total = sum(count for _effect, count in found)
        # A form asks for values; and beyond the window there may be more jobs.
        if total > 1 or (total and (form is not None or limits.oldest is not None)):
            return _ask(admin, request, action, found, shown, form, back)
    acting = [effect for effect in meant if effect.acts and effect.key in shown.effects]
    changed = action(request, affected(jobs, shown.limits, acting), form)
    words = _told(action, changed, shown.expected, denied=any(effect.is_denied for effect in meant))
    admin.message_user(request, words, messages.SUCCESS if changed else messages.WARNING)
    return None


def _is_across(request: HttpRequest) -> bool:
    """Return whether all jobs that match are selected, read as in Django's own form."""
    return bool(forms.BooleanField(required=False).to_python(request.POST.get("select_across")))


def _shown(name: str, found: list[tuple[Effect, int]], limits: Bounds) -> Shown:
    acting = [(effect, count) for effect, count in found if effect.acts]
    is_exact = all(count <= effects.MOST_COUNTED for _effect, count in acting)
    expected = sum(count for _effect, count in acting) if is_exact else None
    return Shown(name, [effect.key for effect, _count in acting], expected, limits)


def _confirmed(request: HttpRequest, name: str) -> Shown | None:
    """Return what the submitted form had shown; None if it is missing or invalid, and the page is shown."""
    try:
        given = signing.loads(request.POST.get(FIELD, ""), salt=SALT)
        shown = Shown(**{**given, "limits": Bounds(**given["limits"])})
    except (signing.BadSignature, TypeError, KeyError):
        return None
    return shown if shown.action == name else None


def _ask(
    admin: DatabaseAdmin[Job],
    request: HttpRequest,
    action: Action,
    found: list[tuple[Effect, int]],
    shown: Shown,
    form: EditForm | None,
    back: str,
) -> TemplateResponse:
    total = sum(count for _effect, count in found)
    is_exact = all(count <= effects.MOST_COUNTED for _effect, count in found)
    across = shown.limits.newest is not None
    ticked = request.POST.getlist(ACTION_CHECKBOX_NAME)
    context = {
        **admin.admin_site.each_context(request),
        "title": action.title,
        "opts": admin.opts,
        "media": admin.media,
        "selected": ngettext("%(number)s job is selected.", "%(number)s jobs are selected.", total)
        % {"number": display.number(total) if is_exact else number(effects.MOST_COUNTED + 1)},
        "effects": [(effect, effect.sentence(count)) for effect, count in found],
        "acts": bool(shown.effects),
        "form": form,
        "back": back or request.get_full_path(),
        "across": across,
        "oldest": shown.limits.oldest,
        "window": display.number(changelist.WINDOW),
        "fields": [
            ("action", f"{action.permission}_jobs"),
            ("select_across", int(across)),
            (FIELD, signing.dumps(asdict(shown), salt=SALT)),
            # Django requires at least one.
            *((ACTION_CHECKBOX_NAME, pk) for pk in (ticked[:1] if across else ticked)),
        ],
    }
    request.current_app = admin.admin_site.name
    return TemplateResponse(request, "admin/django_pgqueue/confirm_action.html", context)


def _told(action: Action, changed: int, expected: int | None, *, denied: bool) -> str:
    """Return the message about the jobs that changed, and those that were shown but did not change."""
    if not changed and expected and action.permission == "retry":
        return _("No job changed: all of them changed in the meantime, or other jobs have their unique keys.")
    if not changed and expected:
        return _("No job changed: all of them changed in the meantime.")
    if not changed and denied:
        return _("No job changed: you may not run done jobs again.")
    words = action.outcome(changed)
    left = (expected or 0) - changed
    if changed and left > 0:
        others = _OTHERS_TO_RETRY if action.permission == "retry" else _OTHERS
        words += " " + str(others % {"count": left, "number": display.number(left)})
    return words
