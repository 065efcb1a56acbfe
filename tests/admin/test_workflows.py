"""Workflows of jobs and batches: what belongs to them, how they are drawn, and the pages; and batches."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.template.loader import render_to_string
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import translation

import django_pgqueue
from django_pgqueue import Batch
from django_pgqueue.admin import workflow as module
from django_pgqueue.admin.workflow import LIVE, MOST_NODES, Limits, Node, Workflow, folded
from django_pgqueue.models import Job, JobBatch, Tally
from tests.support.factories import BatchFactory, JobFactory
from tests.support.jobs import sql
from tests.support.wording import shown

from .helpers import body, drawing_of, listed, press, read, rows_of, staff, url, words

pytestmark = pytest.mark.django_db

STATIC = Path(django_pgqueue.__file__).parent / "static" / "django_pgqueue"


def job(*parents: int, **values: Any) -> int:
    """Insert a job that waits for others, without the edges. Its parents are not marked."""
    has_state = {"done", "failed", "running"} & values.keys()
    status = {} if has_state else {"status": "blocked" if parents else "pending"}
    key: int = JobFactory.create(parent_ids=sorted(parents) or None, **{**status, **values}).pk
    return key


def batch(name: str = "import", **counts: int) -> int:
    """Insert a batch with these members, which retention has dropped."""
    made = JobBatch.objects.create(name=name)
    Tally.objects.create(batch_id=made.pk, slot=0, added=sum(counts.values()), **counts)
    return made.pk


def around(here: int, **limits: Any) -> Workflow:
    return module.read("default", here, Limits(**limits))


def kinds(workflow: Workflow) -> dict[Any, str]:
    return {key: node.kind for key, node in workflow.nodes.items()}


def test_a_job_with_few_others() -> None:
    """Alone; after one that is no longer kept; and before one that is found without a mark."""
    here, gone, over = job(), job(), job(done=True, marks=0)
    workflow = around(here)
    assert kinds(workflow) == {here: "job"}
    assert (workflow.arrows, workflow.problem, workflow.is_finished) == ({}, "", False)
    Job.objects.filter(pk=gone)._raw_delete("default")
    workflow = around(child := job(gone))
    assert kinds(workflow) == {child: "job", gone: "gone"}
    assert workflow.arrows == {(gone, child): "after"}
    child = job(over)
    assert set(around(over).nodes) == {over, child}


@pytest.mark.promise("graph-complete")
def test_the_whole_workflow_is_found_from_each_of_its_jobs() -> None:
    """A diamond, with jobs on each shelf."""
    first = job(done=True, marks=2)
    left, right = job(first, failed=True, marks=2), job(first, running=True, marks=2)
    last = job(left, right)
    arrows = {(first, left), (first, right), (left, last), (right, last)}
    for here in (first, left, right, last):
        workflow = around(here)
        assert workflow.arrows == dict.fromkeys(arrows, "after")
        assert [workflow.nodes[key].state for key in (first, left, right, last)] == [
            "done", "failed", "running", "blocked",
        ]  # fmt: skip


def test_a_workflow_that_was_enqueued_with_sql_is_found() -> None:
    """With the marks and reasons that the functions write."""

    def enqueue(**options: Any) -> int:
        return int(sql("SELECT pgqueue_enqueue('a.b', options => %s::jsonb)", json.dumps(options)))

    group = sql("SELECT pgqueue_open_batch('import')")
    first = enqueue()
    members = [enqueue(batch=group, after=[first]), enqueue(batch=group)]
    last = enqueue(after=[group])
    for here in (first, members[0], group, last):
        workflow = around(here)
        assert workflow.arrows == {
            (first, members[0]): "after", (members[0], group): "member",
            (members[1], group): "member", (group, last): "after",
        }  # fmt: skip
        assert workflow.nodes[group].counts == {"pending": 1, "blocked": 1}
        assert workflow.nodes[last].note == f"waits for jobs of batch {group}"
        assert not workflow.is_finished


def test_the_numbers_of_a_batch_are_those_of_its_tally_and_of_its_live_members() -> None:
    """Retention has dropped some of the members."""
    group = batch(done=899, failed=11)
    for values in ({"done": True}, {"failed": True}, {"running": True}, {}, {}):
        job(batch_id=group, **values)
    assert around(group).nodes[group].counts == {"done": 900, "failed": 12, "running": 1, "pending": 2}


def test_a_circle_ends() -> None:
    """A member of an open batch may be told to wait for what waits for the batch."""
    group = batch()
    callback = job(group, marks=2)
    member = job(callback, batch_id=group)
    workflow = around(callback)
    assert set(workflow.arrows) == {(group, callback), (callback, member), (member, group)}


@pytest.mark.promise("graph-complete")
def test_no_more_jobs_are_read_than_permitted() -> None:
    here = job(marks=2)
    for _each in range(9):
        job(here, id=here - 10**6 + _each)
    workflow = around(here, jobs=4)
    assert len(workflow.nodes) == 4
    assert here in workflow.nodes
    assert "Only 4 jobs" in workflow.problem
    assert around(here, jobs=10).problem == ""


def test_the_members_of_a_large_batch_are_counted_all_the_same() -> None:
    group = batch(done=2)
    for _each in range(8):
        job(batch_id=group)
    workflow = around(group, jobs=5)
    assert len(workflow.nodes) == 5 + 1
    assert workflow.nodes[group].counts == Counter({LIVE: 8, "done": 2})
    assert workflow.problem


def test_parents_beyond_the_limit_are_not_called_dropped() -> None:
    chain = [job()]
    for _each in range(5):
        chain.append(job(chain[-1]))
    workflow = around(chain[-1], steps=1)
    assert set(kinds(workflow).values()) == {"job"}
    assert len(workflow.nodes) == 2
    assert workflow.problem
    many = job(*[job() for _each in range(5)])
    assert set(kinds(around(many, jobs=3)).values()) == {"job"}


def test_there_is_one_statement_for_each_step() -> None:
    here = job(marks=2)
    for _each in range(4):
        child = job(here, marks=2)
        for _more in range(2):
            job(child)
    with CaptureQueriesContext(connection) as queries:
        assert len(around(here).nodes) == 13
    read_jobs = [each["sql"] for each in queries if "task_path" in each["sql"]]
    assert len(read_jobs) == 4  # the job, its children, theirs, and those of nobody
    assert len(queries) == len(read_jobs) + 5  # a savepoint and its rollback, and the settings
    assert (sql("SHOW enable_seqscan"), sql("SHOW statement_timeout")) == ("on", "0"), "they end with it"


@pytest.mark.parametrize("slow", ["_STEPS", "_BATCHES"])
@pytest.mark.promise("graph-complete")
def test_what_was_read_until_the_time_was_up_is_shown(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement for the members, or that for the batches, takes longer than permitted."""
    group = batch()
    here = job(batch_id=group)
    if slow == "_STEPS":
        monkeypatch.setitem(module._STEPS, "batches", "pg_sleep(20) IS NULL OR " + module._STEPS["batches"])
    else:
        monkeypatch.setattr(module, slow, module._BATCHES.replace("WHERE", "WHERE pg_sleep(20) IS NULL OR"))
    workflow = around(group, seconds=0.05 if slow == "_STEPS" else 0.7)
    assert (here in workflow.nodes) == (slow == "_BATCHES")
    assert "too long" in workflow.problem
    assert Job.objects.count() == 1  # the connection is usable


