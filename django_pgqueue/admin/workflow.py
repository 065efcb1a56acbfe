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
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil
from time import monotonic
from typing import Any, Literal, NamedTuple, TypeAlias
from zlib import crc32

from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.text import Truncator
from django.utils.translation import gettext as _, ngettext, pgettext

from .. import formatting
from ..models import Job, JobBatch
from ..models.job import Status
from ..postgres import sql_of
from ..postgres.timeout import TimeLimitReached, rows_within, within
from ..redaction import redact_text
from ..tasks.links import HAS_CHILDREN
from .base import M, ReadOnlyAdmin, written_out
from .console import assets, console_page, hidden_of, page_url, with_query

# A workflow: jobs, batches, and which of them waits for which. A batch waits for its members, so an arrow
# leads from each member to its batch. A parent that is no longer kept has a node, too, because its children
# still name it: whether it was a job or a batch is unknown.

Key: TypeAlias = "int | tuple[str | int, ...]"
"""The id of a job or a batch, or what the jobs of a folded node have in common."""
Arrow: TypeAlias = Literal["after", "member"]  # why the second node waits for the first
#: Members of a batch that have not finished, if no worker has looked at them.
LIVE = "live"
#: The states of many jobs, that which matters most first.
MATTERS = ("failed", "running", LIVE, "retry", "pending", "blocked", "cancelled", "done")


@dataclass(frozen=True, slots=True)
class Node:
    """A job, a batch, or many of one of them."""

    key: Key
    kind: Literal["job", "batch", "gone"]
    name: str  # the path of the task, or the name of the batch
    counts: Counter[str]  # the number of jobs in each state; of a batch, of its members
    size: int = 1  # the number of jobs or batches that the node stands for
    batch: int | None = None  # the batch of a job, or that of all jobs
    note: str = ""
    is_finished: bool = False

    @property
    def state(self) -> str:
        """The state that matters most among the ones that occur; empty if there are no jobs."""
        return next((state for state in MATTERS if self.counts[state]), "")


@dataclass(slots=True)
class Workflow:
    """The nodes around one job or batch, and the arrows between them."""

    here: int
    nodes: dict[Key, Node] = field(default_factory=dict)
    arrows: dict[tuple[Key, Key], Arrow] = field(default_factory=dict)
    problem: str = ""  # why this is not the whole workflow; empty if it is

    @property
    def is_finished(self) -> bool:
        """Whether nothing changes any more, unless a user retries or adds a job."""
        return all(node.is_finished for node in self.nodes.values())


# Read the workflow around a job or a batch, with one statement for each step away from it. From a job, the
# steps lead to its parents, to its batch, and to the jobs that wait for it; from a batch, to its members. Ids
# are asked for once, so that even a circle, which the queue does not permit, would end. The number of jobs,
# of steps and of seconds is limited; what was read until then is shown. The statements see the jobs at
# slightly different moments. A job that is moved to the history in between is read again, or keeps the state
# that was read first.

_JOBS = sql_of(__file__, "workflow_jobs")
_BATCHES = sql_of(__file__, "workflow_batches")
#: PostgreSQL takes ``&&`` with many values for a condition that many jobs fulfill, and reads whole leaves.
#: The settings end with the block of ``timeout``.
_PINNED = "SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"
#: The jobs one step away: with these ids, in these batches, or enqueued after these jobs or batches.
_STEPS = {
    "ids": "job.id = ANY (%(ids)s::bigint[])",
    "batches": "job.batch = ANY (%(batches)s::bigint[])",
    "parents": "job.parents && %(parents)s::bigint[]",
}
#: Of so many jobs, the children are also searched without the mark.
_FEW = 1_000


class Limits(NamedTuple):
    """How much is read at most."""

    jobs: int = 20_000
    steps: int = 400
    seconds: float = 3.0


class _Job(NamedTuple):
    """A row of ``workflow_jobs.sql``."""

    id: int
    task_path: str
    status: str
    marks: int
    batch: int | None
    parents: list[int]
    waiting_reason: str

    @property
    def around(self) -> set[int]:
        """What it waits for, and its batch. Which of its parents are batches is unknown."""
        return {*self.parents} if self.batch is None else {*self.parents, self.batch}


