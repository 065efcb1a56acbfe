"""The confirmation page for an action on more than one job, and the action after the confirmation.

The selected jobs, or "all that match", are counted by state. If there is only one, the action runs
immediately. Otherwise, the confirmation page is shown. Its form contains the counts, signed, so that the
action changes only the jobs that were shown.

The page reads a bounded number of jobs (``selection``). If that is not enough for an exact number, it has a
button that counts them all, within ``SECONDS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core import signing
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ... import formatting
from ...models import Job
from ...models.job import Status
from ...postgres.timeout import TimeLimitReached, time_limit, within
from .. import lists
from ..console import console_page
from ..jobs import search
from ..jobs.filters import on_shelves
from . import start, task
from .actions import ACTIONS
from .effects import number_words, permitted
from .selection import Bounds, Counted, affected, bounds, count_all, count_cheaply
from .task import told

if TYPE_CHECKING:
    from ..base import DatabaseAdmin
    from .actions import Action
    from .edit_form import EditForm
    from .effects import Effect

FIELD = "confirmed"
COUNT = "count"  # the name of the button that counts all jobs
SECONDS = 3.0  # for each statement of the page
WINDOW_OF_WAITING = 30_000  # jobs that wait; of which not more are counted if that takes long
WINDOW_OF_OVER = 60_000  # finished jobs and would change; no others are meant
WINDOW_OF_STAYING = 10_000  # finished jobs and would not change
SALT = "django_pgqueue.admin.confirm"


@dataclass(frozen=True, slots=True)
class Shown:
    """What the confirmation page has shown, as stored in its form."""

    action: str
    effects: list[str]
    """The effects that change jobs."""
    counted: int
    """How many jobs would change."""
    is_exact: bool
    """If not, more of them would change than were counted."""
    limits: Bounds
    meaning: str
    """What the search term was (``search.meaning_of``); "" if there was none."""

    @property
    def expected(self) -> int | None:
        """How many jobs would change; None if that is not known."""
        return self.counted if self.is_exact else None


class _Look(NamedTuple):
    """What there is now."""

    limits: Bounds
    found: list[tuple[Effect, Counted]]
    """How many jobs there are for each effect, without the effects for which there are none."""
    windows: dict[str, int]
    """How many jobs were looked at, of those that are over and of those that wait."""
    may_count: bool
    """Whether the user may ask for a count of all."""
    gave_up: bool
    """Whether it took too long to count all."""

    @property
    def total(self) -> int:
        """The number of jobs."""
        return sum(count.number for _effect, count in self.found)

    @property
    def is_exact(self) -> bool:
        """Whether all numbers are exact."""
        return all(count.is_exact for _effect, count in self.found)


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
    shown = None if COUNT in request.POST else _confirmed(request, name)
    form = None if action.form is None else _form(action.form, request, is_sent=shown is not None)
    if form is not None and not form.is_valid():
        shown = None  # the page is shown again, with the errors and the jobs as they are now
    if shown is None:
        try:
            look = _look(admin, request, jobs, meant)
        except TimeLimitReached:
            words = _("The search gave up after %(seconds)g s. No job changed.") % {"seconds": SECONDS}
            admin.message_user(request, words, messages.WARNING)
            return None
        meant = [effect for effect, _count in look.found]
        shown = _shown(name, look, task.meaning_in(request))
        # A form asks for values, beyond the window there may be more jobs, and a count is to be seen.
        asks = form is not None or look.limits.oldest is not None or COUNT in request.POST
        if look.total > 1 or look.may_count or not look.is_exact or (look.total and asks):
            return _ask(admin, request, action, look, shown, form, back, again)
    elif shown.limits.newest is not None and shown.meaning != task.meaning_in(request):
        # Race: the jobs with the key that was searched are gone, so that it was now searched as text.
        jobs = jobs.none()
    acting = [effect for effect in meant if effect.acts and effect.key in shown.effects]
    parts = affected(jobs, shown.limits, acting)
    if acting and start.is_many(shown.expected):
        keys = [effect.key for effect in acting]
        if again is not None and start.is_served(admin):
            return start.start(
                admin, request, action, keys, shown.counted, shown.is_exact, shown.limits, form, again
            )
        start.act_here(admin, request, action, parts, shown.expected, form)
        return None
    # Nothing to change, no values to read: the jobs may have left the list since it was shown.
    changed = action(request, parts, form) if parts else 0
    words = told(action, changed, shown.expected, denied=any(effect.is_denied for effect in meant))
    admin.message_user(request, words, messages.SUCCESS if changed else messages.WARNING)
    return None


def _is_across(request: HttpRequest) -> bool:
    """Return whether all jobs that match are selected, read as in Django's own form."""
    return bool(forms.BooleanField(required=False).to_python(request.POST.get("select_across")))


