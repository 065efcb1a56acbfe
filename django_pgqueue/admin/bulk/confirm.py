"""The confirmation page for an action on more than one job, and where the action runs after it.

The selected jobs, or "all that match", are counted by state. If there is only one, the action runs
immediately. Otherwise, the confirmation page is shown. Its form contains the counts, signed, so that the
action changes only the jobs that were shown.

Up to ``MOST_AT_ONCE`` jobs change within the request. More of them change in the background: in a job of
``task.run``, which shows its progress, and can be cancelled. If no worker would start this job now, because
none serves its queue, or because it is paused, the request changes as many as it can within ``SECONDS``: a
backlog is often cancelled before the workers are started again, or while everything is paused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from time import monotonic
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core import signing
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _, ngettext

from ... import conf, formatting
from ...formatting import get_logger
from ...jobs.chunks import Chunk, walk
from ...jobs.enqueue import enqueue
from ...models import Job, Pause
from ...models.job import Status
from ...models.queue import IN_FORCE
from ...monitoring.depth import Counted
from ...monitoring.workers import Crew
from ...postgres.timeout import TimeLimitReached, time_limit
from ...tasks.routing import default_backend
from ..ask import FIELD, RowActions, RowEffect, action_words, filter_words, note_all, note_each
from ..base import DatabaseAdmin
from ..display import filled, linked
from ..jobs.filters import on_shelves
from ..jobs.forms import EditForm
from ..jobs.search import MEANING
from ..shards import PARTS
from . import actions, task
from .actions import ACTIONS, Action, Effect, Shown, affected, bounds, count, glance, permitted

logger = get_logger(__name__)

SALT = "django_pgqueue.admin.confirm"
COUNT = "count"  # the button that asks to count all of them
GROUP = "group"  # the field of the group of failures whose page has started the action, and shows again
MOST_AT_ONCE = 500  # jobs that change in the request, each with an entry in its history
SECONDS = 10.0  # for an action in the request
_LEAST = 1.0  # seconds for a statement, also at the end: most chunks need less


def act_on_many(
    admin: RowActions[Job], request: HttpRequest, name: str, jobs: QuerySet[Job], *, is_list: bool
) -> HttpResponse | None:
    """Run an action, or show its confirmation page.

    ``is_list``: whether Django's changelist has selected ``jobs``. A job in the background can read this list
    again. Otherwise there is one job, which changes in this request.
    """
    action = ACTIONS[name]
    meant = permitted(name, admin, request)
    shown, counts = _confirmed(request, name), COUNT in request.POST
    given: Any = {"data": None if shown is None else request.POST}
    if counts:  # what is filled in stays
        given = {"initial": request.POST.dict()}
    form = None if action.form is None else action.form(**given)
    if shown is not None and shown.newest is not None and shown.meaning != _meaning(request):
        # Race: the jobs with the key that was searched are gone, so that it was now searched as text.
        jobs = jobs.none()
    if shown is None or counts or (form is not None and not form.is_valid()):
        # The jobs are shown as they are now. The ones that were already shown are counted to the end.
        shown, found = _look(admin, request, name, jobs, meant, shown if counts else None)
        meant = [effect for effect, _count in found]
        total = Counted.sum(each for _effect, each in found)
        # A form asks for values, beyond the bounds there may be more jobs, and other shards have more.
        is_part = getattr(request, PARTS, 1) > 1
        asks = form is not None or shown.oldest is not None or is_part
        if counts or total.plural > 1 or (total.number and asks):
            return _page(admin, request, shown, found, form, is_list=is_list)
        if is_part and shown.newest is not None:
            return None  # what it is about is in other shards
    acting = [effect for effect in meant if effect.acts and effect.kind in shown.effects]
    if acting and _is_many(shown) and is_list and _is_served(admin):
        return _start(admin, request, action, shown, form)
    denied = any(effect.is_denied for effect in meant)
    parts = affected(jobs, shown, acting)
    act_here(admin, request, action, parts, form, expected=shown.expected, denied=denied)
    return HttpResponseRedirect(page) if (page := _group_page(admin, request)) else None


def _group_page(admin: DatabaseAdmin[Job], request: HttpRequest) -> str:
    """Return the address of the group of failures whose page has started the action; empty without one."""
    group = request.POST.get(GROUP)
    return admin.address("failure", group) if group else ""


def _meaning(request: HttpRequest) -> str:
    """Return what the search term of a list was, after the list was read."""
    return str(getattr(request, MEANING, ""))


def _look(
    admin: DatabaseAdmin[Job],
    request: HttpRequest,
    name: str,
    jobs: QuerySet[Job],
    meant: list[Effect],
    limits: Shown | None = None,
) -> tuple[Shown, list[tuple[Effect, Counted]]]:
    """Count the jobs, and return the effects for which there are some. ``limits``: the bounds that a page
    has shown.
    """
    status = request.GET.get("status", "")
    if status in Status.values:
        meant = [effect for effect in meant if status in effect.states]
    # Whether all jobs that match are selected, read as in Django's own form.
    across = bool(forms.BooleanField(required=False).to_python(request.POST.get("select_across")))
    limits = limits or bounds(on_shelves(status, admin.get_queryset(request)), across=across)
    counted_by = glance if across and COUNT not in request.POST else count
    found = [pair for pair in zip(meant, counted_by(jobs, limits, meant), strict=True) if pair[1].plural]
    acting = [pair for pair in found if pair[0].acts]
    counted = Counted.sum(each for _effect, each in acting)
    shown = replace(
        limits,
        action=name,
        effects=[effect.kind for effect, _count in acting],
        counted=counted.number,
        is_exact=counted.is_exact,
        meaning=_meaning(request),
    )
    return shown, found


def _confirmed(request: HttpRequest, name: str) -> Shown | None:
    """Return what the submitted form had shown; None if it is missing or invalid, and the page is shown."""
    try:
        shown = Shown(**signing.loads(request.POST.get(FIELD, ""), salt=SALT))
    except (signing.BadSignature, TypeError):
        return None
    return shown if shown.action == name else None


def _page(
    admin: RowActions[Job],
    request: HttpRequest,
    shown: Shown,
    found: list[tuple[Effect, Counted]],
    form: EditForm | None,
    *,
    is_list: bool,
) -> TemplateResponse:
    across = shown.newest is not None
    ticked = request.POST.getlist(ACTION_CHECKBOX_NAME)
    total = Counted.sum(each for _effect, each in found)
    selected = ngettext("%(number)s job is selected.", "%(number)s jobs are selected.", total.plural)
    selected %= {"number": total}
    if across and (filters := filter_words(request.GET, shown.meaning)):
        selected += " " + _("Filters: %(filters)s.") % {"filters": filters}
    where = ""
    if shown.effects and _is_many(shown) and is_list and _is_served(admin):
        where = _("This runs in the background, as a job of its own, which you can watch and cancel.")
    elif shown.effects and _is_many(shown):
        where = _("This runs for at most %(seconds)s seconds. After that, repeat it for the rest.")
        if is_list:
            where = _(
                "No worker can run this in the background now. It runs in this request, for at most "
                "%(seconds)s seconds. After that, repeat it for the rest."
            )
        where %= {"seconds": formatting.number(int(SECONDS))}
    return admin.ask(
        request,
        ACTIONS[shown.action].title,
        [
            RowEffect(effect.sentence(each), effect.acts, "alarm" if effect.reruns else "acts")
            for effect, each in found
        ],
        fields=[
            ("action", f"{shown.action}_jobs"),
            ("select_across", int(across)),
            (FIELD, signing.dumps(asdict(shown), salt=SALT)),
            *((GROUP, group) for group in request.POST.getlist(GROUP)),
            # Django requires at least one.
            *((ACTION_CHECKBOX_NAME, pk) for pk in (ticked[:1] if across else ticked)),
        ],
        selected=selected,
        form=form,
        where=where,
        across=across,
        may_count=across and not total.is_exact and COUNT not in request.POST,
        oldest=shown.oldest,
        window=formatting.number(actions.MOST_FINISHED),
    )


def _is_many(shown: Shown) -> bool:
    """Return whether so many jobs do not change at once, or are not all counted."""
    return shown.expected is None or shown.expected > MOST_AT_ONCE


def _is_served(admin: DatabaseAdmin[Job]) -> bool:
    """Return whether a worker would start an action on many jobs now."""
    alias, queue = admin.writes_to, _queue()
    paused = Q(kind=Pause.Kind.ALL) | Q(kind=Pause.Kind.QUEUE, name=queue)
    paused |= Q(kind=Pause.Kind.TASK, name=task.run.module_path)
    pauses = Pause.objects.using(alias).filter(paused, IN_FORCE)
    return bool(Crew(alias).serving(queue)) and not pauses.exists()


def _queue() -> str:
    """Return the queue of the jobs that run actions: the setting, or one that QUEUES in TASKS permits."""
    chosen, permitted = conf.current().bulk_queue, default_backend().queues
    if chosen is not None:
        return chosen
    return "default" if not permitted or "default" in permitted else min(permitted)


def _start(
    admin: DatabaseAdmin[Job], request: HttpRequest, action: Action, shown: Shown, form: EditForm | None
) -> HttpResponse:
    """Enqueue the job that runs the action, and redirect to its page. The job reads the list again."""
    values = {} if form is None else form.values()
    ids = None if shown.newest is not None else sorted(map(int, request.POST.getlist(ACTION_CHECKBOX_NAME)))
    order = task.Order(
        **asdict(shown),
        site=task.identity(admin),
        user=str(request.user.pk),
        query=request.GET.urlencode(),
        ids=ids,
        values={
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in values.items()
        },
        details="" if form is None else form.words(),
    )
    alias = admin.writes_to
    with transaction.atomic(using=alias):
        job = enqueue(task.run.using(database=alias, queue_name=_queue()), *order.sealed())
        words = [_("Started in the background."), action_words(action.label, order.details)]
        if filters := filter_words(request.GET, order.meaning):
            words.append(_("Filters: %(filters)s.") % {"filters": filters})
        text = _("Jobs that would change: %(number)s.")
        words.append(text % {"number": Counted(shown.counted, shown.is_exact)})
        note_each(request.user.pk, [job], " ".join(words))
    progress, group_page = admin.address("change", job.pk), _group_page(admin, request)
    said = _("“%(action)s” runs in the background. This page shows how far it is.") % {"action": action.title}
    if group_page:
        link = linked(progress, _("job %(job)s") % {"job": job.pk})
        said = filled(_("“%(action)s” runs in the background: %(job)s."), action=action.title, job=link)
    admin.message_user(request, said, messages.SUCCESS)
    return HttpResponseRedirect(group_page or progress)


def act_here(
    admin: DatabaseAdmin[Job],
    request: HttpRequest,
    action: Action,
    parts: Sequence[QuerySet[Job]],
    form: EditForm | None = None,
    *,
    expected: int | None = None,
    denied: bool = False,
    refused: str = "",
) -> None:
    """Run the action in this request, until all jobs are done or the time has passed.

    ``expected`` and ``denied``: see ``Action.message``. ``refused``: the message if no job changed.
    """
    alias, end = admin.writes_to, monotonic() + SECONDS
    # Without parts, the form may not be valid: the jobs have left the list since it was shown.
    values = {} if form is None or not parts else form.values()
    changed, is_whole, acted_on = 0, True, list[Any]()

    def change(jobs: QuerySet[Job]) -> int:
        # Before they change: a job that is cancelled may be gone then.
        named = [] if len(acted_on) > MOST_AT_ONCE else list(jobs.only("pk", "task_path").order_by("pk"))
        ids = set(action.run(jobs, **values))
        acted_on.extend(job for job in named if job.pk in ids)
        return len(ids)

    def commit(_number: int, take: Callable[[], Chunk | None]) -> Chunk | None:
        # A search for text may read a long history before it finds the next job.
        with time_limit(alias, max(_LEAST, end - monotonic()), keep=True):
            return take()

    try:
        for chunk in walk([jobs.using(alias) for jobs in parts], change, commit):
            changed += chunk.changed
            if monotonic() > end:
                is_whole = False
                break
    except TimeLimitReached:
        is_whole = False
    logger.info("%s by user %s: %d jobs changed", action.permission, request.user.pk, changed)
    words = action.message(changed, expected, denied=denied, whole=is_whole)
    if refused and is_whole and not changed:
        words = refused
    if not is_whole:
        words += " " + _("The time for one request has passed. Repeat the action for the rest.")
    if changed:
        what = action_words(action.label, "" if form is None else form.words())
        filters = filter_words(request.GET, _meaning(request))
        if len(acted_on) > MOST_AT_ONCE:
            note_all(request.user.pk, what, words, filters)
        else:
            note_each(request.user.pk, acted_on, what, filters)
    admin.message_user(request, words, messages.SUCCESS if changed and is_whole else messages.WARNING)