def read(alias: str, here: int, limits: Limits) -> Workflow:
    """Return the workflow around the job or batch with this id."""
    jobs: dict[int, _Job] = {}
    asked: dict[str, set[int]] = {part: set() for part in _STEPS}
    is_whole = within(alias, limits.seconds, lambda: _walk(alias, here, limits, jobs, asked))
    workflow = Workflow(here)
    too_long = _("The database took too long, so this is not the whole workflow.")
    if is_whole is None:
        workflow.problem = too_long
    elif not is_whole:
        words = _("This workflow is large. Only %(count)s jobs around this one are shown.")
        workflow.problem = words % {"count": formatting.number(len(jobs))}
    live: dict[int | None, Counter[str]] = defaultdict(Counter)
    for job in jobs.values():
        workflow.nodes[job.id] = node = Node(
            job.id, "job", job.task_path, Counter({job.status: 1}), batch=job.batch,
            note=redact_text(job.waiting_reason, job.task_path), is_finished=Status(job.status).is_terminal,
        )  # fmt: skip
        live[job.batch].update(() if node.is_finished else node.counts)
    keys = {here}.union(*(job.around for job in jobs.values())) - jobs.keys()
    try:
        batches: Any = keys and rows_within(alias, limits.seconds, _BATCHES, {"ids": sorted(keys)})
    except TimeLimitReached:
        batches, workflow.problem = [], too_long
    for key, name, is_open, is_finished, added, done, failed, cancelled in batches:
        counts = Counter(done=done, failed=failed, cancelled=cancelled)
        # The states of live members are known only if all of them were read.
        counts.update(Counter({LIVE: added - counts.total()}) if workflow.problem else live[key])
        note = _("still open") if is_open else ""
        workflow.nodes[key] = Node(key, "batch", name, +counts, note=note, is_finished=is_finished)
    for job in jobs.values():
        for parent in job.parents:
            if parent in asked["ids"] and parent not in workflow.nodes:  # it is no longer kept
                workflow.nodes[parent] = Node(parent, "gone", "", Counter(), is_finished=True)
            if parent in workflow.nodes:
                workflow.arrows[parent, job.id] = "after"
        if job.batch in workflow.nodes:
            workflow.arrows[job.id, job.batch] = "member"
    return workflow


def _walk(alias: str, here: int, limits: Limits, jobs: dict[int, _Job], asked: dict[str, set[int]]) -> bool:
    """Read into ``jobs`` from ``here`` on. Return whether this was all. Of the "ids" that were ``asked`` for,
    all that exist and are jobs are in ``jobs``.
    """
    end = monotonic() + limits.seconds
    wanted = {"ids": {here}}  # first alone: were it one of many, the limit might leave it out
    with connections[alias].cursor() as cursor:
        cursor.execute(_PINNED)
        for step in range(limits.steps + 1):
            values = {part: sorted(ids) for part, ids in wanted.items() if ids}
            # A part that asks for nothing would be planned for each leaf all the same.
            parts = " UNION ".join(_JOBS + _STEPS[part] for part in values)
            cursor.execute(f"{parts} LIMIT %(most)s", {**values, "most": limits.jobs + 1})
            found = [_Job(*row) for row in sorted(cursor.fetchall()) if row[0] not in jobs]
            room = limits.jobs - len(jobs)
            jobs.update((job.id, job) for job in found[:room])
            if len(found) > room:
                return False
            for part, ids in wanted.items():
                asked[part] |= ids
            # A job that had finished when others began to wait for it has no mark.
            parents = {job.id for job in found if job.marks & HAS_CHILDREN or len(jobs) < _FEW}
            around = set[int]() if step else {here}
            around.update(*(job.around for job in found))
            unknown = around - jobs.keys()
            wanted = {"ids": unknown, "batches": unknown, "parents": around | parents}
            wanted = {part: ids - asked[part] for part, ids in wanted.items()}
            if not any(wanted.values()):
                return True
            if monotonic() > end:
                raise TimeLimitReached
    return False


# Draw a large workflow with few nodes: one for all jobs of a task. Jobs are folded first if they have the
# same task and batch and stand in the same column, so that the arrows keep their direction. If this is not
# enough, all jobs of a task become one node, and all batches of a name. The arrows may then lead in a circle;
# dagre can draw this. The node that the user came from is never folded.

#: Workflows with more nodes, or with arrows that lead over more columns in all, are folded. dagre takes less
#: than a second for these: 0.3 s for a chain of 300, 0.9 s for 600 random arrows.
MOST_NODES = 300
MOST_STEPS = 1_500


def folded(workflow: Workflow) -> Workflow:
    """Return the workflow if it is small, or a smaller one that stands for it."""
    if _fits(workflow):
        return workflow
    column = columns(workflow)
    small = _fold(workflow, lambda node: (node.kind, node.name, node.batch or 0, column[node.key]))
    if _fits(small):
        return small
    sizes = Counter((node.kind, node.name) for node in workflow.nodes.values())
    most = {name: name for name, _size in sizes.most_common(MOST_NODES - 2)}  # besides "here" and the others
    return _fold(workflow, lambda node: most.get((node.kind, node.name), ("others",)))


