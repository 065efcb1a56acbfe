"""``run``: the task that carries out an action of the admin on many jobs, in the background.

Each chunk of jobs is an atomic step: it changes its jobs and records how far the walk is in one transaction.
So the job continues where it was if its worker dies, or if it is cancelled and retried, and changes nothing
twice. Between two chunks, it looks whether it was cancelled, and whether the user may still do this.

Its order is JSON and has a seal: a signature with the project's ``SECRET_KEY``. So nobody can have jobs
changed in the name of another user by enqueueing a job with other arguments. It is refused after a day.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from django.contrib.admin.sites import all_sites
from django.contrib.auth import get_user_model
from django.core import signing
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict
from django.urls import get_resolver
from django.utils.translation import gettext as _

from ...exceptions import CancelJob
from ...jobs.chunks import Chunk, Cursor, walk
from ...jobs.current import current_job
from ...models import Job, LiveJob
from ...postgres.clock import server_now
from ...postgres.timeout import within
from ...tasks.decorator import task
from ..history import action_words, is_noted, note_each
from ..jobs.filters import AS_OF
from ..jobs.search import MEANING
from .actions import ACTIONS, Action, Effect, permitted
from .selection import Shown, affected

if TYPE_CHECKING:
    from typing import Self

SALT = "django_pgqueue.admin.bulk"
LONGEST = timedelta(days=1)
COUNT_SECONDS = 60.0


class Refused(Exception):
    """The order is not carried out, or no further; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Shown):
    """What was confirmed, by whom, and how the same jobs are found again. All values are JSON."""

    site: str
    """The admin site and the classes that show the jobs (``identity``)."""
    user: str
    """The primary key of the user who has confirmed it."""
    query: str
    """The query string of the list, which contains the filters."""
    ids: list[int] | None
    """The selected jobs; None: all that match."""
    values: dict[str, Any]
    """The new values of an edit."""
    details: str
    """The new values of an edit, in words."""

    def sealed(self) -> tuple[dict[str, Any], str]:
        """Return the order as JSON, and its seal."""
        order = asdict(self)
        return order, _signer().signature(_text(order))

    @classmethod
    def opened(cls, order: Any, seal: Any, alias: str) -> Self:
        """Return an order from its JSON. Raise ``Refused`` if it was changed, or is old.

        ``alias``: the database of the job that carries it out.
        """
        try:
            _signer().unsign(f"{_text(order)}:{seal}")
        except signing.BadSignature:
            raise Refused(
                _("The seal of this order is not valid: the order was changed, or SECRET_KEY differs here.")
            ) from None
        opened = cls(**order)
        if server_now(alias) - datetime.fromisoformat(opened.as_of) > LONGEST:
            raise Refused(_("This order is more than a day old. Select the jobs again."))
        return opened

    @property
    def kind(self) -> Action:
        """The action."""
        return ACTIONS[self.action]

    def change(self, jobs: QuerySet[Job]) -> int:
        """Run the action on some jobs."""
        moment = {
            name: datetime.fromisoformat(self.values[name]) for name in self.values if name == "run_after"
        }
        return len(self.kind.run(jobs, **{**self.values, **moment}))

    def request(self) -> HttpRequest:
        """Return a request for the list, by the user as he or she is now. Raise ``Refused`` if the user, or
        the permission, no longer exists.
        """
        request: Any = HttpRequest()
        request.method, request.GET = "GET", QueryDict(self.query)
        request.user = get_user_model()._default_manager.filter(pk=self.user).first()
        setattr(request, AS_OF, datetime.fromisoformat(self.as_of))
        # Race: the last job with the key or the id that was searched may be gone. Then the same term would be
        # searched as text, and find other jobs.
        setattr(request, MEANING, self.meaning)
        if request.user is None:
            raise Refused(_("The user who has confirmed this no longer exists."))
        admin = _admin(self.site)
        is_allowed = (
            admin.admin_site.has_permission(request)
            and admin.has_view_permission(request)
            and admin.may(request, self.action)
            and len(self.acting(request)) == len(self.effects)
        )
        if not is_allowed:
            words = _("The user %(user)s may no longer do this.") % {"user": request.user.get_username()}
            raise Refused(words)
        return request  # type: ignore[no-any-return]

    def acting(self, request: HttpRequest) -> list[Effect]:
        """Return the effects that this user may have on jobs."""
        meant = permitted(self.kind.effects, partial(_admin(self.site).may, request))
        return [effect for effect in meant if effect.acts and effect.key in self.effects]

    def jobs(self, request: HttpRequest, alias: str) -> QuerySet[Job]:
        """Return the jobs of the list, or those that were selected."""
        admin = _admin(self.site)
        if self.ids is not None:
            rows: QuerySet[Job] = admin.get_queryset(request).using(alias)
            return rows.filter(pk__in=self.ids)
        found: QuerySet[Job] = admin.get_changelist_instance(request).get_queryset(request)
        return found.using(alias)


