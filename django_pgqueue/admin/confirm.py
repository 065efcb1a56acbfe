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
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..models.job import Status
from ..time_limit import TimeLimitReached, time_limit
from . import bulk, bulk_start, changelist, display, effects, job_search
from .actions import ACTIONS
from .console import console_page
from .effects import number, permitted
from .filters import on_shelves
from .outcome import told
from .selection import Bounds, affected, bounds, counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse
    from django.template.response import TemplateResponse

    from ..models import Job
    from .actions import Action
    from .base import DatabaseAdmin
    from .edit_form import EditForm
    from .effects import Effect

__all__ = ["act_on_many"]

FIELD = "confirmed"
SALT = "django_pgqueue.admin.confirm"


@dataclass(frozen=True, slots=True)
class Shown:
    """What the confirmation page has shown, as stored in its form."""

    action: str
    effects: list[str]
    """The effects that change jobs."""
    expected: int | None
    """How many jobs would change; None if there were too many to count."""
    limits: Bounds
    meaning: str
    """What the search term was (``job_search.meaning_of``); "" if there was none."""


def act_on_many(
    admin: DatabaseAdmin[Job],
    request: HttpRequest,
    name: str,
    jobs: QuerySet[Job],
    may: Callable[[str], bool],
    back: str = "",
    again: str | None = None,
) -> HttpResponse | None:
    """Run an action of the list, or show its confirmation page. ``jobs`` are those that Django's changelist
    has selected, or the one of the page with the URL ``back``.

    ``may`` returns whether this user has a permission, named by its codename without the model. ``again``:
    the query string of the list of jobs with which a job in the background finds the same jobs; None if
    there is no such list. Then many jobs change in this request, as far as its time permits.
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
        shown = _shown(name, found, limits, bulk.meaning_in(request))
        total = sum(count for _effect, count in found)
        # A form asks for values; and beyond the window there may be more jobs.
        if total > 1 or (total and (form is not None or limits.oldest is not None)):
            return _ask(admin, request, action, found, shown, form, back, again)
    elif shown.limits.newest is not None and shown.meaning != bulk.meaning_in(request):
        # Race: the jobs with the key that was searched are gone, so that it was now searched as text.
        jobs = jobs.none()
    acting = [effect for effect in meant if effect.acts and effect.key in shown.effects]
    parts = affected(jobs, shown.limits, acting)
    if acting and bulk_start.is_many(shown.expected):
        keys = [effect.key for effect in acting]
        if again is not None and bulk_start.is_served(admin):
            return bulk_start.start(admin, request, action, keys, shown.expected, shown.limits, form, again)
        bulk_start.act_here(admin, request, action, parts, shown.expected, form)
        return None
    changed = action(request, parts, form)
    words = told(action, changed, shown.expected, denied=any(effect.is_denied for effect in meant))
    admin.message_user(request, words, messages.SUCCESS if changed else messages.WARNING)
    return None


def _is_across(request: HttpRequest) -> bool:
    """Return whether all jobs that match are selected, read as in Django's own form."""
    return bool(forms.BooleanField(required=False).to_python(request.POST.get("select_across")))


def _shown(name: str, found: list[tuple[Effect, int]], limits: Bounds, meaning: str) -> Shown:
    acting = [(effect, count) for effect, count in found if effect.acts]
    is_exact = all(count <= effects.MOST_COUNTED for _effect, count in acting)
    expected = sum(count for _effect, count in acting) if is_exact else None
    return Shown(name, [effect.key for effect, _count in acting], expected, limits, meaning)


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
    again: str | None,
) -> TemplateResponse:
    total = sum(count for _effect, count in found)
    is_exact = all(count <= effects.MOST_COUNTED for _effect, count in found)
    across = shown.limits.newest is not None
    ticked = request.POST.getlist(ACTION_CHECKBOX_NAME)
    return console_page(
        admin,
        request,
        "admin/django_pgqueue/confirm_action.html",
        action.title,
        selected=ngettext("%(number)s job is selected.", "%(number)s jobs are selected.", total)
        % {"number": display.number(total) if is_exact else number(effects.MOST_COUNTED + 1)},
        effects=[(effect, effect.sentence(count)) for effect, count in found],
        acts=bool(shown.effects),
        form=form,
        where=bulk_start.where_words(admin, again=again is not None)
        if shown.effects and bulk_start.is_many(shown.expected)
        else "",
        back=back or request.get_full_path(),
        across=across,
        oldest=shown.limits.oldest,
        window=display.number(changelist.WINDOW),
        fields=[
            ("action", f"{action.permission}_jobs"),
            ("select_across", int(across)),
            (FIELD, signing.dumps(asdict(shown), salt=SALT)),
            # Django requires at least one.
            *((ACTION_CHECKBOX_NAME, pk) for pk in (ticked[:1] if across else ticked)),
        ],
    )