OVER = {"done", "failed", "cancelled"}


def add_job(workflow: Workflow, key: int, *parents: int, **values: Any) -> None:
    """Add a job to a workflow: ``task``, ``status``, ``batch`` and ``note``."""
    status, batch = values.get("status", "done"), values.get("batch")
    workflow.nodes[key] = Node(
        key, "job", values.get("task", "shop.tasks.resize"), Counter({status: 1}), batch=batch,
        note=values.get("note", ""), is_finished=status in OVER,
    )  # fmt: skip
    workflow.arrows.update({(parent, key): "after" for parent in parents})
    if batch:
        workflow.arrows[key, batch] = "member"


def add_batch(workflow: Workflow, key: int, name: str = "import", **counts: int) -> None:
    workflow.nodes[key] = Node(key, "batch", name, Counter(counts))


def url_of(node: Node, state: str) -> str:
    return "" if node.kind == "gone" else f"/{node.name}/?a=1&status={state}"


def html(workflow: Workflow) -> str:
    boxes = module.boxes_of(workflow, url_of)
    drawing = module.drawing(workflow, boxes, "Workflow of job 1", "…")
    values = {"boxes": boxes, "drawing": drawing, "source": "/w/", "pause": "5"}
    return render_to_string("admin/django_pgqueue/workflow.html", {"workflow": values})


