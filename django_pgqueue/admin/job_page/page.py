"""The page of a job: its sections, in page order, each under the name of its block in the template.

A job that has none of something costs no query for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from types import NoneType
from typing import Any, TypeAlias, TypeVar

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.contrib.admin.utils import display_for_field
from django.db import connections
from django.db.models import BooleanField, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template import TemplateDoesNotExist
from django.template.loader import get_template
from django.urls import URLPattern
from django.utils.html import format_html, format_html_join
from django.utils.text import Truncator, capfirst
from django.utils.translation import gettext as _, ngettext, pgettext

from ... import formatting
from ...compat import DjangoTask
from ...encoding import whole_number
from ...formatting import get_logger, number
from ...models import Edge, Job, JobBatch, JobStat
from ...models.batch import Parents, counts_of
from ...models.job import JobStack, Step
from ...monitoring.jobs import moment, recorded_steps
from ...monitoring.spans import DAY, series
from ...postgres.aliases import write_alias
from ...postgres.timeout import TimeLimitReached
from ...redaction import REDACTED, names_of_call, redact, redact_call, redact_text
from ...tasks.links import HAS_CHILDREN
from .. import display
from ..bulk import task as bulk
from ..charts import MEDIA, Chart, percentiles
from ..console import absent_text, hidden_of, page_url, visible_jobs
from ..display import batch_bar, batch_name, batch_state, breakable, linked
from ..failures import application_part
from ..jobs.fields import JobDisplay
from ..jobs.filters import PAUSE
from ..jobs.forms import clone_page
from ..jobs.progress import progress_in_words
from .formatter import Formatter, Section
from .timeline import timeline

logger = get_logger(__name__)


class JobPage(JobDisplay):
    """The part of ``JobAdmin`` with the page of a job, and the page "Enqueue again"."""

    def has_clone_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may enqueue a copy of a job. The form shows its arguments."""
        return self.holds(request, "clone") and self.has_view_arguments_permission(request)

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the page "Enqueue again", and of the button that asks for the stack."""
        return [
            self.rowpage("clone", partial(clone_page, self), "clone"),
            self.rowpage("stack", partial(ask_for_stack, self), "view"),
            *super().get_urls(),
        ]

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """Add the sections of the page."""
        context, show = super().page_context(request, obj), obj.show
        sections = {section.__name__: section(show) for section in SECTIONS}
        if sections["runs"] is not None:
            context["media"] += MEDIA
        may_clone = obj.payload_model is None and self.has_clone_permission(request)
        return {
            **context,
            "pgqueue": sections,
            "pgqueue_pause": 0 if obj.is_finished else PAUSE,
            "pgqueue_heading": _title(obj) or breakable(str(obj)),
            "pgqueue_address": request.build_absolute_uri(self.address("change", obj.pk)),
            "pgqueue_clone": self.address("clone", obj.pk) if may_clone else "",
            "pgqueue_ask_stack": self.address("stack", obj.pk) if obj.status == Job.Status.RUNNING else "",
            "pgqueue_own_links": links_of(obj) if show.full else [],
        }


def _title(job: Job) -> str:
    """Return the title of an action on many jobs; empty for any other job."""
    is_action = job.task_path == bulk.run.module_path and isinstance(job.args, list) and job.args
    return bulk.title(job.args[0]) if is_action else ""


FOLDER = "admin/django_pgqueue/job/panels"
_PATH = re.compile(r"\w+(\.\w+)+")


def panel(show: Formatter) -> str:
    """Return the panel of a job; empty if its task has none. A panel that fails does not hide the page.

    It is a template of the project, ``<path of the task>.html`` in ``FOLDER``, which gets the job, its
    arguments by name and its result as they may be shown, and what the context processors add.
    """
    job = show.job
    if not show.full or not _PATH.fullmatch(job.task_path):  # any text may be enqueued with SQL
        return ""
    name = f"{FOLDER}/{job.task_path}.html"
    try:
        template = get_template(name)
        args, kwargs = redact_call(job.args, job.kwargs, job.task_path)
        names = names_of_call(job.task_path)
        named = {names.at(place): value for place, value in enumerate(args) if place < len(names.each)}
        values = {"arguments": {**named, **kwargs}, "result": redact(job.result, job.task_path)}
        return template.render({"job": job, **values}, show.request)
    except Exception as error:  # a syntax error, or whatever the template calls
        if isinstance(error, TemplateDoesNotExist) and error.args == (name,):
            return ""
        logger.warning("The panel of %s failed for job %s.", job.task_path, job.pk, exc_info=True)
        return format_html("<p>{}</p>", _("The panel of this task failed; see the log."))


MOST_CHARACTERS = 500


def payload(show: Formatter) -> Section | None:
    """Return the row of the payload of a job, for users who may view rows of its model. Values are shown
    to users who may view arguments.
    """
    job: Any = show.job
    model, site, request = job.payload_model, show.site, show.request
    if model is None:
        return None
    permission = f"{model._meta.app_label}.view_{model._meta.model_name}"
    admin = site.get_model_admin(model) if site.is_registered(model) else None
    if not (admin.has_view_permission(request) if admin else request.user.has_perm(permission)):
        return None
    row: Any = model._base_manager.using(show.alias).filter(pk=job.pk).first()
    if row is None:
        return Section(capfirst(model._meta.verbose_name), (), (), _("The row does not exist."))
    shown = model._meta.concrete_fields[1:] if show.full else ()
    url = page_url(site, request, model, "change", job.pk)
    links = [(_("Go to this row"), url)] if url else []
    if show.full and hasattr(row, "get_absolute_url"):
        try:
            links.append((capfirst(str(model._meta.verbose_name)), str(row.get_absolute_url())))
        except Exception:
            logger.warning("get_absolute_url() of %s failed.", model.__qualname__, exc_info=True)
    return Section(
        capfirst(model._meta.verbose_name),
        (),
        [(capfirst(str(field.verbose_name)), _field(row, field, job.task_path)) for field in shown],
        format_html_join(" ", '<a href="{}">{}</a>', ((url, label) for label, url in links)),
    )


def _field(row: Any, field: Any, task_path: str) -> str:
    """Return the redacted value of a field; of a foreign key, its key, which needs no query."""
    value = getattr(row, field.attname)
    plain = value if isinstance(value, (str, int, float, list, dict, NoneType)) else str(value)
    shown = redact({field.name: plain}, task_path)
    shown = shown.get(field.name, REDACTED) if isinstance(shown, dict) else shown
    if shown != plain:
        text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
    elif field.is_relation and value is not None:
        text = str(value)
    else:
        text = display_for_field(value, field, "-")
    return Truncator(str(text)).chars(MOST_CHARACTERS)


MOST_JOBS = 100
_MOST_OF_NOTE = 160
_COLUMNS = ("id", "task_path", "status", "waiting_reason", "errors", "finished_at")


def ties(show: Formatter) -> dict[str, Any]:
    """Return the batch of a job, and tables of jobs."""
    job, tables = show.job, []
    if job.parent_ids:
        tables.append(_parents(show))
    if job.marks & HAS_CHILDREN:
        children = children_of(job.pk, visible_jobs(show.site, show.request, show.alias))
        tables.append(shown_jobs(show.site, show.request, _("Jobs that run after this one"), children))
    shown = None
    if job.batch_id is not None:
        batch = JobBatch.objects.using(show.alias).filter(pk=job.batch_id).first()
        shown = {"name": _("batch %(id)d, which is no longer kept") % {"id": job.batch_id}}
        if batch is not None:
            bar = batch_bar(counts_of(show.alias, [batch.pk])[batch.pk])
            name = show.link(JobBatch, batch.pk, batch_name(batch))
            shown = {"name": name, "state": batch_state(batch), "bar": bar}
    return {"batch": shown, "tables": tables}


def children_of(parent: int, jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Return the ``jobs`` that were enqueued after a job or a batch."""
    condition = RawSQL("parents @> ARRAY[%s::bigint]", [parent], BooleanField())
    return jobs.filter(condition).order_by("pk")


