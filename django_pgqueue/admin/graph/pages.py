"""The section "Workflow" on the page of a job or a batch, and a page with nothing else.

The server sends the nodes and arrows as JSON and as a table. The script ``workflow.js`` lays them out with
dagre and draws them; without it, the table stays open.

On its own page, a workflow is read with generous limits. The section links to it if smaller ones are not
enough. The page is also what the script reads again while something may change: after five seconds, or later
if it takes long to read, so that a forgotten browser window keeps the database busy for at most a twentieth
of the time.

Whoever may view jobs may see the drawing, as they see the batch of a job on its page.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from math import ceil
from typing import Any, TypeVar
from urllib.parse import urlencode
from zlib import crc32

from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.forms import Media, Script
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from ... import formatting
from ...models import Job, JobBatch
from ...models.job import Status
from ...tasks.links import HAS_CHILDREN
from ..base import ReadOnlyAdmin, written_out
from ..console import console_page, hidden_of, page_url
from ..jobs.search import BATCH
from .reading import LIVE, MATTERS, Arrow, Key, Limits, Node, NodeKind, Workflow, read

M = TypeVar("M", bound=Model)
_BESIDE_THE_REST = Limits(jobs=5_000, steps=60, seconds=1.0)
_PAUSE = 5
_SHARE = 20
_SCRIPTS: list[Any] = [  # the stubs know only texts
    Script(f"django_pgqueue/{name}.js", defer=True) for name in ("dagre/dagre.min", "workflow")
]
_MEDIA = Media(css={"all": ["django_pgqueue/workflow.css"]}, js=_SCRIPTS)


class WorkflowPages(ReadOnlyAdmin[M]):
    """The part of the admin of jobs, and of batches, with the workflow."""

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the page with the workflow only."""
        workflow = self.subpage("<path:object_id>/workflow/", self.workflow_view, "workflow")
        return [workflow, *super().get_urls()]

    def workflow_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The workflow of one job or batch."""
        # Django's own method: that of jobs reads more, for fields that are not on this page.
        row = ReadOnlyAdmin.get_object(self, request, unquote(object_id))
        if not (self.has_view_permission(request, row) and self._may_draw(request)):
            raise PermissionDenied
        if row is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        section = self._section(request, row, Limits())
        return console_page(
            self,
            request,
            "admin/django_pgqueue/workflow_page.html",
            section["title"],
            media=_MEDIA,
            back={"url": self.address("change", row.pk), "name": str(row)},
            pgqueue_workflow=section,
        )

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """Add the workflow, if there is one."""
        context = super().page_context(request, obj)
        if obj is not None and _has_workflow(obj) and self._may_draw(request):
            section = self._section(request, obj, _BESIDE_THE_REST)
            if section["problem"]:
                section = {"is_too_large": True}
            context["pgqueue_workflow"] = {**section, "page": self.address("workflow", obj.pk)}
            context["media"] = context.get("media", Media()) + _MEDIA
        return context

    def _section(self, request: HttpRequest, row: Any, limits: Limits) -> dict[str, Any]:
        """Return what the template shows."""
        alias = self.get_queryset(request).db
        whole = read(alias, row.pk, limits)
        jobs = {
            key for key, node in whole.nodes.items() if node.kind == NodeKind.JOB and isinstance(key, int)
        }
        whole.leave_out(hidden_of(self.admin_site, request, alias, jobs))
        workflow = folded(whole)
        called = _("batch %(id)s") if isinstance(row, JobBatch) else _("job %(id)s")
        title = _("Workflow of %(name)s") % {"name": called % {"id": row.pk}}
        counts = sum((whole.nodes[key].counts for key in whole.nodes if key in jobs), Counter[str]())
        count = _("jobs: %(count)s") % {"count": formatting.number(counts.total())}
        summary = ", ".join([count, *counted(counts).values()])
        boxes = boxes_of(workflow, lambda *given: self._url_of(request, *given))
        return {
            "title": title,
            "summary": summary,
            "boxes": boxes,
            "drawing": drawing(workflow, boxes, title, summary),
            "problem": workflow.problem,
            "is_folded": workflow is not whole,
            "source": self.address("workflow", row.pk),
            "pause": "" if whole.is_finished else str(max(_PAUSE, ceil(_SHARE * whole.seconds))),
        }

    def _may_draw(self, request: HttpRequest) -> bool:
        return bool(page_url(self.admin_site, request, Job, "changelist"))

    def _url_of(self, request: HttpRequest, node: Node, state: str) -> str:
        """Return the URL of the page of a node, or of the list of its jobs."""
        if node.kind == NodeKind.GONE:
            return ""
        if node.size == 1:
            model = Job if node.kind == NodeKind.JOB else JobBatch
            return page_url(self.admin_site, request, model, "change", node.key)
        url = page_url(self.admin_site, request, Job, "changelist")
        if node.kind != NodeKind.JOB or not node.name or not url:
            return ""
        query = {"task": node.name, "status": state, "q": f"{BATCH}{node.batch}" if node.batch else ""}
        return f"{url}?{urlencode({name: value for name, value in query.items() if value})}"


def _has_workflow(row: Any) -> bool:
    """Return whether the row is a batch, or a job that waits, that others wait for, or that is in a batch."""
    if isinstance(row, JobBatch):
        return True
    return bool(row.parent_ids or row.batch_id is not None or row.marks & HAS_CHILDREN)


# ----------------------------------------------------------------------------
# Draw a large workflow with few nodes: one for all jobs of a task.
#
# Jobs are folded first if they have the same task and batch and stand in the same column, so that the arrows
# keep their direction. If this is not enough, all jobs of a task become one node, and all batches of a name.
# The arrows may then lead in a circle; dagre can draw this. The node that the user came from is never folded.

#: Workflows with more nodes, or with arrows that lead over more columns in all, are folded. dagre takes less
#: than a second for these: 0.3 s for a chain of 300, 0.9 s for 600 random arrows.
MOST_NODES = 300
MOST_STEPS = 1_500


def folded(workflow: Workflow) -> Workflow:
    """Return the workflow if it is small, or a smaller one that stands for it."""
    column = columns(workflow)
    if _fits(workflow, column):
        return workflow
    by_place = _fold(workflow, lambda node: (node.kind, node.name, node.batch or 0, column[node.key]))
    if _fits(by_place, columns(by_place)):
        return by_place
    by_name = _fold(workflow, lambda node: (node.kind, node.name))
    if _fits(by_name, columns(by_name)):
        return by_name
    largest = sorted(by_name.nodes.values(), key=lambda node: -node.size)
    kept = {node.key for node in largest[: MOST_NODES - 2]}
    return _fold(by_name, lambda node: node.key if node.key in kept else ("others",))


def columns(workflow: Workflow) -> dict[Key, int]:
    """Return the column of each node: one to the right of the last of its parents. In a circle, one arrow
    leads back.
    """
    column = dict.fromkeys(workflow.nodes, 0)
    children: dict[Key, list[Key]] = defaultdict(list)
    parents_left = Counter(child for _parent, child in workflow.arrows)
    for parent, child in workflow.arrows:
        children[parent].append(child)
    ready, waiting = deque(key for key in column if not parents_left[key]), dict.fromkeys(column)
    while waiting:
        key = ready.popleft() if ready else next(iter(waiting))  # the latter only in a circle
        del waiting[key]
        for child in children[key]:
            if child in waiting:
                column[child] = max(column[child], column[key] + 1)
                parents_left[child] -= 1
                if not parents_left[child]:
                    ready.append(child)
    return column


def _fits(workflow: Workflow, column: dict[Key, int]) -> bool:
    steps = sum(abs(column[child] - column[parent]) for parent, child in workflow.arrows)
    return len(workflow.nodes) <= MOST_NODES and steps <= MOST_STEPS


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
        kind=first.kind,
        name=first.name if _same(node.name for node in group) else "",
        counts=sum((node.counts for node in group), Counter[str]()),
        size=sum(node.size for node in group),
        batch=first.batch if _same(node.batch for node in group) else None,
        is_finished=all(node.is_finished for node in group),
    )


def _same(values: Iterable[object]) -> bool:
    return len(set(values)) == 1


# ----------------------------------------------------------------------------
# The nodes in words, for the table and for the script.

#: The parts of the bar of a batch, from what is over to what has not started.
_BAR = ("done", "cancelled", "failed", "running", "retry", LIVE, "pending", "blocked")
_MOST_OF_NAME, _MOST_OF_STATE = 20, 26  # characters in a box


def boxes_of(workflow: Workflow, url_of: Callable[[Node, str], str]) -> list[dict[str, Any]]:
    """Return each node as the template shows it, those that wait for nothing first."""
    column = columns(workflow)
    waits: dict[Key, list[str]] = defaultdict(list)
    for parent, child in workflow.arrows:
        waits[child].append(full_name(workflow.nodes[parent]))
    return [
        {
            "node": node,
            # The same for a node each time, so that the focus stays when the drawing is read again.
            "anchor": _anchor(key),
            "name": full_name(node),
            "state": state_words(node),
            "counts": [
                {"text": text, "url": url_of(node, state)}
                for state, text in counted(node.counts).items()
                if node.kind == NodeKind.JOB and node.size > 1
            ],
            "url": url_of(node, ""),
            "is_here": key == workflow.here,
            "waits_for": waits[key],
        }
        for key, node in sorted(workflow.nodes.items(), key=lambda item: column[item[0]])
    ]


def drawing(workflow: Workflow, boxes: list[dict[str, Any]], title: str, summary: str) -> dict[str, Any]:
    """Return the JSON from which the script draws."""
    arrows = [
        [_anchor(parent), _anchor(child), arrow.value, workflow.nodes[parent].has_failed]
        for (parent, child), arrow in workflow.arrows.items()
    ]
    return {"title": title, "summary": summary, "nodes": [_drawn(box) for box in boxes], "arrows": arrows}


def _drawn(box: dict[str, Any]) -> dict[str, Any]:
    """Return a node as the script draws it: two short lines, and the whole as its title."""
    node: Node = box["node"]
    words = [f"#{node.key}" if isinstance(node.key, int) else "", box["state"]]
    told = ": ".join(filter(None, [box["name"], box["state"]]))
    return {
        "id": box["anchor"],
        "kind": node.kind,
        "status": node.state,
        "label": Truncator(written_out(short_name(node))).chars(_MOST_OF_NAME),
        "text": Truncator(" · ".join(filter(None, words))).chars(_MOST_OF_STATE),
        "title": written_out(f"{told}. {node.note}" if node.note else told),
        "url": box["url"],
        "isHere": box["is_here"],
        "bar": [] if node.is_one_job else [[part, node.counts[part]] for part in _BAR if node.counts[part]],
    }


def _anchor(key: Key) -> str:
    return str(key) if isinstance(key, int) else f"of-{crc32(repr(key).encode())}"


def short_name(node: Node) -> str:
    """Return the name in the drawing: of a task without its module, and how many there are."""
    name = {
        NodeKind.JOB: node.name.rpartition(".")[2] or _("other tasks"),
        NodeKind.BATCH: node.name or (_("batch") if node.size == 1 else _("batches")),
        NodeKind.GONE: _("no longer kept"),
    }[node.kind]
    return name if node.size == 1 else f"{name} × {formatting.number(node.size)}"


def full_name(node: Node) -> str:
    """Return the name in the table, with the whole path of a task and the id of a job or batch."""
    if node.size > 1:
        return f"{node.name} × {formatting.number(node.size)}" if node.name else short_name(node)
    text = {
        NodeKind.JOB: _("%(task)s (%(id)s)"),
        NodeKind.BATCH: _("batch %(id)s, %(name)s"),
        NodeKind.GONE: _("%(id)s, no longer kept"),
    }[node.kind]
    return text % {"id": node.key, "task": node.name, "name": node.name or _("without a name")}


def state_words(node: Node) -> str:
    """Return the state of a job, or the number of jobs in each state."""
    if node.is_one_job:
        return _state(node.state)
    if node.kind == NodeKind.BATCH and node.size == 1 and not node.counts:
        return pgettext("batch", "empty")
    return ", ".join(counted(node.counts).values())


def counted(counts: Counter[str]) -> dict[str, str]:
    """Return for each state "12 failed", "9,000 done", and so on, that which matters most first."""
    return {
        state: _("%(count)s %(status)s")
        % {"count": formatting.number(counts[state]), "status": _state(state)}
        for state in MATTERS
        if counts[state]
    }


def _state(state: str) -> str:
    return _("live") if state == LIVE else str(Status(state).label)