def drawn(workflow: Workflow) -> dict[str, tuple[str, int, dict[str, int]]]:
    return {module.words_of(node)[0]: (node.kind, node.size, node.counts) for node in workflow.nodes.values()}


@pytest.fixture
def large() -> Workflow:
    """A job, a batch of 9,800 of two tasks that wait for it, and a job that waits for the batch."""
    workflow = Workflow(here=20_003)
    add_job(workflow, 20_000, task="shop.tasks.list")
    for key in range(9_800):
        status = "failed" if key < 12 else "done"
        task = "shop.tasks.thumb" if key % 2 else "shop.tasks.resize"
        add_job(workflow, key, 20_000, task=task, status=status, batch=20_001)
    add_batch(workflow, 20_001, done=9_788, failed=12)
    add_job(workflow, 20_002, 20_001, task="shop.tasks.summary", status="blocked")
    add_job(workflow, 20_003, 20_000, task="shop.tasks.resize", status="running", batch=20_001)
    return workflow


def test_a_workflow_of_up_to_300_nodes_is_drawn_one_by_one() -> None:
    workflow = Workflow(here=0)
    for key in range(MOST_NODES):
        add_job(workflow, key, *([0] if key else []))
    assert folded(workflow) is workflow
    add_job(workflow, MOST_NODES, 0)
    assert drawn(folded(workflow)).keys() == {"resize", "resize × 300"}


def test_jobs_of_one_task_and_their_arrows_are_folded_but_not_the_job_of_the_page(large: Workflow) -> None:
    """What was wrong with the reading is kept."""
    large.problem = "slow"
    small = folded(large)
    assert small.problem == "slow"
    assert drawn(small) == {
        "list": ("job", 1, {"done": 1}),
        "resize × 4,900": ("job", 4_900, {"done": 4_894, "failed": 6}),
        "thumb × 4,900": ("job", 4_900, {"done": 4_894, "failed": 6}),
        "import": ("batch", 1, {"done": 9_788, "failed": 12}),
        "summary": ("job", 1, {"blocked": 1}),
        "resize": ("job", 1, {"running": 1}),
    }
    assert Counter(small.arrows.values()) == {"after": 4, "member": 3}
    assert (small.arrows[20_003, 20_001], small.arrows[20_001, 20_002]) == ("member", "after")


def test_folded_jobs_stand_in_the_column_of_each_of_them() -> None:
    """A task in two steps of the workflow has two nodes, so the arrows lead to the right."""
    workflow = Workflow(here=-1)
    add_job(workflow, -1)
    for key in range(0, 600, 2):
        add_job(workflow, key, -1, task="a")
        add_job(workflow, key + 1, key, task="b")
        add_job(workflow, key + 1_000, key + 1, task="a")
    small = folded(workflow)
    names = [module.words_of(node)[0] for node in small.nodes.values()]
    assert names == ["resize", "a × 300", "b × 300", "a × 300"]
    assert list(module.columns(small).values()) == [0, 1, 2, 3]


