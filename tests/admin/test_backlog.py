"""What fills a queue: what its waiting jobs have in common."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.test import Client, override_settings

from django_pgqueue.models import Job, Pause
from django_pgqueue.monitoring import depth as module
from django_pgqueue.monitoring.depth import Backlog, backlog, depths
from tests.support.factories import JobFactory
from tests.support.plans import fill
from tests.support.sessions import Connection

from .helpers import Page, body, seen, staff, url

pytestmark = pytest.mark.django_db

TASK = "tests.app.tasks.noop"


def of(queue: str, **options: Any) -> Backlog:
    return backlog("default", depths("default")[queue], **{"arguments": True, **options})


def some_jobs() -> None:
    for n in range(24):
        JobFactory.create(
            queue_name="mail", task_path=TASK, args=[n, "weekly"],
            group_key="acme" if n % 4 else None,
            kwargs={"tenant": "acme" if n % 4 else f"t{n}", "n": n, "password": "same", "deep": {"a": 1}},
        )  # fmt: skip
    JobFactory.create_batch(6, queue_name="mail", args=[], scheduled=True)
    JobFactory.create_batch(
        10,
        queue_name="mail",
        status="blocked",
        waiting_reason="at most 1",
        limit_key="api/x",
        wait_position=1,
        args=[],
    )
    JobFactory.create_batch(50, queue_name="mail", done=True)
    JobFactory.create_batch(50, queue_name="mail", running=True)


def told(found: Backlog) -> list[tuple[str, str, str, int]]:
    return [(each.kind, each.place, each.value, each.jobs) for each in found.shares]


def test_all_of_few_jobs_are_looked_at() -> None:
    some_jobs()
    found = of("mail")
    assert (found.jobs, found.is_sample) == (40, False)
    assert told(found) == [
        ("task", "", TASK, 24), ("task", "", "tests.app.tasks.add", 16), ("group", "", "acme", 18),
        ("limit", "", "api/x", 10), ("argument", "args.1", "weekly", 24),
        ("argument", "kwargs.tenant", "acme", 18),
    ], "neither what is rare, nor what is redacted"  # fmt: skip
    assert found.shares[2].share == pytest.approx(18 / 40)
    assert {each.kind for each in of("mail", arguments=False).shares} == {"task", "group", "limit"}


@override_settings(PGQUEUE={"REDACT": ["re:^weekly$"]})
def test_what_a_pattern_redacts_is_not_shown() -> None:
    some_jobs()
    assert not [each for each in of("mail").shares if each.value == "weekly"]


@pytest.mark.django_db(transaction=True)
def test_a_sample_of_many_jobs_has_the_same_shares(one: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(
        one, "pgqueue_job_live", 20_000, analyze=False, status="'pending'",
        queue_name="CASE WHEN n % 200 = 0 THEN 'rare' ELSE 'default' END",
        group_key="CASE WHEN n % 10 < 6 THEN 'flood' ELSE 'g' || n END",
    )  # fmt: skip
    monkeypatch.setattr(module, "PAGES", 100)
    monkeypatch.setattr(module, "LOOKED_AT", 50)
    found = of("default")
    assert found.is_sample
    assert 500 < found.jobs < 10_000
    [flood] = [each for each in found.shares if each.kind == "group"]
    assert flood.value == "flood"
    assert flood.share == pytest.approx(0.6, abs=0.1)
    rare = of("rare")
    assert (rare.is_sample, rare.jobs >= 1) == (True, True)


def test_a_tenant_floods_a_queue_and_its_jobs_are_cancelled(root: Client) -> None:
    """From the page of the queue: "Cancel these", and the confirmation."""
    some_jobs()
    address = url("change", "mail", model="queue")
    page = seen(root, address, "pgqueue-backlog")
    assert "acme argument kwargs.tenant, tests.app.tasks.noop | 45 %" in page
    assert "Shares of all 40 waiting jobs." in page
    listed = f"{url('changelist')}?queue=mail&task={TASK}&q=kwargs.tenant%3Dacme"
    assert listed.replace("&", "&amp;") in body(root, address)
    data = {"action": "cancel_jobs", "select_across": "1", "_selected_action": "0", "index": "0"}
    response = root.post(listed, data)
    confirmation = Page(listed, response.content.decode())
    assert confirmation.confirm(root)[1] == "success"
    cancelled = Job.objects.filter(status="cancelled")
    assert cancelled.count() == 18
    assert {job.kwargs["tenant"] for job in cancelled} == {"acme"}


@pytest.mark.parametrize("query", ["q=group%3Aacme", "q=key%3Aapi/x"])
def test_a_group_and_a_limit_key_lead_to_their_jobs(root: Client, query: str) -> None:
    some_jobs()
    assert query.replace("/", "%2F") in body(root, url("change", "mail", model="queue"))
    found = root.get(f"{url('changelist')}?queue=mail&{query}").context["cl"].result_list
    assert len(found) == (18 if "group" in query else 10)


def test_what_fills_a_queue_is_paused_from_its_page(root: Client) -> None:
    """Each task, group, limit key and argument has a link to the form, which pauses it as it is."""
    some_jobs()
    page = body(root, url("change", "mail", model="queue"))
    add = url("add", model="pause")
    links = {
        unescape(link) for link in re.findall(rf'href="({add}[^"]*)">Pause', page) if "kind=queue" not in link
    }
    for link in links:
        fields = dict(parse_qsl(link.partition("?")[2]))
        assert f'value="{fields["name"]}"' in body(root, link)
        assert root.post(add, fields).status_code == 302
    made = {*Pause.objects.values_list("kind", "name")}
    assert {
        ("task", TASK), ("group", "acme"), ("limit_key", "api/x"), ("argument", f"{TASK} kwargs.tenant=acme"),
    } <= made  # fmt: skip
    assert len(made) == len(links)


def test_who_may_see_less_is_shown_less() -> None:
    some_jobs()
    address = url("change", "mail", model="queue")
    page = seen(staff("view_queue", "view_job"), address, "pgqueue-backlog")
    assert "acme" in page
    assert "kwargs.tenant" not in page
    assert "Cancel these" not in page
    assert 'id="pgqueue-backlog"' not in body(staff("view_queue"), address)


def test_few_jobs_are_no_news(root: Client) -> None:
    JobFactory.create_batch(19, queue_name="mail")
    assert 'id="pgqueue-backlog"' not in body(root, url("change", "mail", model="queue"))