def columns(workflow: Workflow) -> dict[Key, int]:
    """Return the column of each node, right of its last parent. In a circle, one arrow leads back."""
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


def _fits(workflow: Workflow) -> bool:
    column = columns(workflow)
    steps = sum(abs(column[child] - column[parent]) for parent, child in workflow.arrows)
    return len(workflow.nodes) <= MOST_NODES and steps <= MOST_STEPS


def _fold(workflow: Workflow, key_of: Callable[[Node], Key]) -> Workflow:
    """Make one node of all nodes with the same key."""
    groups: dict[Key, list[Node]] = defaultdict(list)
    for node in workflow.nodes.values():
        groups[node.key if node.key == workflow.here else key_of(node)].append(node)
    small = replace(workflow, nodes={}, arrows={})
    new_key: dict[Key, Key] = {}
    for key, group in groups.items():
        node = group[0]
        if len(group) > 1:
            names, batches = {each.name for each in group}, {each.batch for each in group}
            node = Node(
                key=key,
                kind=node.kind,
                name=names.pop() if len(names) == 1 else "",
                counts=sum((each.counts for each in group), Counter[str]()),
                size=len(group),
                batch=batches.pop() if len(batches) == 1 else None,
                is_finished=all(each.is_finished for each in group),
            )
        small.nodes[node.key] = node
        new_key.update((each.key, node.key) for each in group)
    for (parent, child), arrow in workflow.arrows.items():
        ends = new_key[parent], new_key[child]
        if ends[0] != ends[1]:
            both = small.arrows.setdefault(ends, arrow)
            small.arrows[ends] = "member" if both == arrow == "member" else "after"
    return small


#: The parts of the bar of a batch, from what has finished to what has not started.
_BAR = ("done", "cancelled", "failed", "running", "retry", LIVE, "pending", "blocked")
_MOST_OF_NAME, _MOST_OF_STATE = 20, 26  # characters in a box


def boxes_of(workflow: Workflow, url_of: Callable[[Node, str], str]) -> list[dict[str, Any]]:
    """Return each node as the template shows it, and as it is "drawn" by the script: two short lines, and the
    whole as its title. Jobs that wait for nothing come first.
    """
    column, boxes = columns(workflow), []
    words = {key: words_of(node) for key, node in workflow.nodes.items()}
    waits: dict[Key, list[str]] = defaultdict(list)
    for parent, child in workflow.arrows:
        waits[child].append(words[parent][1])
    for key, node in sorted(workflow.nodes.items(), key=lambda item: column[item[0]]):
        is_job, (short, name, state) = node.kind == "job", words[key]
        text = [f"#{key}" if isinstance(key, int) else "", state]
        label = ": ".join(filter(None, [name, state]))
        shares = [] if is_job and node.size == 1 else _BAR
        drawn = {
            "id": _anchor(key),
            "kind": node.kind,
            "status": node.state,
            "label": Truncator(written_out(short)).chars(_MOST_OF_NAME),
            "text": Truncator(" · ".join(filter(None, text))).chars(_MOST_OF_STATE),
            "title": written_out(f"{label}. {node.note}" if node.note else label),
            "url": url_of(node, ""),
            "isHere": key == workflow.here,
            "bar": [[part, node.counts[part]] for part in shares if node.counts[part]],
        }
        by_state = counted(node.counts) if is_job and node.size > 1 else {}
        counts = [{"text": text, "url": url_of(node, each)} for each, text in by_state.items()]
        boxes.append({"node": node, "name": name, "state": state, "counts": counts, "waits_for": waits[key],
                      "drawn": drawn})  # fmt: skip
    return boxes


def drawing(workflow: Workflow, boxes: list[dict[str, Any]], title: str, summary: str) -> dict[str, Any]:
    """Return the JSON from which the script draws. An arrow says whether it comes from a failure."""
    failed = {
        key
        for key, node in workflow.nodes.items()
        if node.is_finished and node.size == 1 and node.state == Status.FAILED.value
    }
    arrows = [
        [_anchor(parent), _anchor(child), arrow, parent in failed]
        for (parent, child), arrow in workflow.arrows.items()
    ]
    nodes = [box["drawn"] for box in boxes]
    return {"title": title, "summary": summary, "nodes": nodes, "arrows": arrows}


def _anchor(key: Key) -> str:
    """Return the same for a node each time, so that the focus stays when the drawing is read again."""
    return str(key) if isinstance(key, int) else f"of-{crc32(repr(key).encode())}"