def shown_jobs(
    site: AdminSite, request: HttpRequest, title: Any, jobs: QuerySet[Job], most: int = MOST_JOBS
) -> Section:
    """Return a table of jobs, of which only so many are shown."""
    found = list(jobs.only(*_COLUMNS)[: most + 1])
    rows = [_job_row(site, request, job) for job in found[:most]]
    note = _("There are more jobs than are shown here.") if len(found) > most else ""
    return Section(title, (_("id"), _("task"), _("status"), _("reason")), rows, note)


def _parents(show: Formatter) -> Section:
    """Return the table of what a job runs after, with what it does if one of them fails."""
    parents = Parents.read(show.job.parent_ids or [], show.alias)
    known = [key for key in parents if key not in parents.gone]
    hidden = hidden_of(show.site, show.request, show.alias, known)
    absent = absent_text(show.site, show.request)
    edges = Edge.objects.using(show.alias).filter(child_id=show.job.pk)
    rules = dict(edges.values_list("parent_id", "if_failed"))
    labels = dict(Edge.IfFailed.choices)
    rows: dict[int, tuple[Any, ...]] = {
        key: (show.link(JobBatch, key, str(key)), batch_name(batch), batch_state(batch))
        for key, batch in parents.batches.items()
    }
    for key in known:
        if key not in hidden:
            rows[key] = _job_row(show.site, show.request, parents[key])[:-1]
    rows |= {key: (str(key), absent, "-") for key in (*parents.gone, *sorted(hidden))}
    last = _("if it fails") if rules else _("reason")
    cells = [(*row, labels.get(rules.get(key, ""), "")) for key, row in rows.items()]
    return Section(_("Runs after"), (_("id"), _("task"), _("status"), last), cells)


