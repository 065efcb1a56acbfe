"""The workflow on the page of a job, and on a page of its own."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_pgqueue.admin import workflow as pages
from django_pgqueue.admin.workflow import Limits
from django_pgqueue.models import JobBatch
from tests.support.factories import JobFactory

from .helpers import body, drawing_of, listed, staff, url

pytestmark = pytest.mark.django_db


def job(*parents: int, **values: Any) -> int:
    key: int = JobFactory.create(parent_ids=list(parents) or None, **values).pk
    return key


def batch() -> int:
    made: int = JobBatch.objects.create(name="import").pk
    return made


def section(page: str) -> str:
    return page.split('class="module pgqueue-workflow"')[1].split("</section>")[0]


def drawn(page: str) -> list[tuple[str, str, str]]:
    """Return the URL and the two lines of each node that is a link."""
    nodes = drawing_of(page)["nodes"]
    return [(node["url"], node["label"], node["text"]) for node in nodes if node["url"]]


def test_the_page_of_a_job_shows_its_workflow(root: Client) -> None:
    first = job(done=True, marks=2)
    second = job(first, status="blocked", waiting_reason="waits for a & b")
    for here in (first, second):
        page = body(root, url("change", here))
        assert drawn(section(page)) == [
            (url("change", first), "add", f"#{first} · done"),
            (url("change", second), "add", f"#{second} · blocked"),
        ]
        assert url("workflow", here) in section(page)
        assert "workflow.css" in page
        assert page.index("dagre.min.js") < page.index("workflow.js")
        assert "waits for a &amp; b" in section(page)


def test_the_page_of_another_job_neither_shows_nor_reads_one(root: Client) -> None:
    with CaptureQueriesContext(connection) as queries:
        page = body(root, url("change", job()))
    assert "pgqueue-workflow" not in page
    assert "workflow.css" not in page
    assert not [each for each in queries if "conditions are in workflow.py" in each["sql"]]


def test_the_workflow_has_a_page_of_its_own(root: Client) -> None:
    first = job(done=True)
    second = job(first, status="blocked")
    page = body(root, url("workflow", second))
    assert len(drawn(page)) == 2
    assert f"Workflow of job {second}" in page
    assert "jobs: 2, 1 blocked, 1 done" in section(page)
    assert f'data-pgqueue-source="{url("workflow", second)}"' in page


def test_the_page_is_read_again_while_something_may_change(root: Client) -> None:
    first = job(done=True)
    assert 'data-pgqueue-pause=""' in body(root, url("workflow", first))
    job(first, running=True)
    assert 'data-pgqueue-pause="5"' in body(root, url("workflow", first))


def test_a_slow_workflow_is_read_again_less_often(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_SHARE", 10**6)
    page = body(root, url("workflow", job()))
    assert int(page.split('data-pgqueue-pause="')[1].split('"')[0]) > 100


def test_a_page_that_does_not_exist(root: Client) -> None:
    for key in ("123456", "x"):
        assert root.get(url("workflow", key)).status_code == 302


def test_only_those_who_may_view_jobs_see_it(client: Client) -> None:
    here = job(job(done=True))
    assert client.get(url("workflow", here)).status_code == 302  # to the login
    assert staff("view_worker").get(url("workflow", here)).status_code == 403
    assert len(drawn(body(staff("view_job"), url("workflow", here)))) == 2


def test_links_lead_only_to_pages_that_the_user_may_view() -> None:
    group = batch()
    here = job(batch_id=group)
    for client, links in ((staff("view_job"), 1), (staff("view_job", "view_jobbatch"), 2)):
        page = body(client, url("workflow", here))
        assert len(drawn(page)) == links
        assert f"#{group} · 1 pending" in [node["text"] for node in drawing_of(page)["nodes"]]
    assert staff("view_jobbatch").get(url("workflow", group, model="jobbatch")).status_code == 403
    assert "pgqueue-workflow" not in body(staff("view_jobbatch"), url("change", group, model="jobbatch"))


def test_the_page_of_a_batch_shows_its_workflow(root: Client) -> None:
    group = batch()
    here = job(batch_id=group, done=True)
    callback = job(group, status="blocked")
    for name in ("change", "workflow"):
        shown = drawn(body(root, url(name, group, model="jobbatch")))
        assert [text for _url, _name, text in shown] == [
            f"#{here} · done", f"#{group} · 1 done", f"#{callback} · blocked",
        ]  # fmt: skip
        assert shown[1][0] == url("change", group, model="jobbatch")


def test_many_jobs_are_linked_to_their_list(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_NODES", 4)
    group = batch()
    other = job(task="tests.app.tasks.noop", done=True)
    members = [job(other, batch_id=group, done=True) for _each in range(2)]
    failed = job(other, batch_id=group, failed=True)
    job(done=True)
    page = body(root, url("workflow", other))
    [(address, name, text)] = [each for each in drawn(page) if "×" in each[1]]
    assert (name, text) == ("add × 3", "1 failed, 2 done")
    assert "drawn as one" in section(page)

    def jobs_at(link: str) -> list[int]:
        parts = urlsplit(link.replace("&amp;", "&"))
        return sorted(listed(root, parts.path, **{k: v[0] for k, v in parse_qs(parts.query).items()}))

    assert jobs_at(address) == sorted([*members, failed])
    [by_state] = re.findall(r'<a href="([^"]*status=failed[^"]*)">1 failed</a>', page)
    assert jobs_at(by_state) == [failed]


def test_the_page_of_a_job_does_not_read_a_large_workflow(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_BESIDE_THE_REST", Limits(jobs=2))
    here = job(done=True, marks=2)
    for _each in range(3):
        job(here)
    part = section(body(root, url("change", here)))
    assert "too large for this page" in part
    assert re.findall('href="([^"]*)"', part) == [url("workflow", here)]
    assert "data-pgqueue-source" not in part
    assert len(drawn(body(root, url("workflow", here)))) == 4


@pytest.mark.parametrize("term", ["", "x", "9999999999999999999", "-1", 5_000 * "9"])
def test_odd_searches_for_a_batch_find_nothing(root: Client, term: str) -> None:
    job(batch_id=batch())
    assert listed(root, q=f"batch:{term}") == []