def words_of(node: Node) -> tuple[str, str, str]:
    """Return the name in the drawing, without the module of a task; that in the table, with the id of a job
    or batch; and the state, or the number of jobs in each state.
    """
    if node.kind == "gone":
        short, full = _("no longer kept"), _("%(id)s, no longer kept") % {"id": node.key}
    elif node.kind == "job":
        short = node.name.rpartition(".")[2] or _("other tasks")
        full = _("%(task)s (%(id)s)") % {"id": node.key, "task": node.name}
    else:
        short = node.name or (_("batch") if node.size == 1 else _("batches"))
        full = _("batch %(id)s, %(name)s") % {"id": node.key, "name": node.name or _("without a name")}
    state = ", ".join(counted(node.counts).values())
    if node.size > 1:
        many = f" × {formatting.number(node.size)}"
        return f"{short}{many}", f"{node.name or short}{many}", state
    if node.kind == "job":
        state = str(Status(node.state).label)
    elif node.kind == "batch" and not state:
        state = pgettext("batch", "empty")
    return short, full, state


def counted(counts: Counter[str]) -> dict[str, str]:
    """Return for each state "12 failed", "9,000 done", and so on, that which matters most first."""
    labels = {LIVE: _("live"), **dict(Status.choices)}
    return {
        state: _("%(count)s %(status)s")
        % {"count": formatting.number(counts[state]), "status": labels[state]}
        for state in MATTERS
        if counts[state]
    }


_BESIDE_THE_REST = Limits(jobs=5_000, steps=60, seconds=1.0)
_SHARE = 20
_MEDIA = assets("workflow", scripts=("dagre/dagre.min", "workflow"))


class WorkflowPages(ReadOnlyAdmin[M]):
    """The part of the admin of jobs, and of batches, with the workflow."""

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the page with the workflow only."""
        return [self.rowpage("workflow", self.workflow_view, "draw"), *super().get_urls()]

    def has_draw_permission(self, request: HttpRequest) -> bool:
        """Return whether this user may see workflows."""
        return bool(page_url(self.admin_site, request, Job, "changelist"))

    def workflow_view(self, request: HttpRequest, row: Any) -> HttpResponse:
        """The workflow of one job or batch."""
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
        is_batch = isinstance(obj, JobBatch)
        has_workflow = is_batch or obj.parent_ids or obj.batch_id is not None or obj.marks & HAS_CHILDREN
        if has_workflow and self.has_draw_permission(request):
            section = self._section(request, obj, _BESIDE_THE_REST)
            if section["problem"]:
                section = {"is_too_large": True}
            context["pgqueue_workflow"] = {**section, "page": self.address("workflow", obj.pk)}
            context["media"] += _MEDIA
        return context

    def _section(self, request: HttpRequest, row: Any, limits: Limits) -> dict[str, Any]:
        """Return what the template shows."""
        alias, start = self.get_queryset(request).db, monotonic()
        whole = read(alias, row.pk, limits)
        seconds = monotonic() - start
        jobs = {key for key, node in whole.nodes.items() if node.kind == "job" and isinstance(key, int)}
        if hidden := hidden_of(self.admin_site, request, alias, jobs):
            whole.nodes = {key: node for key, node in whole.nodes.items() if key not in hidden}
            whole.arrows = {ends: each for ends, each in whole.arrows.items() if not hidden & {*ends}}
        workflow = folded(whole)
        called = _("batch %(id)s") if isinstance(row, JobBatch) else _("job %(id)s")
        title = _("Workflow of %(name)s") % {"name": called % {"id": row.pk}}
        counts = sum((node.counts for node in whole.nodes.values() if node.kind == "job"), Counter[str]())
        total, parts = counts.total(), ", ".join(counted(counts).values())
        words = ngettext("%(count)s job: %(parts)s", "%(count)s jobs: %(parts)s", total)
        summary = words % {"count": formatting.number(total), "parts": parts or "-"}
        boxes = boxes_of(workflow, lambda *given: self._url_of(request, *given))
        return {
            "title": title,
            "summary": summary,
            "boxes": boxes,
            "drawing": drawing(workflow, boxes, title, summary),
            "problem": workflow.problem,
            "is_folded": workflow is not whole,
            "source": self.address("workflow", row.pk),
            "pause": "" if whole.is_finished else str(max(5, ceil(_SHARE * seconds))),
        }

    def _url_of(self, request: HttpRequest, node: Node, state: str) -> str:
        """Return the URL of the page of a node, or of the list of its jobs."""
        if node.kind == "gone":
            return ""
        if node.size == 1:
            model = Job if node.kind == "job" else JobBatch
            return page_url(self.admin_site, request, model, "change", node.key)
        url = page_url(self.admin_site, request, Job, "changelist")
        if node.kind != "job" or not node.name:
            return ""
        batch = f"batch:{node.batch}" if node.batch else ""
        return with_query(url, task=node.name, status=state, q=batch)