def _form(form: type[EditForm], request: HttpRequest, *, is_sent: bool) -> EditForm:
    """Return the form for the new values. Another count keeps what was typed."""
    return form(request.POST) if is_sent else form(initial=request.POST.dict())


def _look(admin: DatabaseAdmin[Job], request: HttpRequest, jobs: QuerySet[Job], meant: list[Effect]) -> _Look:
    """Count the jobs: all of them if the user has asked for that."""
    status = request.GET.get("status", "")
    if status in Status.values:
        meant = [effect for effect in meant if status in effect.states]
    pool = on_shelves(status, admin.get_queryset(request))
    across, counts_all = _is_across(request), COUNT in request.POST
    is_scan = across and task.meaning_in(request) in search.SCANS
    changes_over = any(effect.acts and effect.is_finished for effect in meant)
    over = min(lists.WINDOW, WINDOW_OF_OVER) if changes_over else WINDOW_OF_STAYING
    waiting = WINDOW_OF_WAITING
    if is_scan and not counts_all:
        over, waiting = (min(window, search.WINDOW_OF_SCAN) for window in (over, waiting))
    with time_limit(jobs.db, SECONDS):
        limits = bounds(pool, across=across, window=over)
        exact = within(jobs.db, SECONDS, lambda: count_all(jobs, limits, meant)) if counts_all else None
        numbers = exact or count_cheaply(jobs, limits, meant, pool=pool, window=waiting, is_scan=is_scan)
    found = [pair for pair in zip(meant, numbers, strict=True) if pair[1].number or not pair[1].is_exact]
    is_cut = not all(count.is_exact for count in numbers) or (
        is_scan and changes_over and limits.oldest is not None
    )
    return _Look(
        limits,
        found,
        {"over": over, "waiting": waiting},
        may_count=is_cut and not counts_all,
        gave_up=counts_all and exact is None,
    )


def _shown(name: str, look: _Look, meaning: str) -> Shown:
    acting = [(effect, count) for effect, count in look.found if effect.acts]
    return Shown(
        name,
        [effect.key for effect, _count in acting],
        sum(count.number for _effect, count in acting),
        all(count.is_exact for _effect, count in acting),
        look.limits,
        meaning,
    )


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
    look: _Look,
    shown: Shown,
    form: EditForm | None,
    back: str,
    again: str | None,
) -> TemplateResponse:
    across = shown.limits.newest is not None
    ticked = request.POST.getlist(ACTION_CHECKBOX_NAME)
    return console_page(
        admin,
        request,
        "admin/django_pgqueue/confirm_action.html",
        action.title,
        selected=ngettext(
            "%(number)s job is selected.",
            "%(number)s jobs are selected.",
            look.total if look.is_exact else max(look.total, 2),
        )
        % {"number": number_words(look.total, is_exact=look.is_exact)},
        effects=[
            (effect, effect.sentence(count.number, is_exact=count.is_exact)) for effect, count in look.found
        ],
        acts=bool(shown.effects),
        is_exact=look.is_exact,
        gave_up=look.gave_up,
        may_count=look.may_count,
        seconds=SECONDS,
        form=form,
        where=start.where_words(admin, again=again is not None)
        if shown.effects and start.is_many(shown.expected)
        else "",
        back=back or request.get_full_path(),
        across=across,
        oldest=shown.limits.oldest,
        windows={kind: formatting.number(window) for kind, window in look.windows.items()},
        fields=[
            ("action", f"{action.permission}_jobs"),
            ("select_across", int(across)),
            (FIELD, signing.dumps(asdict(shown), salt=SALT)),
            # Django requires at least one.
            *((ACTION_CHECKBOX_NAME, pk) for pk in (ticked[:1] if across else ticked)),
        ],
    )