def _job_row(site: AdminSite, request: HttpRequest, job: Job) -> tuple[str, ...]:
    """Return a row of a table of jobs: at its end, how the job has failed, or why it waits."""
    link = linked(page_url(site, request, Job, "change", job.pk), str(job.pk))
    error = job.errors[-1].get("message", "") if job.errors and job.status == Job.Status.FAILED else ""
    note = Truncator(redact_text(error or job.waiting_reason, job.task_path)).chars(_MOST_OF_NOTE)
    return link, breakable(job.task_path), display.status_badge(job.status), note


def steps(show: Formatter) -> Section | None:
    """Return the steps in the order in which they ended."""
    kinds, columns = dict(Step.Kind.choices), 6 if show.full else 5
    rows = [
        (
            breakable(str(step["name"] or "")),
            kinds.get(step["kind"], step["kind"] or ""),
            step["attempt"] or "",
            "" if step["seconds"] is None else formatting.span(step["seconds"]),
            _when(step),
            show.json(step["result"]),
        )[:columns]
        for step in recorded_steps(show.job)
    ]
    heads = (_("name"), _("kind"), _("attempt"), _("took"), _("ended"), _("result"))[:columns]
    return Section(_("Steps"), heads, rows) if rows else None


def _when(step: dict[str, Any]) -> str:
    """When the step ended, or what it still waits for."""
    finished, wakes = step["finished_at"], step["wake_at"]
    if finished is not None:
        return display.time(finished)
    if wakes is None or step["kind"] == Step.Kind.EVENT:
        return pgettext("step", "waits")
    return display.filled(_("until %(time)s"), time=display.time(wakes))


ANSWER_WITHIN = 1.0  # seconds for which the page waits for a worker


def ask_for_stack(admin: JobPage, request: HttpRequest, job: Job) -> HttpResponse:
    """Ask the worker what the job does now, and show its page again."""
    if request.method == "POST":
        try:
            if connections[write_alias(job)].in_atomic_block:  # ATOMIC_REQUESTS: it is asked at the end
                job.request_stack()
            else:
                job.stack(ANSWER_WITHIN)
        except ValueError:
            admin.message_user(request, _("The job does not run any more."), messages.WARNING)
        except TimeoutError:
            pass  # the page says so
    return HttpResponseRedirect(f"{admin.address('change', job.pk)}#pgqueue-stack")


def stack(show: Formatter) -> dict[str, Any] | None:
    """Return what the job did when someone has asked for it, or when its last attempt lost its process."""
    job = show.job
    is_running, has_crashed = job.status == Job.Status.RUNNING, job.crash_count and not job.is_finished
    if not (is_running or has_crashed):
        return None
    row = JobStack.objects.using(show.alias).filter(pk=job.pk).first()
    if row is None or (row.lease != job.lease if is_running else not row.at_end):
        return None
    lines = show.text(row.lines)
    return {
        "at_end": row.at_end,
        "requested": display.time(row.requested_at),
        "taken": display.time(row.taken_at) if row.taken_at else "",
        "lines": lines,
        "frames": application_part(lines),
    }


def errors(show: Formatter) -> list[dict[str, Any]]:
    """Return the errors, the last one first."""
    shown: list[dict[str, Any]] = []
    for error in show.job.errors:
        traceback = show.text(error.get("traceback"))
        # An entry is JSON from anywhere: what is no time is shown as it is.
        facts = (
            (_("started"), display.time(moment(error.get("started_at"))) or error.get("started_at")),
            (_("ended"), display.time(moment(error.get("finished_at"))) or error.get("finished_at")),
            (_("step"), error.get("step")),
            (_("progress"), progress_in_words(error.get("progress"), show.job.task_path)),
            (_("worker"), show.worker(error.get("worker"))),
        )
        entry = {
            "attempt": error.get("attempt", ""),
            "kind": breakable(str(error.get("class", ""))),
            "message": show.text(error.get("message")),
            "traceback": traceback,
            "frames": application_part(traceback),
            "facts": [(label, value) for label, value in facts if value],
        }
        shown.append(entry)
    for before, after in pairwise(shown):
        before["later"], after["earlier"] = after["attempt"], before["attempt"]
    return shown[::-1]