def identity(admin: Any) -> str:
    """Return the name of the site of an admin class, and what distinguishes it from others of this name."""
    site = admin.admin_site
    return " ".join(
        [site.name, *(f"{type(each).__module__}.{type(each).__qualname__}" for each in (site, admin))]
    )


def _admin(name: str) -> Any:
    """Return the admin class of jobs with this identity."""
    get_resolver().url_patterns  # noqa: B018 - a site may be made where its URLs are
    for site in all_sites:
        if site.is_registered(Job) and identity(site.get_model_admin(Job)) == name:
            return site.get_model_admin(Job)
    raise Refused(_("The admin site %(name)s does not exist in this process.") % {"name": name})


def _text(order: Any) -> str:
    return json.dumps(order, sort_keys=True, separators=(",", ":"))


def _signer() -> signing.Signer:
    return signing.Signer(salt=SALT)


@task(priority=100, max_attempts=5, backoff=(1, 5, 15), timeout=3600)
def run(order: dict[str, Any], seal: str) -> dict[str, Any]:
    """Run an action of the admin on many jobs. Return how many have changed, also in words."""
    job = current_job()
    alias = str(job._state.db)
    try:
        opened = Order.opened(order, seal, alias)
    except Refused as refused:
        raise CancelJob(str(refused)) from None
    action, changed, total = opened.kind, 0, opened.expected

    def commit(number: int, take: Callable[[], Chunk | None]) -> Chunk | None:
        # Others may have changed, so that there are more than were counted.
        job.set_progress(changed, None if total is None else max(total, changed), str(action.title))
        # The database knows it in every kind of worker.
        asked = LiveJob.objects.using(alias).filter(pk=job.pk, cancel_requested_at__isnull=False)  # type: ignore[attr-defined]
        if job.cancel_requested or asked.exists():
            raise Refused(_("Cancelled."))
        opened.request()  # the user may have lost the permission
        found = job.atomic_step(f"chunk {number + 1}", take)
        return found and Chunk(Cursor(*found[0]), *found[1:])

    try:
        request = opened.request()
        if not is_noted(opened.user, job):  # a user has enqueued a copy of the job
            raise Refused(_("This user has not started this job. Select the jobs again."))
        jobs = opened.jobs(request, alias).exclude(pk=job.pk)
        parts = affected(jobs, opened, opened.acting(request))
        if total is None:
            total = job.step("count", _count, parts, alias)
        for chunk in walk(parts, opened.change, commit):
            changed += chunk.changed
    except Refused as refused:
        words = action.told(changed, total, whole=False)
        _note(opened, job, str(refused), words)
        raise CancelJob(f"{refused} {words}") from None
    words = action.told(changed, total)
    job.atomic_step("ended", _note, opened, job, _("Ended."), words)
    return {"changed": changed, "of": total, "words": words}


def _count(parts: list[QuerySet[Job]], alias: str) -> int | None:
    """Return how many jobs would change; None if it takes too long to count them."""
    return within(alias, COUNT_SECONDS, lambda: sum(part.count() for part in parts))


def _note(order: Order, job: Job, what: str, words: str) -> None:
    if get_user_model()._default_manager.filter(pk=order.user).exists():
        text = f"{what} {action_words(order.kind.label, order.details)} {words}"
        note_each(order.user, [Job(pk=job.pk, task_path=job.task_path)], text)
