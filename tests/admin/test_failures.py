"""The pages of failures by group, what can be done with a group, and who may do it."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import quote_plus

import pytest
from django.contrib.admin import site
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone

from django_pgqueue.admin import JobAdmin, failures
from django_pgqueue.admin.bulk import confirm, task as bulk
from django_pgqueue.admin.failures import application_part, failure_block
from django_pgqueue.models import FailureGroup, Job
from tests.support.factories import JobFactory, WorkerFactory
from tests.support.figures import failure
from tests.support.wording import shown

from .helpers import Page, body, chosen_links, post, press, rows_of, staff, url

pytestmark = pytest.mark.django_db

TRACE = """Traceback (most recent call last):
  File "/srv/shop/tasks.py", line 3, in send
    call("<b>")
  File "/venv/lib/python3.13/site-packages/requests/api.py", line 73, in get
    return request()
           ~~~~~~~^^
shop.Down: <script>alert(1)</script>"""


@pytest.fixture
def one() -> None:
    """A group with 3 failed attempts, and one with a single one in another queue."""
    down = {"error_class": "shop.Down", "message": "<script>alert(1)</script>", "traceback": TRACE}
    failure("f", failed=2, task_path="shop.tasks.send", version="v7", job_id=7, **down)
    failure("f", failed=0, retried=1, task_path="shop.tasks.call", version="v8", **down)
    failure("g/h", queue_name="mail", error_class="", message="")


def rows(page: str) -> list[str]:
    return rows_of(page).splitlines()


def test_the_list(root: Client, one: None, wording: Any) -> None:
    page = body(root, url("failures"))
    assert "\n".join(rows(page)) == wording
    assert page.count("pgqueue-spark ") == 2
    mail = body(root, url("failures"), queue="mail", span="7d")
    assert 'queue=mail&amp;span=7d" data-pgqueue-pause="15"' in mail
    assert chosen_links(mail) == ["not muted", "mail", "All", "7 days"]
    assert [row.partition(" ")[0] for row in rows(mail)] == ["without"]
    [row] = rows(body(root, url("failures"), task="shop.tasks.call"))
    assert "| 0 | 1 |" in row
    assert "Nothing has failed" in body(root, url("failures"), queue="no", task="none", span="1h")
    assert "No muted group" in body(root, url("failures"), muted="1", span="7d")


def test_a_span_from_one_time_to_another(root: Client, one: None) -> None:
    """The list, its links to the groups, and the page of a group."""
    hours = [f"{timezone.now() - timedelta(hours=hours):%Y-%m-%dT%H:%M}" for hours in (30, 2, 0)]
    before, now = f"{hours[0]}..{hours[1]}", f"{hours[1]}..2999-01-01T00:00"
    assert "Nothing has failed" in body(root, url("failures"), span_from=hours[0], span_to=hours[1])
    page = body(root, url("failures"), span=now)
    assert len(rows(page)) == 2
    assert f"{url('failure', 'f')}?span={quote_plus(now)}" in page
    assert "2 failed" in shown(body(root, url("failure", "f"), span=now)) or "| 2 |" in shown(page)
    group = body(root, url("failure", "f"), span=before)
    assert "Quarters of an hour are counted" in group
    assert f'value="{hours[1]}"' in group
    assert "shop.tasks.send" not in group.split("pgqueue-other-times")[1].split("Newest failure")[0]


def test_the_list_ends_and_says_so(root: Client, one: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MOST_GROUPS", 1)
    page = body(root, url("failures"))
    assert len(rows(page)) == 1
    assert "Only the largest groups are shown" in page


def test_a_group(root: Client, one: None, wording: Any) -> None:
    JobFactory.create(id=101, failed=True, error_fingerprint="f")
    JobFactory.create(retrying=True, error_fingerprint="f")
    FailureGroup.objects.filter(pk="f").update(sample_job=101)
    page = body(root, url("failure", "f"), span="7d")
    assert shown(re.sub("<figure.*</figure>", "(the chart)", page, flags=re.DOTALL)) == wording
    assert "<title>Down |" in page
    assert 'data-pgqueue-chart="bars"' in page
    viewed = body(staff("view_job"), url("failure", "f")).split('id="content-main"')[1]
    assert '<form method="post"' not in viewed
    assert "Failure without an error" in body(root, url("failure", "g_2Fh"))
    gone = root.get(url("failure", "nobody"), follow=True)
    assert gone.redirect_chain == [(f"{url('changelist')}?q=fingerprint%3Anobody", 302)]
    assert "There is no such group of failures" in gone.content.decode()


def ask(client: Client, label: str) -> Page:
    """Press a button of the group, and return the page that asks for confirmation."""
    form = next(part for part in body(client, url("failure", "f")).split("<form ") if label in part)
    address = unescape(re.findall(r'action="([^"]+)"', form)[0])
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))
    return press(client, address, **fields)


@pytest.mark.parametrize(
    ("action", "label", "state", "after"),
    [
        ("retry", "Retry the failed jobs", {"failed": True}, "pending"),
        ("cancel", "Cancel the waiting jobs", {"retrying": True}, "cancelled"),
    ],
)
def test_an_action_on_a_group(one: None, action: str, label: str, state: dict[str, Any], after: str) -> None:
    """All its jobs are retried or cancelled, after a question."""
    jobs = [JobFactory.create(**state, error_fingerprint="f") for _ in range(2)]
    other = JobFactory.create(**state, error_fingerprint="g")
    client = staff("view_job", f"{action}_job")
    asked = ask(client, label)
    assert "2 jobs are selected" in asked.html
    done = client.post(asked.address, asked.fields)
    assert done["Location"] == url("failure", "f")
    told = f"2 jobs {'run again' if action == 'retry' else 'were cancelled'}"
    assert told in body(client, done["Location"])
    assert {Job.objects.get(pk=job.pk).status for job in jobs} == {after}
    assert Job.objects.get(pk=other.pk).status != after


def test_an_action_in_the_background_leads_to_the_group(one: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its page is refreshed, and links to the job that does it."""
    WorkerFactory.create()
    monkeypatch.setattr(confirm, "MOST_AT_ONCE", 1)
    JobFactory.create_batch(2, failed=True, error_fingerprint="f")
    client = staff("view_job", "retry_job")
    asked = ask(client, "Retry the failed jobs")
    done = client.post(asked.address, asked.fields)
    assert done["Location"] == url("failure", "f")
    job = Job.objects.get(task_path=bulk.run.module_path)
    page = body(client, done["Location"])
    assert f'in the background: <a href="{url("change", job.pk)}">job {job.pk}</a>' in page
    assert 'data-pgqueue-source="?span=24h"' in page


