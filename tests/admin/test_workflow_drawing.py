"""Which nodes of a workflow are drawn, and what the drawing looks like. Without a database."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from django.template.loader import render_to_string
from django.test import override_settings
from django.utils import translation

from django_pgqueue.admin.graph import pages, shapes
from django_pgqueue.admin.graph.layout import Arrow, Kind, Node, Workflow, layout
from django_pgqueue.admin.graph.pages import MOST_NODES, folded
from django_pgqueue.admin.graph.shapes import drawn

OVER = {"done", "failed", "cancelled"}


def job(workflow: Workflow, key: int, *parents: int, **values: Any) -> None:
    """Add a job to a workflow: ``task``, ``status``, ``batch`` and ``note``."""
    status, batch = values.get("status", "done"), values.get("batch")
    workflow.nodes[key] = Node(
        key, Kind.JOB, values.get("task", "shop.tasks.resize"), Counter({status: 1}), batch=batch,
        note=values.get("note", ""), is_finished=status in OVER,
    )  # fmt: skip
    workflow.arrows.update({(parent, key): Arrow.AFTER for parent in parents})
    if batch:
        workflow.arrows[key, batch] = Arrow.MEMBER


def batch(workflow: Workflow, key: int, name: str = "import", **counts: int) -> None:
    workflow.nodes[key] = Node(key, Kind.BATCH, name, Counter(counts))


def url_of(node: Node, state: str) -> str:
    return "" if node.kind == Kind.GONE else f"/{node.name}/?a=1&status={state}"


def html(workflow: Workflow) -> str:
    drawing = drawn(workflow, layout(workflow.nodes, workflow.arrows), url_of)
    values = {"drawing": drawing, "title": "Workflow of job 1", "summary": "…", "source": "/w/", "pause": "5"}
    return render_to_string("admin/django_pgqueue/workflow.html", {"workflow": values})


def svg(workflow: Workflow) -> ElementTree.Element:
    """Return the SVG, which is XML."""
    page = html(workflow)
    text = page[page.index("<svg") : page.index("</svg>") + 6]
    return ElementTree.fromstring(text)  # noqa: S314 - our own


def shown(workflow: Workflow) -> dict[str, tuple[Kind, int, dict[str, int]]]:
    return {shapes.node_label(node): (node.kind, node.size, node.counts) for node in workflow.nodes.values()}


@pytest.fixture
def large() -> Workflow:
    """A job, a batch of 9,800 of two tasks that wait for it, and a job that waits for the batch."""
    workflow = Workflow(here=20_003)
    job(workflow, 20_000, task="shop.tasks.list")
    for key in range(9_800):
        status = "failed" if key < 12 else "done"
        task = "shop.tasks.thumb" if key % 2 else "shop.tasks.resize"
        job(workflow, key, 20_000, task=task, status=status, batch=20_001)
    batch(workflow, 20_001, done=9_788, failed=12)
    job(workflow, 20_002, 20_001, task="shop.tasks.summary", status="blocked")
    job(workflow, 20_003, 20_000, task="shop.tasks.resize", status="running", batch=20_001)
    return workflow


def test_a_workflow_of_up_to_300_nodes_is_drawn_one_by_one() -> None:
    workflow = Workflow(here=0)
    for key in range(MOST_NODES):
        job(workflow, key, *([0] if key else []))
    assert folded(workflow) is workflow
    job(workflow, MOST_NODES, 0)
    assert shown(folded(workflow)).keys() == {"resize", "resize × 300"}


def test_jobs_of_one_task_are_folded_but_not_the_job_of_the_page(large: Workflow) -> None:
    assert shown(folded(large)) == {
        "list": (Kind.JOB, 1, {"done": 1}),
        "resize × 4,900": (Kind.MANY_JOBS, 4_900, {"done": 4_894, "failed": 6}),
        "thumb × 4,900": (Kind.MANY_JOBS, 4_900, {"done": 4_894, "failed": 6}),
        "import": (Kind.BATCH, 1, {"done": 9_788, "failed": 12}),
        "summary": (Kind.JOB, 1, {"blocked": 1}),
        "resize": (Kind.JOB, 1, {"running": 1}),
    }


def test_arrows_are_folded_and_say_who_is_a_member(large: Workflow) -> None:
    arrows = folded(large).arrows
    assert Counter(arrows.values()) == {Arrow.AFTER: 4, Arrow.MEMBER: 3}
    assert arrows[20_003, 20_001] == Arrow.MEMBER
    assert arrows[20_001, 20_002] == Arrow.AFTER


def test_folded_jobs_stand_in_the_column_of_each_of_them() -> None:
    """A task in two steps of the workflow has two nodes, so the arrows lead to the right."""
    workflow = Workflow(here=-1)
    job(workflow, -1)
    for key in range(0, 600, 2):
        job(workflow, key, -1, task="a")
        job(workflow, key + 1, key, task="b")
        job(workflow, key + 1_000, key + 1, task="a")
    small = folded(workflow)
    assert [shapes.node_label(node) for node in small.nodes.values()] == [
        "resize",
        "a × 300",
        "b × 300",
        "a × 300",
    ]
    assert layout(small.nodes, small.arrows).width == 4


def test_a_long_chain_of_two_tasks_becomes_a_circle() -> None:
    workflow = Workflow(here=0)
    for key in range(1_000):
        job(workflow, key, *([key - 1] if key else []), task="ab"[key % 2])
    small = folded(workflow)
    assert [node.size for node in small.nodes.values()] == [1, 500, 499]
    assert len(small.arrows) == 3
    assert html(small)


def test_of_more_tasks_than_nodes_the_rest_is_one_node() -> None:
    workflow = Workflow(here=0)
    for key in range(1_000):
        job(workflow, key, *([key - 1] if key else []), task=f"t{key}")
    small = folded(workflow)
    assert len(small.nodes) <= MOST_NODES
    assert sum(node.size for node in small.nodes.values()) == 1_000
    assert "other tasks × 702" in shown(small)
    assert 0 in small.nodes


def test_too_many_arrows_are_folded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_ARROWS", 9)
    workflow = Workflow(here=0)
    for key in range(5):
        job(workflow, key, *range(key), task=f"t{key % 2}")
    assert len(folded(workflow).arrows) == 4


def test_what_was_wrong_with_the_reading_is_kept_when_folding(large: Workflow) -> None:
    large.problem, large.seconds = "slow", 2.5
    assert (folded(large).problem, folded(large).seconds) == ("slow", 2.5)


def test_every_node_is_a_link_with_its_state_in_words() -> None:
    workflow = Workflow(here=2)
    job(workflow, 1, task="shop.tasks.extract")
    job(workflow, 2, 1, status="blocked", note="waits for 1")
    workflow.nodes[0] = Node(0, Kind.GONE, "", Counter(), is_finished=True)
    workflow.arrows[0, 1] = Arrow.AFTER
    drawing = svg(workflow)
    assert drawing.find("title").text == "Workflow of job 1"  # type: ignore[union-attr]
    names = [" ".join(each.itertext()).split() for each in drawing.iter("a")]
    assert [name[-4:] for name in names] == [["extract", "#1", "·", "done"], ["resize", "#2", "·", "blocked"]]
    assert drawing.find(".//a[@aria-current]").get("id") == "pgqueue-node-2"  # type: ignore[union-attr]
    [gone] = [each for each in drawing.iter("g") if each.get("id") == "pgqueue-node-0"]
    assert "no longer kept" in "".join(gone.itertext())
    table = html(workflow).split("<tbody>")[1]
    assert "shop.tasks.extract (1)" in table
    assert "waits for 1" in table
    assert "0, no longer kept" in table


def test_the_text_of_users_is_escaped() -> None:
    workflow = Workflow(here=1)
    evil = '"><script>alert(1)</script>'
    job(workflow, 1, task=evil, note=evil)
    batch(workflow, 2, evil, done=1)
    page = html(workflow)
    assert "<script" not in page
    assert len(list(svg(workflow).iter("a"))) == 2


def test_there_is_no_inline_style_or_script(large: Workflow) -> None:
    """A strict Content-Security-Policy would refuse them."""
    page = html(folded(large))
    assert re.findall(r"<style|<script|\sstyle=|\son\w+=|javascript:", page) == []


@override_settings(USE_THOUSAND_SEPARATOR=True)
def test_numbers_of_the_drawing_are_not_in_the_language_of_the_user() -> None:
    workflow = Workflow(here=1_234_567)
    for key in range(1_234_567, 1_234_580):
        job(workflow, key, *([key - 1] if key > 1_234_567 else []))
    with translation.override("de"):
        drawing = svg(workflow)
    assert float(drawing.get("width", "")) > 3_000
    assert drawing.find(".//a").get("id") == "pgqueue-node-1234567"  # type: ignore[union-attr]
    assert "#1234567 " in "".join(drawing.itertext())


def test_bars_are_as_wide_as_their_shares() -> None:
    workflow = Workflow(here=1)
    batch(workflow, 1, done=5, failed=1, pending=4)
    batch(workflow, 2)
    bars = {
        each.get("class"): each for each in svg(workflow).iter("rect") if "strip" in each.get("class", "")
    }
    widths = {name.rpartition("-")[2]: float(bar.get("width", "")) for name, bar in bars.items() if name}
    assert widths["done"] == pytest.approx(5 * widths["failed"], abs=0.5)
    assert widths["pending"] == pytest.approx(4 * widths["failed"], abs=0.5)


def test_arrows_run_from_one_box_to_the_next() -> None:
    workflow = Workflow(here=1)
    for key in (1, 2, 3):
        job(workflow, key, *([key - 1] if key > 1 else []), status="failed" if key == 1 else "blocked")
    workflow.arrows[1, 3] = Arrow.AFTER
    drawing = svg(workflow)
    boxes = [each.get("transform", "") for each in drawing.findall("g")]
    lefts = [float(re.findall(r"[\d.]+", each)[0]) for each in boxes]
    assert all(right - left > 192 for left, right in pairwise(lefts))
    paths = [each for each in drawing.findall("path") if "arrow" in each.get("class", "")]
    ends = sorted(float(path.get("d", "").split(" ")[-2]) for path in paths)
    assert ends == [lefts[1], lefts[2], lefts[2]]
    assert sum("arrow-failed" in path.get("class", "") for path in paths) == 2


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [("resize", 6, "resize"), ("resize_image", 6, "resiz…"), ("画像画像", 5, "画…"), ("", 3, "")],
)
def test_long_names_are_cut(text: str, width: int, expected: str) -> None:
    assert shapes.shortened(text, width) == expected


def test_members_that_nobody_has_looked_at_are_counted() -> None:
    workflow = Workflow(here=1)
    batch(workflow, 1, done=3, live=2)
    assert shapes.state_words(workflow.nodes[1]) == "2 live, 3 done"
    batch(workflow, 2)
    assert shapes.state_words(workflow.nodes[2]) == "empty"
