"""``run``: the task that carries out an action of the admin on many jobs, in the background.

Each chunk of jobs is an atomic step: it changes its jobs and records how far the walk is in one transaction,
so the job continues where it was if its worker dies, or if it is cancelled and retried, and changes nothing
twice. Between two chunks, it looks whether it was cancelled, and whether the user may still do this.

Its order is JSON and has a seal: a signature with the project's ``SECRET_KEY``, so no user can have jobs
changed in the name of another user by enqueueing a job with other arguments. It is refused after a day.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from django.contrib.admin.sites import all_sites
from django.contrib.auth import get_user_model
from django.core import signing
from django.http import HttpRequest, QueryDict
from django.urls import get_resolver
from django.utils.translation import gettext as _

from ...exceptions import CancelJob
from ...jobs.chunks import Chunk, Cursor, walk
from ...jobs.current import current_job
from ...models import Job, LiveJob
from ...monitoring.depth import Counted
from ...postgres.clock import server_now
from ...postgres.timeout import within
from ...tasks.decorator import task
from ..ask import action_words, is_noted, note_each
from ..jobs.filters import AS_OF
from ..jobs.search import MEANING
from ..shards import of_page, showing
from .actions import ACTIONS, Effect, Shown, affected, permitted

SALT = "django_pgqueue.admin.bulk"
LONGEST = timedelta(days=1)
COUNT_SECONDS = 60.0


class Refused(Exception):
    """The order is not carried out, or no further; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Shown):
    """What was confirmed, by whom, and how the same jobs are found again. All values are JSON."""

    site: str  # the admin site and the classes that show the jobs (``identity``)
    user: str  # the primary key of the user who has confirmed it
    query: str  # the query string of the list, which contains the filters
    ids: list[int] | None  # the selected jobs; None: all that match
    values: dict[str, Any]
    details: str  # the new ``values`` of an edit, in words

    def sealed(self) -> tuple[dict[str, Any], str]:
        """Return the order as JSON, and its seal."""
        order = asdict(self)
        return order, signing.Signer(salt=SALT).signature(_text(order))

    @classmethod
    def opened(cls, order: Any, seal: Any, alias: str) -> Self:
        """Return an order from its JSON. Raise ``Refused`` if it was changed, or is old.

        ``alias``: the database of the job that carries it out.
        """
        try:
            signing.Signer(salt=SALT).unsign(f"{_text(order)}:{seal}")
        except signing.BadSignature:
            words = _(
                "The signature of this action is not valid: the action was changed, or SECRET_KEY is another"
                " one here."
            )
            raise Refused(words) from None
        opened = cls(**order)
        if server_now(alias) - datetime.fromisoformat(opened.as_of) > LONGEST:
            raise Refused(_("This action is more than a day old. Select the jobs again."))
        return opened

    def access(self) -> tuple[Any, HttpRequest, list[Effect]]:
        """Return the admin class, a request for its list by the user as he or she is now, and the effects.
        Raise ``Refused`` if the user, or the permission, no longer exists.
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
        get_resolver().url_patterns  # noqa: B018 - a site may be made where its URLs are
        admins = [site.get_model_admin(Job) for site in all_sites if site.is_registered(Job)]
        admin: Any = next((each for each in admins if identity(each) == self.site), None)
        if admin is None:
            text = _("The admin site %(name)s does not exist in this process.")
            raise Refused(text % {"name": self.site})
        meant = permitted(self.action, admin, request)
        acting = [effect for effect in meant if effect.acts and effect.kind in self.effects]
        is_allowed = (
            admin.admin_site.has_permission(request)
            and admin.has_view_permission(request)
            and admin.may(request, self.action)
            and len(acting) == len(self.effects)
        )
        if not is_allowed:
            words = _("The user %(user)s may no longer do this.") % {"user": request.user.get_username()}
            raise Refused(words)
        return admin, request, acting


def title(order: Any) -> str:
    """Return what an action does, from the argument of its job: "Cancel 14,900 jobs of tenants". Empty if it
    is none.
    """
    try:
        action, counted, is_exact = ACTIONS[order["action"]], int(order["counted"]), order["is_exact"]
        queue = QueryDict(order["query"]).get("queue", "") if order["ids"] is None else ""
    except (KeyError, TypeError, ValueError, AttributeError):  # a job from SQL may have any argument
        return ""
    words = {"action": action.label, "number": Counted(counted, is_exact), "queue": queue}
    if queue:
        one, many = _("%(action)s %(number)s job of %(queue)s"), _("%(action)s %(number)s jobs of %(queue)s")
    else:
        one, many = _("%(action)s %(number)s job"), _("%(action)s %(number)s jobs")
    return (one if counted == 1 and is_exact else many) % words


def identity(admin: Any) -> str:
    """Return the name of the site of an admin class, and what distinguishes it from others of this name."""
    site = admin.admin_site
    classes = (f"{type(each).__module__}.{type(each).__qualname__}" for each in (site, admin))
    return " ".join([site.name, *classes])


def _text(order: Any) -> str:
    return json.dumps(order, sort_keys=True, separators=(",", ":"))


@task(priority=100, max_attempts=5, backoff=(1, 5, 15), timeout=3600)
def run(order: dict[str, Any], seal: str) -> dict[str, Any]:
    """Run an action of the admin on many jobs. Return how many have changed, also in words."""
    job = current_job()
    alias = str(job._state.db)
    try:
        opened = Order.opened(order, seal, alias)
    except Refused as refused:
        raise CancelJob(str(refused)) from None
    action, changed, total = ACTIONS[opened.action], 0, opened.expected
    values = {
        name: datetime.fromisoformat(value) if name == "run_after" else value
        for name, value in opened.values.items()
    }

    def commit(number: int, take: Callable[[], Chunk | None]) -> Chunk | None:
        # Others may have changed, so that there are more than were counted.
        job.set_progress(changed, None if total is None else max(total, changed), str(action.title))
        # The database knows it in every kind of worker.
        asked = LiveJob.objects.using(alias).filter(pk=job.pk, cancel_requested_at__isnull=False)  # type: ignore[attr-defined]
        if job.cancel_requested or asked.exists():
            raise Refused(_("Cancelled."))
        opened.access()  # the user may have lost the permission
        found = job.atomic_step(f"chunk {number + 1}", take)
        return found and Chunk(Cursor(*found[0]), *found[1:])

    def note(what: str, words: str) -> None:
        if get_user_model()._default_manager.filter(pk=opened.user).exists():
            text = f"{what} {action_words(action.label, opened.details)} {words}"
            note_each(opened.user, [Job(pk=job.pk, task_path=job.task_path)], text)

    try:
        admin, request, acting = opened.access()
        if not is_noted(opened.user, job):  # a user has enqueued a copy of the job
            raise Refused(_("This user has not started this job. Select the jobs again."))
        if opened.ids is None:
            with showing(alias if of_page(admin) else ""):
                jobs = admin.get_changelist_instance(request).get_queryset(request)
        else:
            jobs = admin.get_queryset(request).filter(pk__in=opened.ids)
        parts = affected(jobs.using(alias).exclude(pk=job.pk), opened, acting)
        if total is None:
            total = job.step(
                "count", within, alias, COUNT_SECONDS, lambda: sum(part.count() for part in parts)
            )
        for chunk in walk(parts, lambda jobs: len(action.run(jobs, **values)), commit):
            changed += chunk.changed
    except Refused as refused:
        words = action.message(changed, total, whole=False)
        note(str(refused), words)
        raise CancelJob(f"{refused} {words}") from None
    words = action.message(changed, total)
    job.atomic_step("ended", note, _("Ended."), words)
    return {"changed": changed, "of": total, "words": words}