def test_a_group_is_muted_and_unmuted(root: Client, one: None) -> None:
    address = url("failure_mute", "f")
    assert post(root, address, action="mute") == ("The group is muted until it changes.", "success")
    assert post(root, address, action="mute") == ("Nothing changed: another user was first.", "warning")
    assert "muted by root" in body(root, url("failure", "f"))
    [left] = rows(body(root, url("failures")))
    assert left.startswith("without an error")
    assert len(rows(body(root, url("failures"), muted="1"))) == 1
    assert post(root, address, action="unmute") == ("The group is no longer muted.", "success")
    assert FailureGroup.objects.get(pk="f").muted_at is None
    assert list(LogEntry.objects.order_by("pk").values_list("object_id", "change_message")) == [
        ("f", "The group is muted until it changes."),
        ("f", "The group is no longer muted."),
    ]
    assert root.post(url("failure_mute", "nobody")).status_code == 404
    assert root.get(address).status_code == 405


def test_counts_of_jobs_end_at_a_limit(one: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MOST_JOBS", 1)
    for _ in range(2):
        JobFactory.create(failed=True, error_fingerprint="f")
    counts = failures.jobs_of("default", "f")
    assert failures.jobs_in_words([counts])["failed"] == "1+ jobs have failed"


def test_the_block_of_the_overview(one: None) -> None:
    block = failure_block(JobAdmin(Job, site))
    assert [row["group"].failed for row in block["groups"]] == [2, 1]
    assert block["url"] == url("failures")


GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/srv/shop/tasks.py", line 3, in send
  |     call()
  |   File "/usr/lib/python3.13/asyncio/taskgroups.py", line 9, in wait
  |     raise
  | ExceptionGroup: two"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRACE, ["/srv/shop", 'call("<b>")', "shop.Down"]),
        (GROUP, ["/srv/shop", "call()", "ExceptionGroup"]),
        (TRACE.replace("/venv/lib/python3.13/site-packages", "/srv"), []),
        (TRACE.replace("/srv/shop", "/venv/site-packages"), []),
        ("", []),
    ],
    ids=["plain", "group", "no library", "only libraries", "nothing"],
)
def test_the_part_of_a_traceback_in_the_project(text: str, expected: list[str]) -> None:
    found = application_part(text)
    assert bool(found) == bool(expected)
    assert "python3.13" not in found
    for part in expected:
        assert part in found
