"""The section "Workflow" on the page of a job or a batch, and a page with nothing else.

On its own page, a workflow is read with generous limits. The section links to it if smaller ones are not
enough. The page is also what the script reads again while something may change: after five seconds, or later
if it takes long to read, so that a forgotten browser window keeps the database busy for at most a twentieth
of the time.

Whoever may view jobs may see the drawing, as they see the batch of a job on its page.
"""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.forms import Media
from django.urls import path, reverse
from django.utils.translation import gettext as _

from ...link import HAS_CHILDREN
from ...models import Job, JobBatch
from .. import display
from ..base import ReadOnlyAdmin
from ..console import console_page
from ..jobs.search import BATCH
from ..links import page_url
from . import wording
from .fold import folded
from .layout import layout
from .nodes import Kind, Node
from .reading import Limits, read
from .shapes import drawn

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

    from .nodes import Workflow

__all__ = ["WorkflowPages"]

M = TypeVar("M", bound=Model)

_BESIDE_THE_REST = Limits(jobs=5_000, steps=60, seconds=1.0)
_PAUSE = 5
_SHARE = 20
_MEDIA = Media(css={"all": ["django_pgqueue/workflow.css"]})


class WorkflowPages(ReadOnlyAdmin[M]):
    """The part of the admin of jobs, and of batches, with the workflow."""

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the page with the workflow only."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_workflow"
        view = self.admin_site.admin_view(self.workflow_view)
        return [path("<path:object_id>/workflow/", view, name=name), *super().get_urls()]

    def workflow_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The workflow of one job or batch."""
        # Django's own method: that of jobs reads more, for fields that are not on this page.
        row = ReadOnlyAdmin.get_object(self, request, unquote(object_id))
        if not (self.has_view_permission(request, row) and self._may_draw(request)):
            raise PermissionDenied
        if row is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        return console_page(
            self,
            request,
            "admin/django_pgqueue/workflow_page.html",
            _("Workflow of %(name)s") % {"name": self._called(request, row)},
            media=_MEDIA,
            back={"url": self._page("change", row), "name": str(row)},
            pgqueue_workflow=self._section(request, row, Limits()),
        )

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        """Add the workflow, if there is one."""
        if obj is not None and _has_workflow(obj) and self._may_draw(request):
            context["media"] += _MEDIA
            section = self._section(request, obj, _BESIDE_THE_REST)
            if section["problem"]:
                section = {"is_too_large": True}
            context["pgqueue_workflow"] = {**section, "page": self._page("workflow", obj)}
        return super().render_change_form(request, context, add, change, form_url, obj)

    def _section(self, request: HttpRequest, row: Any, limits: Limits) -> dict[str, Any]:
        """Return what the template shows."""
        whole = read(self.get_queryset(request).db, row.pk, limits)
        workflow = folded(whole)

        def url_of(node: Node, state: str = "") -> str:
            return self._url_of(request, node, state)

        return {
            "title": _("Workflow of %(name)s") % {"name": self._called(request, row)},
            "summary": _summary(whole),
            "drawing": drawn(workflow, layout(workflow.nodes, workflow.arrows), url_of),
            "problem": workflow.problem,
            "is_folded": workflow is not whole,
            "source": self._page("workflow", row),
            "pause": "" if whole.is_over else str(max(_PAUSE, ceil(_SHARE * whole.seconds))),
        }

    def _may_draw(self, request: HttpRequest) -> bool:
        return bool(page_url(self.admin_site, request, Job, "changelist"))

    def _called(self, request: HttpRequest, row: Any) -> str:
        if isinstance(row, JobBatch):
            return _("batch %(id)s") % {"id": row.pk}
        return _("job %(id)s") % {"id": row.pk}

    def _url_of(self, request: HttpRequest, node: Node, state: str) -> str:
        """Return the URL of the page of a node, or of the list of its jobs."""
        if node.kind in {Kind.JOB, Kind.BATCH}:
            model = Job if node.kind == Kind.JOB else JobBatch
            return page_url(self.admin_site, request, model, "change", node.key)
        url = page_url(self.admin_site, request, Job, "changelist")
        if node.kind != Kind.MANY_JOBS or not node.name or not url:
            return ""
        query = {"task": node.name, "status": state, "q": f"{BATCH}{node.batch}" if node.batch else ""}
        return f"{url}?{urlencode({name: value for name, value in query.items() if value})}"

    def _page(self, page: str, row: Any) -> str:
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}"
        return reverse(name, args=[quote(row.pk)], current_app=self.admin_site.name)


def _has_workflow(row: Any) -> bool:
    """Return whether the row is a batch, or a job that waits, that others wait for, or that is in a batch."""
    if isinstance(row, JobBatch):
        return True
    return bool(row.parent_ids or row.batch_id is not None or row.marks & HAS_CHILDREN)


def _summary(workflow: Workflow) -> str:
    """Return the number of jobs and batches, and the number of jobs in each state."""
    jobs = [node for node in workflow.nodes.values() if node.kind == Kind.JOB]
    counts = sum((node.counts for node in jobs), Counter[str]())
    parts = [_("jobs: %(count)s") % {"count": display.number(len(jobs))}, *wording.counted(counts).values()]
    return ", ".join(parts)