def test_a_long_chain_of_two_tasks_becomes_a_circle() -> None:
    workflow = Workflow(here=0)
    for key in range(1_000):
        add_job(workflow, key, *([key - 1] if key else []), task="ab"[key % 2])
    small = folded(workflow)
    assert [node.size for node in small.nodes.values()] == [1, 500, 499]
    assert len(small.arrows) == 3
    assert html(small)


def test_of_more_tasks_than_nodes_the_rest_is_one_node() -> None:
    workflow = Workflow(here=0)
    for key in range(1_000):
        add_job(workflow, key, *([key - 1] if key else []), task=f"t{key}")
    small = folded(workflow)
    assert len(small.nodes) <= MOST_NODES
    assert sum(node.size for node in small.nodes.values()) == 1_000
    assert "other tasks × 702" in drawn(small)
    assert 0 in small.nodes


def test_too_many_or_too_long_arrows_are_folded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_STEPS", 9)
    workflow = Workflow(here=0)
    for key in range(5):
        add_job(workflow, key, *range(key), task=f"t{key % 2}")
    assert len(folded(workflow).arrows) == 4


@pytest.mark.promise("graph-policy")
def test_a_drawing_and_its_table(wording: Any) -> None:
    """Each kind of node. What waits for a failed job has a red arrow from it. Long names are cut."""
    workflow = Workflow(here=2)
    add_job(workflow, 1, task="shop.tasks.extract", status="failed")
    add_job(workflow, 2, 1, status="blocked", note="waits for 1")
    add_job(workflow, 3, 2, task="shop.tasks.resize_all_images_again", status="blocked", batch=4)
    workflow.arrows[1, 3] = "after"
    add_batch(workflow, 4, done=5, failed=1, pending=4)
    add_batch(workflow, 5)
    add_batch(workflow, 6, done=3, live=2)
    workflow.nodes[0] = Node(0, "gone", "", Counter(), is_finished=True)
    workflow.arrows[0, 1] = "after"
    page = html(workflow)
    data = drawing_of(page)
    nodes = [" | ".join(f"{name}={value}" for name, value in node.items()) for node in data.pop("nodes")]
    assert [nodes, str(data), words(page)] == wording
    page = page.replace('<script id="pgqueue-workflow-data" type="application/json">', "")
    refused = r"<style|<script|\sstyle=|\son\w+=|javascript:"
    assert re.findall(refused, page) == [], "by a strict Content-Security-Policy; JSON is data"


@override_settings(USE_THOUSAND_SEPARATOR=True)
def test_ids_of_the_drawing_are_not_in_the_language_of_the_user() -> None:
    workflow = Workflow(here=1_234_567)
    add_job(workflow, 1_234_567)
    with translation.override("de"):
        [node] = drawing_of(html(workflow))["nodes"]
    assert node["id"] == "1234567"
    assert node["text"].startswith("#1234567 ")


def test_the_copy_of_dagre_is_the_released_file_with_its_license() -> None:
    """Without the comment that names a source map, which ManifestStaticFilesStorage would look for."""
    folder = STATIC / "dagre"
    script = (folder / "dagre.min.js").read_text()
    assert script.startswith("/*! https://github.com/dagrejs/dagre (v3.1.3) */")
    assert "sourceMappingURL" not in script
    assert "Permission is hereby granted, free of charge" in (folder / "LICENSE").read_text()


def section(page: str) -> str:
    return page.split('class="module pgqueue-workflow"')[1].split("</section>")[0]


def links(page: str) -> list[tuple[str, str, str]]:
    """Return the URL and the two lines of each node that is a link."""
    nodes = drawing_of(page)["nodes"]
    return [(node["url"], node["label"], node["text"]) for node in nodes if node["url"]]