# The kept logs: the lines of each attempt as one text. Of a long log, the last lines are shown, and a link
# leads to those before them (``?log=2:500``: the attempt, and the line after the last one that it shows).

MOST_LINES = 500


def logs(show: Formatter) -> list[dict[str, Any]]:
    """Return the log of each attempt, the last one first."""
    attempt, _colon, line = show.request.GET.get("log", "").partition(":")
    end = whole_number(line)
    return [
        _log(show, entry, end if str(entry.get("attempt")) == attempt else None)
        for entry in reversed(show.job.logs or [])
    ]


def _log(show: Formatter, entry: dict[str, Any], end: int | None) -> dict[str, Any]:
    """Return the log of one attempt, up to a line."""
    lines, times = [], {}
    for line in entry.get("lines", []):
        at, level, logger, message = (str(line.get(key, "")) for key in ("at", "level", "logger", "message"))
        if (time := moment(at)) is not None:
            at = display.clock(time)
            times[at] = display.clock_time(time)
        lines.append(f"{at} {level} {logger}: {message}")
    count = len(lines)
    if left_out := entry.get("left_out", 0):
        words = ngettext("… %(count)s line left out …", "… %(count)s lines left out …", left_out)
        lines.insert(entry.get("after", 0), words % {"count": number(left_out)})
        count += left_out
    # Redacted as a whole, because a pattern may be about several lines. Their number may change, so it is the
    # beginning of a line that says which time it has.
    lines = show.text("\n".join(lines)).split("\n")
    end = len(lines) if end is None else max(1, min(end, len(lines)))
    start = max(0, end - MOST_LINES)
    parts = [line.partition(" ") for line in lines[start:end]]
    text = format_html_join("\n", "{}{}{}", ((times.get(at, at), space, rest) for at, space, rest in parts))
    attempt = entry.get("attempt", "")
    return {
        "attempt": attempt,
        "count": ngettext("%(count)s line", "%(count)s lines", count) % {"count": number(count)},
        "text": text,
        "is_chosen": end < len(lines),
        "before": f"{attempt}:{start}" if start else "",
        "after": f"{attempt}:{min(end + MOST_LINES, len(lines))}" if end < len(lines) else "",
    }


def runs(show: Formatter) -> Chart | None:
    """Return how long the attempts of the task ran in the last 24 hours. None: this user may not view
    statistics, the task has not run, or reading them takes too long.
    """
    if not show.url(JobStat, "changelist"):
        return None
    try:
        points = series(show.alias, DAY, task=show.job.task_path)
    except TimeLimitReached:
        return None
    title = _("How long this task ran in the last 24 hours")
    starts = [point.start for point in points]
    chart = Chart("pgqueue-runs", title, starts, percentiles(points, "run"), unit="seconds")
    return None if chart.is_empty else chart


#: In page order.
SECTIONS: Sequence[Callable[[Formatter], Any]] = (
    timeline, stack, panel, payload, ties, steps, errors, logs, runs,
)  # fmt: skip

# Links that the project declares for the jobs of its tasks, and that its models have.
#
#     @links_for(send_receipt)
#     def receipt_links(job):
#         return [("Order", reverse("admin:shop_order_change", args=[job.args[0]]))]
#
# They are declared in ``admin.py``, so that a worker does not import the admin.

Links: TypeAlias = "Callable[[Job], Iterable[tuple[Any, str]]]"
L = TypeVar("L", bound=Links)

_declared: dict[str, Links] = {}


def links_for(*tasks: DjangoTask[..., Any] | str) -> Callable[[L], L]:
    """Declare a function that returns the links of the jobs of these tasks (or paths): pairs of a label and a
    URL. They are shown to users who may view arguments.
    """

    def declare(function: L) -> L:
        for task in tasks:
            _declared[task if isinstance(task, str) else task.module_path] = function
        return function

    return declare


def links_of(job: Job) -> list[tuple[str, str]]:
    """Return the declared links of a job. A function that raises is logged, and its links are left out."""
    if job.task_path not in _declared:
        return []
    try:
        return [(str(label), str(url)) for label, url in _declared[job.task_path](job)]
    except Exception:  # the row of the argument may be deleted, and so on
        logger.warning("The links of %s failed for job %s.", job.task_path, job.pk, exc_info=True)
        return [(_("The links of this task failed; see the log."), "")]
