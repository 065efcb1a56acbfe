"""The fields of a job, in the list and on its page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.core.exceptions import ValidationError
from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import Truncator
from django.utils.translation import gettext, gettext_lazy as _

from ... import conf, formatting
from ...explanation import Reason, why
from ...explanation.words import A_LIFETIME, Reference, Sentence, count, sentence
from ...formatting import number
from ...models import Job, JobBatch, JobStat, Limit, Pause, Queue, UniqueWindow, Worker
from ...models.job import Status, UniqueScope
from ...monitoring.workers import is_dead, with_vitals
from ...postgres import fetch_rows, fetch_value
from ...postgres.aliases import write_alias
from ...postgres.timeout import TimeLimitReached, time_limit
from ...redaction import beginning, redact, redact_text
from ...tasks.links import parse_id
from ...tasks.paths import HAND_OVER
from .. import display
from ..ask import held
from ..base import ReadOnlyAdmin
from ..bulk import task
from ..console import of_row, page_url, site_url, with_query
from ..display import breakable, column, dimmed, linked
from ..job_page.formatter import Formatter, payload_model_of, shown_arguments
from .progress import PAGE, has_progress, live_progress
from .search import names_database_of

#: The fields for users who may view arguments and results.
ARGUMENTS = frozenset({"args", "kwargs", "result", "call", "arguments", "keyword_arguments", "outcome"})
LOST = _("worker lost, waiting for recovery")
#: Fields of the page that are left out if they have no value. The others are always shown.
_SHOWN_IF: dict[str, Callable[[Any], Any]] = {
    "progress": has_progress,
    "why": lambda job: is_waiting(job) or _reason(job, 1),
    "limits": lambda job: getattr(job, "limits", None) or job.limit_key,
    "arguments": lambda job: job.args or not (job.kwargs or getattr(job, "payload_model", None)),
    "keyword_arguments": lambda job: job.kwargs,
    "noted": lambda job: job.metadata,
    "unique": lambda job: job.unique_key,
    "group_key": lambda job: job.group_key,
    "tenant": lambda job: job.tenant,
    "carried": lambda job: job.context,
    "outcome": lambda job: job.result is not None,
    "by_worker": lambda job: job.worker is not None,
    "crash_count": lambda job: job.crash_count,
    "timeout": lambda job: job.timeout is not None,
    "on_lost": lambda job: job.on_lost,
    "fingerprint": lambda job: job.error_fingerprint,
}


def with_clock(jobs: QuerySet[Any]) -> QuerySet[Any]:
    """Annotate jobs with the time ``now`` of the database, because the clocks of machines may differ, and
    with the ``silence`` of the worker: the time since its last heartbeat, None if the worker does not exist.
    """
    worker = with_vitals(Worker.objects.filter(pk=OuterRef("worker")))
    timed: QuerySet[Any] = jobs.annotate(now=Now(), silence=Subquery(worker.values("age")))
    return timed


def _is_lost(job: Any) -> bool:
    """Return whether the worker of a running job no longer exists, or is silent for over LEASE."""
    return job.status == Status.RUNNING and (job.silence is None or is_dead(job.silence))


def _reason(job: Any, characters: int) -> str:
    """Return why the job waits, why it was cancelled, or how it failed last; empty if there is no problem."""
    if _is_lost(job):
        return str(LOST)
    words = job.waiting_reason
    if not words and job.status not in {Status.RUNNING, Status.DONE}:
        last = job.errors[-1] if job.errors else {}
        words = ": ".join(str(last[key]) for key in ("class", "message") if last.get(key))
    return Truncator(redact_text(words, job.task_path)).chars(characters)


def _outcome(job: Any) -> str:
    """Return the result. That of the relay leads to the job that the call has become, if a page shows it."""
    with suppress(ValueError):  # a worker in another language may report anything
        alias, pk = parse_id(str(job.result)) if job.task_path == HAND_OVER else ("", 0)
        if alias in conf.current().shards:
            with of_row(alias):
                return linked(page_url(job.show.site, job.show.request, Job, "change", pk), job.result)
    return display.json_value(redact(job.result, job.task_path))


class JobDisplay(ReadOnlyAdmin[Job]):
    """The part of ``JobAdmin`` with the fields."""

    task = column(_("task"), lambda job: breakable(job.task_path))
    call = column(_("arguments"), lambda job: display.call(job.args_text, job.kwargs_text, job.task_path))
    arguments = column(_("arguments"), lambda job: job.args and display.json_value(_positional(job)))
    keyword_arguments = column(
        _("keyword arguments"), lambda job: display.json_value(shown_arguments(job)["kwargs"])
    )
    noted = column(_("metadata"), lambda job: display.json_value(redact(job.metadata, job.task_path)))
    carried = column(_("context"), lambda job: display.json_value(redact(job.context, job.task_path)))
    outcome = column(_("result"), lambda job: _outcome(job))
    progress = column(_("progress"), lambda job: live_progress(job, site_url(job.show.site, PAGE)))
    why = column(
        _("reason"), lambda job: shown_why(job.show) if is_waiting(job) else breakable(_reason(job, 300))
    )
    limits = column(_("limits"), lambda job: shown_limits(job.show, job.limits))
    unique = column(_("unique"), lambda job: shown_unique(job.show))
    by_worker = column(_("worker"), lambda job: job.show.worker(job.worker))
    worker_name = column(
        _("worker"), lambda job: job.worker_text or (job.worker and display.short_name(job.worker)) or "-"
    )
    tries = column(_("attempts"), lambda job: dimmed(_tries(job)))
    fingerprint = column(_("error fingerprint"), lambda job: _fingerprint(job))
    queue_and_priority = column(
        _("queue"),
        lambda job: display.with_more(
            format_html('<span class="pgqueue-queue">{}</span>', breakable(job.queue_name)),
            job.priority and _("priority %(number)d") % {"number": job.priority},
        ),
    )

    def get_fieldsets(self, request: HttpRequest, obj: Job | None = None) -> Any:
        """Return the fieldsets without the fields that have no value for this job."""
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None:
            return fieldsets
        secret = frozenset() if self.has_view_arguments_permission(request) else ARGUMENTS
        shown = []
        for name, options in fieldsets:
            lines = [line if isinstance(line, (list, tuple)) else (line,) for line in options["fields"]]
            lines = [
                [field for field in line if field not in secret and _SHOWN_IF.get(field, bool)(obj)]
                for line in lines
            ]
            if any(lines):
                shown.append((name, {**options, "fields": [line for line in lines if line]}))
        return shown

    def get_list_display(self, request: HttpRequest) -> Any:
        """Return the columns without the arguments, for users who may not view them."""
        secret = frozenset() if self.has_view_arguments_permission(request) else ARGUMENTS
        return [name for name in super().get_list_display(request) if name not in secret]

    has_view_arguments_permission = held("view_arguments")  # and results, and to search in them

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Job | None:
        """Return the job with the time of the database, and with how it is shown to this user."""
        field: Any = self.opts.get_field(from_field) if from_field else self.opts.pk
        jobs = with_clock(self.get_queryset(request).select_related("live_progress"))
        alias, _colon, key = object_id.rpartition(":")  # "other:5", as in TaskResult.id
        if alias and not names_database_of(alias, jobs):
            return None
        try:
            job = jobs.get(**{field.name: field.to_python(key)})
        except (Job.DoesNotExist, ValidationError, ValueError):
            return None
        full = self.has_view_arguments_permission(request)
        job.show = Formatter(self.admin_site, request, job, full=full)
        job.limits = limits_of(jobs.db, job)
        job.payload_model = payload_model_of(job)
        found: Job = job
        return found

    @admin.display(description=_("status"))
    def state_and_note(self, job: Job) -> str:
        """The status, and below it how far the job is, and why it waits or how it failed."""
        progress = "" if job.is_finished else live_progress(job, site_url(self.admin_site, PAGE))
        return display.with_more(format_html("{}{}", _state(job), progress), _note(job))

    @admin.display(description=_("status"))
    def state_now(self, job: Any) -> str:
        """The status, and how long it has lasted or will last."""
        words, moment = _main(job)
        if job.status == Status.RUNNING:
            words = " " + gettext("for %(period)s") % {"period": formatting.period(job.now - moment)}
        else:
            words = f" {words}" if job.is_finished else f", {words}"
        return format_html("{}{}", _state(job), words)

    @admin.display(description=_("when"))
    def timing(self, job: Job) -> str:
        """When it runs or when it ended, and how long it waited and ran."""
        words, moment = _main(job)
        more = filter(None, [_waited(job), _ran(job)])
        return display.with_more(display.timed(words, moment), ", ".join(more))

    @admin.display(description=_("times"))
    def times(self, job: Any) -> str:
        """Its past and future events in the order of time, and how long it waited and ran."""
        # Most jobs are due as soon as they are enqueued.
        was_to_wait = job.run_after - job.enqueued_at > timedelta(seconds=1)
        has_time = was_to_wait and not _waits_without_a_time(job)
        waits = Status(job.status).is_claimable
        started = gettext("last started") if job.attempts > 1 else gettext("started")
        steps = [
            (job.enqueued_at, gettext("enqueued"), ""),
            (job.run_after if has_time else None, gettext("run after"), _main(job)[0] if waits else ""),
            (job.started_at if job.attempts > 1 else None, gettext("first started"), ""),
            (_last_start(job), started, _waited(job)),
            (job.cancel_requested_at, gettext("asked to stop"), ""),
            (job.finished_at, gettext("finished"), _ran(job)),
            (None if job.is_finished else job.deadline, gettext("deadline"), ""),
            (None if job.is_finished else job.expires_at, gettext("expires"), ""),
        ]
        there = sorted((step for step in steps if step[0] is not None), key=lambda step: step[0])
        lines, last = [], None
        for moment, words, more in there:
            brackets = more and format_html(' <span class="pgqueue-quiet">({})</span>', more)
            lines.append((words, display.later_time(moment, last), brackets))
            last = moment
        shown = format_html_join("", "<li>{} {}{}</li>", lines)
        return format_html('<ol class="pgqueue-line">{}</ol>', shown)

    @admin.display(description=_("queue"))
    def queue(self, job: Any) -> str:
        """The queue, with a link to its settings if it has its own."""
        has_settings = Queue.objects.using(job._state.db).filter(pk=job.queue_name).exists()
        name: str = job.queue_name
        return linked(job.show.url(Queue, "change", name) if has_settings else "", name)


def _positional(job: Job) -> Any:
    """Return the arguments, redacted; of an action on many jobs, without the signature."""
    args = shown_arguments(job)["args"]
    return args[:1] if job.task_path == task.run.module_path and isinstance(args, list) else args


def _fingerprint(job: Any) -> str:
    """Return the fingerprint of the last error, with a link to its group of failures."""
    url = job.show.url(Job, "failures")
    return linked(f"{url}{quote(job.error_fingerprint)}/" if url else "", job.error_fingerprint)


def _tries(job: Job) -> str:
    """Return the number of attempts, and their limit."""
    if job.max_attempts is None:
        return str(job.attempts)
    most = job.forgiven_attempts + job.max_attempts
    return _("%(attempts)d of %(most)d") % {"attempts": job.attempts, "most": most}


def _state(job: Job) -> str:
    """Return the status, and whether a running job was asked to stop."""
    badge = display.status_badge(job.status)
    if job.status == Status.RUNNING and job.cancel_requested_at is not None:
        return format_html("{} ({})", badge, _("asked to stop"))
    return badge


def _note(job: Any) -> str:
    """Return why a job of the list waits, or the class of its last error, with the message as a tooltip."""
    if _is_lost(job):
        return display.alarm(LOST)
    words = job.waiting_reason
    if not words and job.status not in {Status.RUNNING, Status.DONE}:
        words = (job.error_class or "").rpartition(".")[2]
    if not words:
        return ""
    shown = breakable(Truncator(redact_text(words, job.task_path)).chars(80))
    text = beginning(job.error_words or job.waiting_reason, display.MOST_OF_CALL, job.task_path)
    return format_html('<span title="{}">{}</span>', text, shown)


def _main(job: Any) -> tuple[str, datetime]:
    """Return how long the state has lasted or will last, and the time from or until which."""
    if job.is_finished:
        words, moment = gettext("%(period)s ago"), job.finished_at
    elif job.status == Status.RUNNING:
        words, moment = gettext("running for %(period)s"), job.last_attempted_at or job.started_at or job.now
    elif job.status == Status.BLOCKED or _waits_without_a_time(job):
        words, moment = gettext("waiting for %(period)s"), job.enqueued_at
    elif job.run_after > job.now:
        words, moment = gettext("in %(period)s"), job.run_after
    else:
        words, moment = gettext("due for %(period)s"), job.run_after
    return words % {"period": formatting.period(abs(job.now - moment))}, moment


def _waits_without_a_time(job: Any) -> bool:
    """Return whether the job waits for an event that may come at any time. It is due in almost a century."""
    return not job.is_finished and bool(job.run_after - job.now > A_LIFETIME)


def _last_start(job: Any) -> datetime | None:
    """Return when the last attempt started; None for a job that never ran."""
    started: datetime | None = job.last_attempted_at or job.started_at
    return started if job.attempts else None


def _waited(job: Any) -> str:
    """Return the time from due to the start of the last attempt. A retry starts a new wait."""
    started = _last_start(job)
    if started is None or Status(job.status).is_claimable:
        return ""
    waited = max(0.0, (started - job.run_after).total_seconds())
    return gettext("waited %(period)s") % {"period": formatting.span(waited)}


def _ran(job: Any) -> str:
    if job.duration is None:
        return ""
    return gettext("ran %(period)s") % {"period": formatting.span(job.duration)}


# Why a job does not run: the reason with links to what it names and to what helps, its limits, and its unique
# key. There are links where the user may follow them. What helps is said in words where no page of the site
# does it.

PATIENCE = 2.0  # seconds
_MODELS: dict[str, Any] = {"job": Job, "batch": JobBatch, "worker": Worker, "limit": Limit}
#: The reasons for which nothing on the site helps, or not all of it.
_TOLD = {"cancel_requested", "after_open_batch", "no_worker", "busy", "unknown_task", "locked", "uncommitted"}


def is_waiting(job: Job) -> bool:
    """Return whether a job does not run, or runs although it was asked to stop."""
    return not job.is_finished and (job.status != Job.Status.RUNNING or job.cancel_requested_at is not None)


def shown_why(show: Formatter) -> SafeString:
    """Return why the job does not run, or does not stop."""
    alias = write_alias(show.job)
    try:
        with time_limit(alias, PATIENCE):
            reason = why(show.job)
    except TimeLimitReached:
        return conditional_escape(gettext("It took too long to find out why. Load the page again."))
    links = _joined(linked(url, label) for url, label in _fixes(reason, show) if url)
    fix = reason.fix if reason.code in _TOLD else ""
    return format_html("{}{}", _html(sentence(reason.code, reason.facts), show), _more([fix, links]))


def _html(part: Any, show: Formatter) -> SafeString:
    """Return a part of a sentence with links. Everything that comes from jobs is escaped."""
    if isinstance(part, Sentence):
        return display.filled(part.text, **{name: _html(value, show) for name, value in part.values.items()})
    if isinstance(part, datetime):
        return mark_safe(display.time(part))  # noqa: S308 - made by format_html
    if isinstance(part, Reference):
        url = "" if part.key is None else show.url(_MODELS[part.kind], "change", part.key)
        return mark_safe(linked(url, breakable(part.text)))  # noqa: S308 - made by format_html
    if isinstance(part, list):
        return _joined(_html(each, show) for each in part)
    return breakable("" if part is None else str(part))


def _more(notes: Iterable[Any]) -> SafeString:
    """Return notes below a text, without empty ones."""
    return format_html_join("", '<span class="pgqueue-more">{}</span>', ((note,) for note in notes if note))


def _joined(parts: Iterable[Any]) -> SafeString:
    return format_html_join(mark_safe(", "), "{}", ((part,) for part in parts))


def _fixes(reason: Reason, show: Formatter) -> list[tuple[str, str]]:
    """Return the pages where something can be done about the reason: URLs, which may be empty, and labels."""
    facts, code = reason.facts, reason.code
    key = f"key:{facts['key']}" if facts.get("key") else ""
    of_key = (with_query(show.url(Job, "changelist"), q=key) if key else "", gettext("Jobs of this key"))
    if code == "cancel_requested":
        return [(show.url(Worker, "change", show.job.worker), gettext("Go to the worker"))]
    if code == "paused":
        return [(show.url(Pause, "change", facts["pause"]), gettext("Go to the pause"))]
    if code in {"limit", "rate"}:
        if facts.get("is_set"):
            url = show.url(Limit, "change", facts["limit"])
        else:  # the page that sets one
            url = with_query(show.url(Limit, "add"), name=facts["limit"])
        return [(url, gettext("Go to the limit")), of_key]
    if code == "wait_queue":
        return [of_key]
    if code == "behind":
        url = with_query(show.url(Job, "changelist"), queue=facts["queue_name"], status="pending")
        return [(url, gettext("Jobs that wait in this queue"))]
    if code in {"no_worker", "busy", "unknown_task", "after_over", "pause_over"}:
        return [(show.url(Worker, "changelist"), gettext("Workers"))]
    return [(show.url(JobStat, "database"), gettext("Database"))] if code == "locked" else []


MOST_HOLDERS = 10


class JobLimit(NamedTuple):
    """A row of ``pgqueue_blocked_by``."""

    name: str
    limit_key: str | None
    is_full: bool
    allowed: int | None
    running: int
    place: int | None
    holders: list[int]
    next_start: datetime | None


def limits_of(alias: str, job: Job) -> list[JobLimit]:
    """Return the limits of a live job."""
    if job.is_finished:
        return []
    return [JobLimit(*row) for row in fetch_rows(alias, "SELECT * FROM pgqueue_blocked_by(%s)", [job.pk])]


def shown_limits(show: Formatter, limits: list[JobLimit]) -> str:
    """Return a line for each limit; for a finished job, its key."""
    if not limits:
        return breakable(show.job.limit_key or "")
    return format_html_join("", "<div>{}</div>", [(_joined(_limit(show, each)),) for each in limits])


def _limit(show: Formatter, limit: JobLimit) -> list[Any]:
    job, is_running = show.job, show.job.status == Job.Status.RUNNING
    name = limit.limit_key or gettext("all jobs")
    if limit.name != "*" and not limit.limit_key:
        name = gettext("queue %(name)s") % {"name": limit.name.removeprefix("queue:")}
    parts: list[Any] = [show.link(Limit, limit.name, breakable(name))]
    if limit.allowed is not None:
        running, allowed = number(limit.running), number(limit.allowed)
        parts.append(gettext("%(running)s of %(allowed)s run") % {"running": running, "allowed": allowed})
    if limit.next_start is not None and not is_running:
        words = gettext("waits for its rate limit, next start at %(time)s")
        parts.append(display.filled(words, time=display.time(limit.next_start)))
    if limit.place is not None:
        ahead = gettext("%(count)s before it") % {"count": count(limit.place)}
        of_key = linked(with_query(show.url(Job, "changelist"), q=f"key:{limit.limit_key}"), ahead)
        parts.append(of_key if limit.place else gettext("next in the wait queue"))
    others = [each for each in limit.holders if each != job.pk]
    if limit.allowed is not None and limit.running >= limit.allowed and others and not is_running:
        holders: list[Any] = [show.link(Job, each, str(each)) for each in others[:MOST_HOLDERS]]
        more = ["…"] if len(others) > MOST_HOLDERS else []
        parts.append(format_html("{} {}", gettext("held by"), _joined([*holders, *more])))
    return parts


def shown_unique(show: Formatter) -> str:
    """Return the unique key, with until when it holds, and which other job has it now."""
    job = show.job
    words = gettext("no other job with this key while this one waits")
    if job.unique_scope == UniqueScope.LIVE:
        words = gettext("no other job with this key until this one has finished")
    notes: list[Any] = [words]
    window = UniqueWindow.objects.using(show.alias).filter(pk=job.unique_key, until__gt=Now()).first()
    if window is not None:
        notes.append(format_html(gettext("taken until {} by its window"), display.time(window.until)))
    twin = fetch_value(show.alias, "SELECT _pgqueue_twin(%s, %s)", job.unique_key, job.unique_scope)
    if twin is not None and twin != job.pk:
        link = show.link(Job, twin, gettext("job %(id)s") % {"id": twin})
        notes.append(format_html(gettext("{} has the key now"), link))
    key = breakable(job.unique_key or "")
    return format_html('<code class="pgqueue-value">{}</code>{}', key, _more(notes))