@pytest.mark.parametrize("user", ["root", "view_job", "view_jobbatch"])
def test_the_pages(user: str, root: Client, wording: Any) -> None:
    """Of jobs and their batch: the page, and a part of another page. Links lead to what the user may view."""
    group = JobBatch.objects.create(id=1005, name="import").pk
    first = job(id=1001, done=True, marks=2)
    job(first, id=1002, batch_id=group, status="running")
    last = job(group, id=1003, status="blocked", waiting_reason="waits for a & b")
    client = root if user == "root" else staff(user)
    found: dict[str, list[str]] = {}
    for key, model in ((first, "job"), (last, "job"), (group, "jobbatch")):
        for name in ("workflow", "change"):
            response = client.get(url(name, key, model=model))
            page = response.content.decode()
            text = f"status {response.status_code}"
            if 'id="pgqueue-workflow-now"' in page:
                assert page.index("dagre.min.js") < page.index("workflow.js")
                text = words(page, "pgqueue-workflow-now")
                assert len(drawing_of(page)["nodes"]) == 4
            found.setdefault(text, []).append(f"{name} of {key}")
    assert {" and ".join(pages): text for text, pages in found.items()} == wording


def test_the_page_is_read_again_and_a_slow_one_less(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def pause() -> str:
        return body(root, url("workflow", first)).split('data-pgqueue-pause="')[1].split('"')[0]

    first = job(done=True)
    assert pause() == ""
    job(first, running=True)
    assert pause() == "5"
    monkeypatch.setattr(module, "_SHARE", 10**6)
    assert int(pause()) > 100
    assert [root.get(url("workflow", key)).status_code for key in ("123456", "x")] == [302, 302]


def test_many_jobs_are_linked_to_their_list(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NODES", 4)
    group = batch()
    other = job(task="tests.app.tasks.noop", done=True)
    members = [job(other, batch_id=group, done=True) for _each in range(2)]
    failed = job(other, batch_id=group, failed=True)
    job(done=True)
    page = body(root, url("workflow", other))
    [(address, name, text)] = [each for each in links(page) if "×" in each[1]]
    assert (name, text) == ("add × 3", "1 failed, 2 done")
    assert "drawn as one" in section(page)

    def jobs_at(link: str) -> list[int]:
        parts = urlsplit(link.replace("&amp;", "&"))
        return sorted(listed(root, parts.path, **{k: v[0] for k, v in parse_qs(parts.query).items()}))

    assert jobs_at(address) == sorted([*members, failed])
    [by_state] = re.findall(r'<a href="([^"]*status=failed[^"]*)">1 failed</a>', page)
    assert jobs_at(by_state) == [failed]


def test_the_page_of_a_job_reads_no_large_workflow(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BESIDE_THE_REST", Limits(jobs=2))
    here = job(done=True, marks=2)
    for _each in range(3):
        job(here)
    part = section(body(root, url("change", here)))
    assert "too large for this page" in part
    assert re.findall('href="([^"]*)"', part) == [url("workflow", here)]
    assert "data-pgqueue-source" not in part
    assert len(links(body(root, url("workflow", here)))) == 4


def test_odd_searches_for_a_batch_find_nothing(root: Client) -> None:
    job(batch_id=batch())
    for term in ("", "x", "9999999999999999999", "-1", 5_000 * "9"):
        assert listed(root, q=f"batch:{term}") == []


# --- The list and the page of batches, and their actions


BATCHES = "/admin/django_pgqueue/jobbatch/"


def test_the_list_of_batches_shows_numbers_as_bars(root: Client, wording: Any) -> None:
    numbers = {"added": 12_000, "done": 9_000, "failed": 30, "cancelled": 600}
    BatchFactory.create(id=101, name="imp<b>ort", numbers=numbers)
    BatchFactory.create(id=102, name="", over=True, numbers=None)
    page = body(root, BATCHES)
    assert re.sub(r"\b\d s", "0 s", rows_of(page)) == wording
    assert '<rect x="75" width="0.25" height="10" class="pgqueue-part-failed">' in page
    assert "style=" not in page.split("<tbody>")[1].split("</tbody>")[0]


def test_filters_and_search_of_batches(root: Client) -> None:
    running = BatchFactory.create(name="one")
    opened = BatchFactory.create(name="two", is_open=True)
    failed = BatchFactory.create(name="three", over=True, outcome="failed")
    for state, batch in (("running", running), ("open", opened), ("failed", failed)):
        assert listed(root, BATCHES, state=state) == [batch.pk]
    assert listed(root, BATCHES, state="done") == []
    assert listed(root, BATCHES, finished="hour") == [failed.pk]
    assert listed(root, BATCHES, created="hour", state="running") == [running.pk]
    assert listed(root, BATCHES, created="..2020-01-01") == []
    assert root.get(BATCHES, {"state": "nonsense"}).status_code == 302
    assert listed(root, BATCHES, q="HREE") == listed(root, BATCHES, q=str(failed.pk)) == [failed.pk]


def test_the_page_of_a_batch(root: Client, wording: Any) -> None:
    batch = BatchFactory.create(id=101, name="import")
    JobFactory.create(id=102, failed=True, batch=batch)
    JobFactory.create(id=103, done=True, batch=batch)
    JobFactory.create(id=104, parents=[batch])
    text = read(root, url("change", 101, model="jobbatch"))
    assert re.sub(r"\b\d s", "0 s", text) == wording
    assert "/job/" not in read(staff("view_jobbatch"), url("change", 101, model="jobbatch"))
    assert root.get(url("change", 2**40, model="jobbatch")).status_code == 302
    assert root.post(url("cancel", 2**40, model="jobbatch")).status_code == 302
    JobBatch.objects.all().delete()
    assert "batch 101, which is no longer kept" in body(root, url("change", 103))


def test_the_page_reads_failed_jobs_where_they_are_kept_and_no_others(root: Client) -> None:
    """A batch may have a million done jobs in history."""
    batch = BatchFactory.create()
    JobFactory.create(done=True, batch=batch)

    def of_batch() -> list[str]:
        with CaptureQueriesContext(connection) as queries:
            body(root, url("change", batch.pk, model="jobbatch"))
        found = (query["sql"] for query in queries)
        return [each for each in found if '"batch" =' in each and '"pgqueue_job"."errors"' in each]

    assert of_batch() == []
    JobFactory.create(failed=True, batch=batch)
    [statement] = of_batch()
    plan = str(sql(f"EXPLAIN (FORMAT JSON) {statement}"))
    assert "pgqueue_job_kept" in plan
    assert "pgqueue_job_past" not in plan


def test_cancel_and_retry_after_a_confirmation(root: Client, wording: Any) -> None:
    batch = BatchFactory.create(id=101, name="import")
    jobs = [JobFactory.create(batch=batch), JobFactory.create(failed=True, batch=batch)]
    of_list = {"_selected_action": [101], "index": 0}
    told = []
    pressed: list[tuple[str, dict[str, Any]]] = [
        (url("retry", 101, model="jobbatch"), {}), (BATCHES, {"action": "cancel_batches", **of_list}),
        (url("cancel", 101, model="jobbatch"), {}), (BATCHES, {"action": "retry_batches", **of_list}),
    ]  # fmt: skip
    for address, data in pressed:
        asked = press(root, address, **data)
        done = root.post(address, {**data, "confirmed": "1"}, follow=True)
        told += [shown(asked.html), *(f"Then: {message}" for message in done.context["messages"]), ""]
    assert "\n".join(told) == wording
    assert {Job.objects.get(pk=job.pk).status for job in jobs} == {"cancelled"}
    assert Batch.get(101).outcome == "cancelled"
    notes = [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]
    assert notes == ["Action: Retry failed jobs.", "Action: Cancel batch."]
