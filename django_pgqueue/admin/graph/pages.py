"""The section "Workflow" on the page of a job or a batch, and a page with nothing else.

On its own page, a workflow is read with generous limits. The section links to it if smaller ones are not
enough. The page is also what the script reads again while something may change: after five seconds, or later
if it takes long to read, so that a forgotten browser window keeps the database busy for at most a twentieth
of the time.

Whoever may view jobs may see the drawing, as they see the batch of a job on its page.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.forms import Media
from django.urls import path, reverse
from django.utils.translation import gettext as _

from ...models import Job, JobBatch
from ...tasks.link import HAS_CHILDREN
from .. import display
from ..base import ReadOnlyAdmin
from ..console import console_page
from ..display import page_url
from ..jobs.search import BATCH
from ..visible import hidden_of
from .layout import Arrow, Key, Kind, Node, Workflow, columns, layout
from .reading import Limits, read
from .shapes import counted, drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

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
        alias = self.get_queryset(request).db
        whole = read(alias, row.pk, limits)
        jobs = [int(str(node.key)) for node in whole.nodes.values() if node.kind == Kind.JOB]
        _leave_out(whole, hidden_of(self.admin_site, request, alias, jobs))
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
            "pause": "" if whole.is_finished else str(max(_PAUSE, ceil(_SHARE * whole.seconds))),
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


def _leave_out(workflow: Workflow, hidden: set[int]) -> None:
    """Remove the nodes of jobs that a user may not see, and their arrows."""
    for key in hidden:
        del workflow.nodes[key]
    for ends in [ends for ends in workflow.arrows if hidden.intersection(ends)]:
        del workflow.arrows[ends]


def _summary(workflow: Workflow) -> str:
    """Return the number of jobs and batches, and the number of jobs in each state."""
    jobs = [node for node in workflow.nodes.values() if node.kind == Kind.JOB]
    counts = sum((node.counts for node in jobs), Counter[str]())
    parts = [_("jobs: %(count)s") % {"count": display.number(len(jobs))}, *counted(counts).values()]
    return ", ".join(parts)


# ----------------------------------------------------------------------------
# Draw a large workflow with few nodes: one for all jobs of a task.
#
# Jobs are folded first if they have the same task and batch and stand in the same column, so that the arrows
# keep their direction. If this is not enough, all jobs of a task become one node, and all batches of a name.
# The arrows may then lead in a circle; the layout can draw this. The node that the user came from is never
# folded.

#: Workflows with more nodes or arrows are folded.
MOST_NODES = 300
MOST_ARROWS = 1_500
_OTHERS = ("others",)
_MANY = {
    Kind.JOB: Kind.MANY_JOBS, Kind.BATCH: Kind.MANY_BATCHES, Kind.GONE: Kind.GONE,
    Kind.MANY_JOBS: Kind.MANY_JOBS, Kind.MANY_BATCHES: Kind.MANY_BATCHES,
}  # fmt: skip


def folded(workflow: Workflow) -> Workflow:
    """Return the workflow if it is small, or a smaller one that stands for it."""
    if _fits(workflow):
        return workflow
    column = columns(workflow.nodes, workflow.arrows)
    by_place = _fold(workflow, lambda node: (node.kind, node.name, node.batch or 0, column[node.key]))
    if _fits(by_place):
        return by_place
    by_name = _fold(workflow, lambda node: (node.kind, node.name))
    if _fits(by_name):
        return by_name
    sizes = sorted(by_name.nodes.values(), key=lambda node: -node.size)
    kept = {node.key for node in sizes[: MOST_NODES - 2]}
    return _fold(by_name, lambda node: node.key if node.key in kept else _OTHERS)


def _fits(workflow: Workflow) -> bool:
    return len(workflow.nodes) <= MOST_NODES and len(workflow.arrows) <= MOST_ARROWS


def _fold(workflow: Workflow, key_of: Callable[[Node], Key]) -> Workflow:
    """Make one node of all nodes with the same key."""
    groups: dict[Key, list[Node]] = defaultdict(list)
    for node in workflow.nodes.values():
        groups[node.key if node.key == workflow.here else key_of(node)].append(node)
    small = Workflow(workflow.here, problem=workflow.problem, seconds=workflow.seconds)
    new_key: dict[Key, Key] = {}
    for key, group in groups.items():
        node = group[0] if len(group) == 1 else _many(key, group)
        small.nodes[node.key] = node
        new_key.update((each.key, node.key) for each in group)
    for (parent, child), arrow in workflow.arrows.items():
        ends = new_key[parent], new_key[child]
        if ends[0] != ends[1]:
            both = small.arrows.setdefault(ends, arrow)
            small.arrows[ends] = Arrow.MEMBER if both == arrow == Arrow.MEMBER else Arrow.AFTER
    return small


def _many(key: Key, group: list[Node]) -> Node:
    first = group[0]
    return Node(
        key=key,
        kind=_MANY[first.kind],
        name=first.name if _same(node.name for node in group) else "",
        counts=sum((node.counts for node in group), Counter[str]()),
        size=sum(node.size for node in group),
        batch=first.batch if _same(node.batch for node in group) else None,
        is_finished=all(node.is_finished for node in group),
    )


def _same(values: Iterable[object]) -> bool:
    return len(set(values)) == 1
