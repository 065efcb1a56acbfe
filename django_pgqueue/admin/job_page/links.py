"""What a job is tied to, on its page: its batch, what it runs after, and the jobs that run after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from django.db.models import BooleanField
from django.db.models.expressions import RawSQL
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from ...formatting import get_logger
from ...models import Edge, Job, JobBatch
from ...models.batch import counts_of
from ...models.parents import Parents
from ...redaction import redact_text
from ...tasks.link import HAS_CHILDREN
from .. import display
from ..batches import fields as batch_fields
from ..display import page_url
from ..jobs.texts import breakable
from ..visible import absent_text, hidden_of, visible_jobs

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite
    from django.db.models import QuerySet
    from django.http import HttpRequest

    from ...compat import DjangoTask

logger = get_logger(__name__)


MOST_JOBS = 100

_COLUMNS = ("id", "task_path", "status", "waiting_reason", "errors", "finished_at")


def shown_links(site: AdminSite, request: HttpRequest, job: Job) -> list[dict[str, Any]]:
    """Return the tables of the page of a job. A job without links costs no query."""
    tables = []
    if job.parent_ids:
        tables.append(_parents(site, request, job))
    if job.marks & HAS_CHILDREN:
        children = children_of(job.pk, visible_jobs(site, request, str(job._state.db)))
        tables.append(shown_jobs(site, request, _("Jobs that run after this one"), children))
    return tables


def batch_of(site: AdminSite, request: HttpRequest, job: Job) -> dict[str, Any] | None:
    """Return the batch of a job, if it has one."""
    if job.batch_id is None:
        return None
    alias = str(job._state.db)
    batch = JobBatch.objects.using(alias).filter(pk=job.batch_id).first()
    if batch is None:
        return {"name": _("batch %(id)d, which is no longer kept") % {"id": job.batch_id}}
    return {
        "name": batch_fields.name(batch),
        "url": page_url(site, request, JobBatch, "change", batch.pk),
        "state": batch_fields.state(batch),
        "bar": batch_fields.bar(counts_of(alias, [batch.pk])[batch.pk]),
    }


def children_of(parent: int, jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Return those of ``jobs`` that were enqueued after a job or a batch."""
    condition = RawSQL("parents @> ARRAY[%s::bigint]", [parent], BooleanField())
    return jobs.filter(condition).order_by("pk")


def shown_jobs(
    site: AdminSite, request: HttpRequest, title: Any, jobs: QuerySet[Job], most: int = MOST_JOBS
) -> dict[str, Any]:
    """Return a table of jobs, of which only so many are shown."""
    found = list(jobs.only(*_COLUMNS)[: most + 1])
    rows = [_row(site, request, job) for job in found[:most]]
    return {"title": title, "rows": rows, "more": len(found) > most}


def _parents(site: AdminSite, request: HttpRequest, job: Job) -> dict[str, Any]:
    """Return the table of what a job runs after, with what it does if one of them fails."""
    alias = str(job._state.db)
    parents = Parents(job.parent_ids or (), alias)
    known = [key for key in parents if key not in parents.gone]
    hidden = hidden_of(site, request, alias, known)
    rows: Iterable[dict[str, Any]] = [
        *(_batch_row(site, request, batch) for batch in parents.batches.values()),
        *(_row(site, request, parents[key]) for key in known if key not in hidden),
        *({"id": key, "what": absent_text(site, request)} for key in (*parents.gone, *sorted(hidden))),
    ]
    rules = dict(Edge.objects.using(alias).filter(child_id=job.pk).values_list("parent_id", "if_failed"))
    labels = dict(Edge.IfFailed.choices)
    rows = [{**row, "note": labels.get(rules.get(row["id"], ""), "")} for row in rows]
    note = _("if it fails") if rules else ""
    return {"title": _("Runs after"), "rows": rows, "more": False, "note": note}


def _batch_row(site: AdminSite, request: HttpRequest, batch: JobBatch) -> dict[str, Any]:
    return {
        "id": batch.pk,
        "url": page_url(site, request, JobBatch, "change", batch.pk),
        "what": batch_fields.name(batch),
        "state": batch_fields.state(batch),
    }


def _row(site: AdminSite, request: HttpRequest, job: Job) -> dict[str, Any]:
    error = job.errors[-1].get("message", "") if job.errors and job.status == Job.Status.FAILED else ""
    note = redact_text(error or job.waiting_reason, job.task_path)
    return {
        "id": job.pk,
        "url": page_url(site, request, Job, "change", job.pk),
        "what": breakable(job.task_path),
        "state": display.status_badge(job.status),
        "note": note,
    }


# ----------------------------------------------------------------------------
# Links on the page of a job that the project declares for its tasks, and that its models have.
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
    function = _declared.get(job.task_path)
    if function is None:
        return []
    try:
        return [(str(label), str(url)) for label, url in function(job)]
    except Exception:  # the row of the argument may be deleted, and so on
        logger.warning("The links of %s failed for job %s.", job.task_path, job.pk, exc_info=True)
        return [(_("The links of this task failed; see the log."), "")]


def links_of_row(row: Any) -> list[tuple[str, str]]:
    """Return the link to a row of a model that has ``get_absolute_url``, such as the payload of a job."""
    if not hasattr(row, "get_absolute_url"):
        return []
    try:
        return [(capfirst(str(row._meta.verbose_name)), str(row.get_absolute_url()))]
    except Exception:
        logger.warning("get_absolute_url() of %s failed.", type(row).__qualname__, exc_info=True)
        return []
