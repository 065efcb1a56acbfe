"""The drawing in pixels: boxes and arrows, as the template of the SVG needs them.

All numbers are text, so that a template does not format them in the language of the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import east_asian_width
from zlib import crc32

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from ...models.job import Status
from .. import display
from .layout import LIVE, MATTERS, Kind, Node, Workflow

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from .layout import Key, Layout, Place

_WIDTH, _HEIGHT = 192, 48
_GAP_X, _GAP_Y = 56, 16
_MARGIN = 8
_PADDING = 12
_NAME_COLUMNS, _STATE_COLUMNS = 21, 26
_BAR = ("done", "cancelled", "failed", "running", "retry", LIVE, "pending", "blocked")


class Bar(NamedTuple):
    """A part of the bar in a box, as wide as its share of the jobs."""

    x: str
    width: str
    state: str


class Count(NamedTuple):
    """The number of jobs in one state, and the URL of their list."""

    text: str
    url: str


@dataclass(frozen=True, slots=True)
class Box:
    """A node in the drawing and in the table."""

    anchor: str
    classes: str
    radius: str
    is_here: bool
    x: str
    y: str
    label: str
    text: str
    full_name: str
    state_text: str
    counts: list[Count]
    note: str
    url: str
    bars: list[Bar]
    waits_for: list[str]


@dataclass(frozen=True, slots=True)
class Line:
    """An arrow."""

    path: str
    kind: str
    is_failed: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    """Everything that the template needs."""

    width: str
    height: str
    boxes: list[Box]
    lines: list[Line]
    box_width: str = str(_WIDTH)
    box_height: str = str(_HEIGHT)
    bar_y: str = str(_HEIGHT - 6)
    padding: str = str(_PADDING)
    clip_width: str = str(_WIDTH - _PADDING - 4)


def drawn(workflow: Workflow, layout: Layout[Key], url_of: Callable[[Node, str], str]) -> Drawing:
    """Return the drawing of a workflow that is small enough."""
    names = {key: full_name(node) for key, node in workflow.nodes.items()}
    waits: dict[Key, list[str]] = {key: [] for key in workflow.nodes}
    for parent, child in workflow.arrows:
        waits[child].append(names[parent])
    boxes = [
        _box(node, layout.places[key], key == workflow.here, url_of, waits[key], names[key])
        for key, node in sorted(workflow.nodes.items(), key=lambda item: layout.places[item[0]])
    ]
    lines = [
        Line(_path(route), workflow.arrows[ends].value, workflow.nodes[ends[0]].has_failed)
        for ends, route in layout.routes.items()
    ]
    width = layout.width * (_WIDTH + _GAP_X) - _GAP_X + 2 * _MARGIN
    height = layout.height * (_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _MARGIN
    return Drawing(_px(max(width, 0)), _px(max(height, 0)), boxes, lines)


def _box(
    node: Node,
    place: Place,
    is_here: bool,
    url_of: Callable[[Node, str], str],
    waits_for: list[str],
    name: str,
) -> Box:
    is_one = isinstance(node.key, int)
    state_text = state_words(node)
    words = [f"#{node.key}", state_text] if is_one else [state_text]
    more = [node.kind.replace(" ", "-"), node.state, "here" if is_here else ""]
    states = counted(node.counts) if node.kind == Kind.MANY_JOBS else {}
    return Box(
        anchor=str(node.key) if is_one else f"of-{crc32(repr(node.key).encode())}",
        classes=" ".join(["pgqueue-node", *(f"pgqueue-node-{each}" for each in more if each)]),
        radius="16" if node.kind in {Kind.BATCH, Kind.MANY_BATCHES} else "4",
        is_here=is_here,
        x=_px(_left(place)),
        y=_px(_middle(place) - _HEIGHT / 2),
        label=shortened(node_label(node), _NAME_COLUMNS),
        text=shortened(" · ".join(filter(None, words)), _STATE_COLUMNS),
        full_name=name,
        state_text=state_text,
        counts=[Count(text, url_of(node, state)) for state, text in states.items()],
        note=node.note,
        url=url_of(node, ""),
        bars=[] if node.kind == Kind.JOB else _bars(node),
        waits_for=waits_for,
    )


def _bars(node: Node) -> list[Bar]:
    """Return the parts of the bar, from what is over to what has not started."""
    total = sum(node.counts.values())
    bars, x = [], float(_PADDING)
    for state in _BAR:
        if node.counts[state]:
            width = (_WIDTH - 2 * _PADDING) * node.counts[state] / total
            bars.append(Bar(_px(x), _px(width), state))
            x += width
    return bars


def _path(route: list[Place]) -> str:
    """Return a curve from the right side of the first box through the bends to the left side of the last."""
    parts = [f"M{_px(_left(route[0]) + _WIDTH)} {_px(_middle(route[0]))}"]
    for start, end in pairwise(route):
        left, right = _left(start) + _WIDTH, _left(end)
        bend = max(_GAP_X / 2, abs(right - left) / 2)
        parts.append(
            f"C{_px(left + bend)} {_px(_middle(start))} {_px(right - bend)} {_px(_middle(end))}"
            f" {_px(right)} {_px(_middle(end))}"
        )
        if end is not route[-1]:
            parts.append(f"H{_px(right + _WIDTH)}")
    return "".join(parts)


def _left(place: Place) -> float:
    return _MARGIN + place.column * (_WIDTH + _GAP_X)


def _middle(place: Place) -> float:
    return _MARGIN + place.height * (_HEIGHT + _GAP_Y) - _GAP_Y / 2


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


# ----------------------------------------------------------------------------
# How the nodes of a drawing are called, in the drawing and in the table below it.


def node_label(node: Node) -> str:
    """Return the name in the drawing: of a task without its module, and how many there are."""
    name = _short(node)
    return f"{name} × {display.number(node.size)}" if node.size > 1 else name


def _short(node: Node) -> str:
    if node.kind in {Kind.JOB, Kind.MANY_JOBS}:
        return node.name.rpartition(".")[2] or _("other tasks")
    if node.kind == Kind.GONE:
        return _("no longer kept")
    return node.name or (_("batch") if node.kind == Kind.BATCH else _("batches"))


def full_name(node: Node) -> str:
    """Return the name in the table, with the whole path of a task and the id of a job or batch."""
    if node.kind == Kind.JOB:
        return _("%(task)s (%(id)s)") % {"task": node.name, "id": node.key}
    if node.kind == Kind.BATCH:
        name = node.name or _("without a name")
        return _("batch %(id)s, %(name)s") % {"id": node.key, "name": name}
    if node.kind == Kind.GONE:
        return _("%(id)s, no longer kept") % {"id": node.key} if node.size == 1 else node_label(node)
    name = node.name or _short(node)
    return f"{name} × {display.number(node.size)}"


def state_words(node: Node) -> str:
    """Return the state of a job, or the number of jobs in each state."""
    if node.kind == Kind.JOB:
        return _state(node.state)
    if node.kind == Kind.GONE:
        return ""
    if node.kind == Kind.BATCH and not node.counts:
        return pgettext("batch", "empty")
    return ", ".join(counted(node.counts).values())


def counted(counts: Counter[str]) -> dict[str, str]:
    """Return for each state "12 failed", "9,000 done", and so on, that which matters most first."""
    return {
        state: _("%(count)s %(status)s") % {"count": display.number(counts[state]), "status": _state(state)}
        for state in MATTERS
        if counts[state]
    }


def _state(state: str) -> str:
    return _("live") if state == LIVE else str(Status(state).label)


def shortened(text: str, columns: int) -> str:
    """Return the beginning of a text that is at most so wide. Some characters are two columns wide."""
    width = 0
    for place, character in enumerate(text):
        width += 2 if east_asian_width(character) in "WF" else 1
        if width > columns:
            return text[: max(0, place - 1)] + "…"
    return text
