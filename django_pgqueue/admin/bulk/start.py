"""Where an action on many jobs runs after its confirmation.

Up to ``MOST_AT_ONCE`` jobs change within the request. More of them change in the background: in a job of
``task.run``, which shows its progress, and can be cancelled. If no worker would start this job now, because
none serves its queue, or because it is paused, the request changes as many as it can within ``SECONDS``: a
backlog is often cancelled before the workers are started again, or while everything is paused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import OperationalError, connections, transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from psycopg.errors import QueryCanceled

from ... import conf, formatting
from ...jobs.enqueue import enqueue
from ...models import Job, Pause
from ...models.queue import IN_FORCE
from ...monitoring.workers import Crew
from ...postgres.timeout import TimeLimitReached
from ...tasks.routing import default_backend
from ..history import action_words, filter_words, note, note_all
from . import task
from .effects import number_words
from .order import Order, identity
from .task import Cursor, size_of, take, told

if TYPE_CHECKING:
    from ..base import DatabaseAdmin
    from .actions import Action
    from .edit_form import EditForm
    from .selection import Bounds

MOST_AT_ONCE = 500  # jobs
SECONDS = 10.0


def is_many(expected: int | None) -> bool:
    """Return whether so many jobs do not change at once. None: not all were counted."""
    return expected is None or expected > MOST_AT_ONCE


def is_served(admin: DatabaseAdmin[Job]) -> bool:
    """Return whether a worker would start an action on many jobs now."""
    alias, queue = admin.writes_to, _queue()
    paused = Q(kind=Pause.Kind.ALL) | Q(kind=Pause.Kind.QUEUE, name=queue)
    paused |= Q(kind=Pause.Kind.TASK, name=task.run.module_path)
    return (
        bool(Crew(alias).serving(queue)) and not Pause.objects.using(alias).filter(paused, IN_FORCE).exists()
    )


def where_words(admin: DatabaseAdmin[Job], *, again: bool) -> str:
    """Return where the action would run, for the confirmation page."""
    if again and is_served(admin):
        return _("This runs in the background, as a job of its own, which you can watch and cancel.")
    seconds = {"seconds": formatting.number(int(SECONDS))}
    if again:
        return (
            _(
                "No worker would start this in the background now. So it runs while you wait, for at most "
                "%(seconds)s seconds. After that, repeat it for the rest."
            )
            % seconds
        )
    return _("This runs for at most %(seconds)s seconds. After that, repeat it for the rest.") % seconds


def start(
    admin: DatabaseAdmin[Job],
    request: HttpRequest,
    action: Action,
    effects: list[str],
    counted: int,
    is_exact: bool,
    limits: Bounds,
    form: EditForm | None,
    again: str,
) -> HttpResponse:
    """Enqueue the job that runs the action, and redirect to its page.

    ``again``: the query string of a list that contains these jobs, and that the job reads again.
    """
    across = limits.newest is not None
    order = Order(
        site=identity(admin),
        user=str(request.user.pk),
        action=action.permission,
        effects=effects,
        counted=counted,
        is_exact=is_exact,
        limits=limits,
        query=again,
        meaning=task.meaning_in(request),
        ids=None if across else sorted(map(int, request.POST.getlist(ACTION_CHECKBOX_NAME))),
        values={},
        details="" if form is None else form.words(),
    ).with_values({} if form is None else form.values())
    alias = admin.writes_to
    with transaction.atomic(using=alias):
        job = enqueue(task.run.using(database=alias, queue_name=_queue()), *order.sealed())
        words = [_("Started in the background."), action_words(action.label, order.details)]
        if order.filters:
            words.append(_("Filters: %(filters)s.") % {"filters": order.filters})
        words.append(
            _("Jobs that would change: %(number)s.") % {"number": number_words(counted, is_exact=is_exact)}
        )
        note(request.user.pk, " ".join(words), job)
    admin.message_user(
        request,
        _("“%(action)s” runs in the background. This page shows how far it is.") % {"action": action.title},
        messages.SUCCESS,
    )
    name = f"admin:{Job._meta.app_label}_{Job._meta.model_name}_change"
    return HttpResponseRedirect(reverse(name, args=[job.pk], current_app=admin.admin_site.name))


def act_here(
    admin: DatabaseAdmin[Job],
    request: HttpRequest,
    action: Action,
    parts: Sequence[QuerySet[Job]],
    expected: int | None,
    form: EditForm | None,
) -> None:
    """Run the action in this request, until all jobs are done or the time is over."""
    alias, values = admin.writes_to, {} if form is None else form.values()
    parts = [jobs.using(alias) for jobs in parts]
    deadline = Deadline(alias, SECONDS)

    def change(jobs: QuerySet[Job]) -> int:
        deadline.limit()  # finding them may have taken most of the time
        return action.run(jobs, **values)

    changed, is_whole = _walk(parts, deadline, change)
    words = told(action, changed, expected, whole=is_whole)
    if not is_whole:
        words += " " + _("The time for one request is over. Repeat the action for the rest.")
    if changed:
        filters = filter_words(request.GET, task.meaning_in(request))
        what = action_words(action.label, "" if form is None else form.words())
        note_all(request.user.pk, what, words, filters)
    admin.message_user(request, words, messages.SUCCESS if changed and is_whole else messages.WARNING)


def _walk(
    parts: Sequence[QuerySet[Job]], deadline: Deadline, change: Callable[[QuerySet[Job]], int]
) -> tuple[int, bool]:
    """Change jobs until the time is over. Return how many have changed, and whether all were reached."""
    place, changed, number = Cursor(), 0, 0
    while True:
        try:
            with deadline.transaction():
                chunk = take(parts, place, size_of(number), change)
        except TimeLimitReached:
            return changed, False
        if chunk is None:
            return changed, True
        place, changed, number = chunk.place, changed + chunk.changed, number + 1
        if deadline.is_finished:
            return changed, False


def _queue() -> str:
    """Return the queue of the jobs that run actions: the setting, or one that QUEUES in TASKS permits."""
    chosen, permitted = conf.current().bulk_queue, default_backend().queues
    if chosen is not None:
        return chosen
    return "default" if not permitted or "default" in permitted else min(permitted)


# ----------------------------------------------------------------------------
# The moment at which a request stops changing jobs, also within a statement: a search for text may read a
# long history before it finds the next job.

_LEAST = 1.0  # seconds for a statement, also at the end: most chunks need less
_NOW = """
    SELECT now.setting, 1000 * date_part('epoch', now.setting::interval)
    FROM (SELECT current_setting('statement_timeout') AS setting) AS now
