"""The page of a job that waits says why, with links that its reader may follow; and any JSON is shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from django_pgqueue import cancel, pause, set_limit
from django_pgqueue.admin.job_page import why
from django_pgqueue.encoding import TOO_DEEP
from django_pgqueue.explanation import Reason
from django_pgqueue.models import Job
from tests.support.factories import BatchFactory, JobFactory, WorkerFactory

from .helpers import body, listed, staff, url

pytestmark = pytest.mark.django_db

AGO = timezone.now() - timedelta(hours=1)
LEVELS = 3_000
POISON = {
    "digits": ("1e5000", "a number with 5,001 digits"),
    "lists": ("[" * LEVELS + "]" * LEVELS, TOO_DEEP.strip("<>")),
    "objects": ('{"a":' * LEVELS + "1" + "}" * LEVELS, TOO_DEEP.strip("<>")),
    "not a number": ("1e400", "1000000"),
    "keys": ('{"": {"": 1}, "__proto__": {"a": 1, "a": 2}}', "__proto__"),
}


def test_a_long_argument_is_cut(root: Client) -> None:
    job = JobFactory.create(args=["x" * 30_000])
    page = body(root, url("change", job.pk))
    assert "… and 10,008 more characters" in page
    assert len(page) < 60_000


def field(client: Client, job: Job) -> str:
    """Return the HTML of the field."""
    page = body(client, url("change", job.pk))
    found = re.search(r'field-why.*?<div class="readonly">(.*?)</div>', page, re.DOTALL)
    return found[1] if found else ""


def paused() -> Job:
    pause(queue="mail", author="<anna>", reason="<b>the bank</b>")
    return JobFactory.create(queue_name="mail")


def limited() -> Job:
    set_limit(name="send", concurrency=1)
    JobFactory.create(running=True, limit_key="send/a b")
    return JobFactory.create(limit_key="send/a b", wait_position=1)


def limited_by_default() -> Job:
    JobFactory.create(running=True, limit_key="send")
    return JobFactory.create(limit_key="send", wait_position=1)


def after_batch() -> Job:
    return JobFactory.create(parents=[BatchFactory.create(is_open=True, name="<import>")])


def behind() -> Job:
    WorkerFactory.create()
    JobFactory.create(run_after=AGO)
    return JobFactory.create()


def worker_is_missing() -> Job:
    return JobFactory.create(queue_name="mail")


CASES: list[tuple[Callable[[], Job], str, list[str], list[str]]] = [
    # how to make the job, the permission for the links, the links in order, and words without markup
    (paused, "view_pause", [r"/pause/\d+/change/"], ["by &lt;anna&gt;", "&lt;b&gt;the bank&lt;/b", "<time "]),
    (
        limited, "view_limit",
        [r"/limit/send/change/", r"/job/\d+/change/", r"/limit/send/change/", r"\?q=key%3Asend%2Fa\+b"],
        ["1 of 1 jobs run"],
    ),
    (limited_by_default, "add_limit", [r"/job/\d+/change/", r"/limit/add/\?name=send", r"\?q=key%3As"], []),
    (after_batch, "view_jobbatch", [r"/jobbatch/\d+/change/"], ["&lt;import&gt;", ".close()"]),
    (behind, "view_job", [r"\?queue=default&amp;status=pending"], ["1 job that was due earlier"]),
    (worker_is_missing, "view_worker", ["/worker/"], ["manage.py runqueueworker --queues mail"]),
]  # fmt: skip


@pytest.mark.parametrize(("make", "permission", "links", "words"), CASES)
def test_the_reason_has_links_to_what_helps(
    make: Callable[[], Job], permission: str, links: list[str], words: list[str]
) -> None:
    job = make()
    shown = field(staff(*{"view_job", permission}), job)
    found = re.findall(r'href="([^"]+)"', shown)
    assert len(found) == len(links), found
    for pattern, address in zip(links, found, strict=True):
        assert re.search(pattern, address), address
    text = shown.replace("<wbr>", "")
    assert [word for word in words if word not in text] == []
    allowed = re.findall(r'href="([^"]+)"', field(staff("view_job"), job))
    assert all("/job/" in address for address in allowed), allowed


def test_a_locked_row_leads_to_the_page_of_the_database(admin_client: Client, monkeypatch: Any) -> None:
    job = JobFactory.create()
    locked = Reason("locked", {"pid": 5, "application": "<psql>"}, job.pk, "default")
    monkeypatch.setattr(why, "why", lambda job: locked)
    shown = field(admin_client, job)
    assert "process 5, &lt;psql&gt;" in shown
    assert re.findall(r'href="([^"]+)"', shown) == ["/admin/django_pgqueue/jobstat/database/"]


def test_only_waiting_jobs_ask(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "why", lambda job: pytest.fail("asked"))
    for state in ("running", "done", "failed"):
        field(admin_client, JobFactory.create(**{state: True}))


@pytest.mark.parametrize("column", ["args", "kwargs", "metadata", "result"])
def test_a_job_is_shown_with_whatever_sql_has_stored(root: Client, column: str) -> None:
    for name, (value, shown) in POISON.items():
        whole = {"args": f"[1, {value}]", "result": value}.get(column, f'{{"key": {value}}}')
        with connection.cursor() as cursor:
            cursor.execute("SELECT pgqueue_enqueue('tests.app.tasks.noop')")
            (pk,) = cursor.fetchone()
            cursor.execute(f"UPDATE pgqueue_job_live SET {column} = %s::jsonb WHERE id = %s", [whole, pk])
        assert shown in body(root, url("change", pk)), name
        if column in ("args", "kwargs"):
            assert root.get(url("clone", pk)).status_code == 200, name
        getattr(Job.objects.get(pk=pk), column)
    assert len(listed(root)) == len(POISON)
    for pk in listed(root):
        assert cancel(pk) == 1
