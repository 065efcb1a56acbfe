"""Which nodes of a workflow are drawn, and what the drawing looks like. Without a database."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import override_settings
from django.utils import translation

import django_pgqueue
from django_pgqueue.admin import workflow as pages
from django_pgqueue.admin.workflow import MOST_NODES, Node, Workflow, folded

from .helpers import drawing_of

STATIC = Path(django_pgqueue.__file__).parent / "static" / "django_pgqueue"
OVER = {"done", "failed", "cancelled"}


def job(workflow: Workflow, key: int, *parents: int, **values: Any) -> None:
    """Add a job to a workflow: ``task``, ``status``, ``batch`` and ``note``."""
    status, batch = values.get("status", "done"), values.get("batch")
    workflow.nodes[key] = Node(
        key, "job", values.get("task", "shop.tasks.resize"), Counter({status: 1}), batch=batch,
        note=values.get("note", ""), is_finished=status in OVER,
    )  # fmt: skip
    workflow.arrows.update({(parent, key): "after" for parent in parents})
    if batch:
        workflow.arrows[key, batch] = "member"


def batch(workflow: Workflow, key: int, name: str = "import", **counts: int) -> None:
    workflow.nodes[key] = Node(key, "batch", name, Counter(counts))


def url_of(node: Node, state: str) -> str:
    return "" if node.kind == "gone" else f"/{node.name}/?a=1&status={state}"


def html(workflow: Workflow) -> str:
    boxes = pages.boxes_of(workflow, url_of)
    values = {
        "boxes": boxes,
        "drawing": pages.drawing(workflow, boxes, "Workflow of job 1", "…"),
        "source": "/w/",
        "pause": "5",
    }
    return render_to_string("admin/django_pgqueue/workflow.html", {"workflow": values})


def data(workflow: Workflow) -> dict[str, Any]:
    """Return what the script draws."""
    return drawing_of(html(workflow))


def shown(workflow: Workflow) -> dict[str, tuple[str, int, dict[str, int]]]:
    return {pages.words_of(node)[0]: (node.kind, node.size, node.counts) for node in workflow.nodes.values()}


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
        "list": ("job", 1, {"done": 1}),
        "resize × 4,900": ("job", 4_900, {"done": 4_894, "failed": 6}),
        "thumb × 4,900": ("job", 4_900, {"done": 4_894, "failed": 6}),
        "import": ("batch", 1, {"done": 9_788, "failed": 12}),
        "summary": ("job", 1, {"blocked": 1}),
        "resize": ("job", 1, {"running": 1}),
    }


def test_arrows_are_folded_and_say_who_is_a_member(large: Workflow) -> None:
    arrows = folded(large).arrows
    assert Counter(arrows.values()) == {"after": 4, "member": 3}
    assert arrows[20_003, 20_001] == "member"
    assert arrows[20_001, 20_002] == "after"


def test_folded_jobs_stand_in_the_column_of_each_of_them() -> None:
    """A task in two steps of the workflow has two nodes, so the arrows lead to the right."""
    workflow = Workflow(here=-1)
    job(workflow, -1)
    for key in range(0, 600, 2):
        job(workflow, key, -1, task="a")
        job(workflow, key + 1, key, task="b")
        job(workflow, key + 1_000, key + 1, task="a")
    small = folded(workflow)
    assert [pages.words_of(node)[0] for node in small.nodes.values()] == [
        "resize",
        "a × 300",
        "b × 300",
        "a × 300",
    ]
    assert list(pages.columns(small).values()) == [0, 1, 2, 3]


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


def test_too_many_or_too_long_arrows_are_folded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_STEPS", 9)
    workflow = Workflow(here=0)
    for key in range(5):
        job(workflow, key, *range(key), task=f"t{key % 2}")
    assert len(folded(workflow).arrows) == 4


def test_what_was_wrong_with_the_reading_is_kept_when_folding(large: Workflow) -> None:
    large.problem = "slow"
    assert folded(large).problem == "slow"


def test_every_node_is_a_link_with_its_state_in_words() -> None:
    workflow = Workflow(here=2)
    job(workflow, 1, task="shop.tasks.extract")
    job(workflow, 2, 1, status="blocked", note="waits for 1")
    workflow.nodes[0] = Node(0, "gone", "", Counter(), is_finished=True)
    workflow.arrows[0, 1] = "after"
    gone, first, second = data(workflow)["nodes"]
    assert (first["label"], first["text"], first["isHere"]) == ("extract", "#1 · done", False)
    assert (second["label"], second["text"], second["isHere"]) == ("resize", "#2 · blocked", True)
    assert second["title"] == "shop.tasks.resize (2): blocked. waits for 1"
    assert (gone["label"], gone["url"]) == ("no longer kept", "")
    table = html(workflow).split("<tbody>")[1]
    assert "shop.tasks.extract (1)" in table
    assert "waits for 1" in table
    assert "0, no longer kept" in table


def test_the_text_of_users_is_escaped() -> None:
    workflow = Workflow(here=1)
    evil = '"></script><script>alert(1)</script>'
    job(workflow, 1, task=evil, note=evil)
    batch(workflow, 2, evil, done=1)
    page = html(workflow)
    assert "<script>" not in page
    assert page.count("</script>") == 1
    assert len(data(workflow)["nodes"]) == 2


def test_control_characters_are_written_out_in_the_drawing() -> None:
    """The texts of pages are changed when they are sent; those of the JSON are escaped twice."""
    workflow = Workflow(here=1)
    batch(workflow, 1, "gpj\u202e", done=1)
    [node] = data(workflow)["nodes"]
    assert node["label"] == "gpj\\u202e"
    assert "\u202e" not in str(node)


@pytest.mark.promise("graph-policy")
def test_there_is_no_inline_style_or_script(large: Workflow) -> None:
    """A strict Content-Security-Policy would refuse them. JSON is data."""
    page = html(folded(large)).replace('<script id="pgqueue-workflow-data" type="application/json">', "")
    assert re.findall(r"<style|<script|\sstyle=|\son\w+=|javascript:", page) == []


@override_settings(USE_THOUSAND_SEPARATOR=True)
def test_ids_of_the_drawing_are_not_in_the_language_of_the_user() -> None:
    workflow = Workflow(here=1_234_567)
    job(workflow, 1_234_567)
    with translation.override("de"):
        [node] = data(workflow)["nodes"]
    assert node["id"] == "1234567"
    assert node["text"].startswith("#1234567 ")


def test_bars_have_the_members_of_a_batch_in_each_state() -> None:
    workflow = Workflow(here=1)
    batch(workflow, 1, done=5, failed=1, pending=4)
    batch(workflow, 2)
    job(workflow, 3)
    assert [node["bar"] for node in data(workflow)["nodes"]] == [
        [["done", 5], ["failed", 1], ["pending", 4]], [], [],
    ]  # fmt: skip


def test_an_arrow_after_a_failed_job_is_red() -> None:
    workflow = Workflow(here=1)
    for key in (1, 2, 3):
        job(workflow, key, *([key - 1] if key > 1 else []), status="failed" if key == 1 else "blocked")
    workflow.arrows[1, 3] = "after"
    assert sorted(data(workflow)["arrows"]) == [
        ["1", "2", "after", True], ["1", "3", "after", True], ["2", "3", "after", False],
    ]  # fmt: skip


def test_long_names_are_cut() -> None:
    workflow = Workflow(here=1)
    job(workflow, 1, task="shop.tasks.resize_all_images_again")
    [node] = data(workflow)["nodes"]
    assert node["label"] == "resize_all_images_a…"


def test_the_copy_of_dagre_is_the_released_file_with_its_license() -> None:
    """Without the comment that names a source map, which ManifestStaticFilesStorage would look for."""
    folder = STATIC / "dagre"
    script = (folder / "dagre.min.js").read_text()
    assert script.startswith("/*! https://github.com/dagrejs/dagre (v3.1.3) */")
    assert "sourceMappingURL" not in script
    assert "Permission is hereby granted, free of charge" in (folder / "LICENSE").read_text()


def test_members_that_nobody_has_looked_at_are_counted() -> None:
    workflow = Workflow(here=1)
    batch(workflow, 1, done=3, live=2)
    assert pages.words_of(workflow.nodes[1])[2] == "2 live, 3 done"
    batch(workflow, 2)
    assert pages.words_of(workflow.nodes[2])[2] == "empty"