"""
_SET = "SELECT set_config('statement_timeout', %s, true)"


class Deadline:
    """The end of the time for one request."""

    def __init__(self, alias: str, seconds: float) -> None:
        self._alias = alias
        self._end = monotonic() + seconds

    @property
    def is_finished(self) -> bool:
        """Whether the time is over."""
        return monotonic() > self._end

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in a transaction whose statements end with the time. Raises ``TimeLimitReached``, and
        then the block has changed nothing.
        """
        try:
            with transaction.atomic(using=self._alias), connections[self._alias].cursor() as cursor:
                cursor.execute(_NOW)
                before = cursor.fetchone()[0]
                self.limit()
                yield
                # With ATOMIC_REQUESTS, the transaction goes on, and the limit would, too.
                cursor.execute(_SET, [before])
        except OperationalError as error:
            if not isinstance(error.__cause__, QueryCanceled):
                raise
            raise TimeLimitReached from error

    def limit(self) -> None:
        """Let the next statements take as long as there is time, unless the server permits less."""
        most = round(1000 * max(_LEAST, self._end - monotonic()))
        with connections[self._alias].cursor() as cursor:
            cursor.execute(_NOW)
            now = cursor.fetchone()[1]
            if not 0 < now <= most:
                cursor.execute(_SET, [str(most)])
