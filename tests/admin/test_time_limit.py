"""The time limit for each statement of a page, and what a page is without a part that is too slow. That each
statement has a limit: `test_access`.
"""

from __future__ import annotations

from difflib import ndiff
from typing import Any, NoReturn

import pytest
from django.contrib import admin
from django.contrib.auth.models import AnonymousUser, User
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import Client, RequestFactory

from django_pgqueue import pause
from django_pgqueue.admin import base, failures, overview, queues as queue_page, tasks, workers
from django_pgqueue.admin.base import limited
from django_pgqueue.admin.job_page import page as job_page
from django_pgqueue.admin.jobs import fields
from django_pgqueue.models import Queue
from django_pgqueue.monitoring import health, queues
from django_pgqueue.postgres.timeout import TimeLimitReached
from tests.support.factories import JobFactory, QueueFactory, WorkerFactory, ago
from tests.support.figures import count, failure
from tests.support.jobs import sql
from tests.support.sessions import Connect

from .helpers import body, seen, staff, url

pytestmark = pytest.mark.django_db

ADMIN: Any = admin.site.get_model_admin(Queue)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "SECONDS", 0.2)


def current() -> str:
    return str(sql("SHOW statement_timeout"))


def request(method: str, user: Any) -> HttpRequest:
    made = RequestFactory().generic(method, "/")
    made.user = user
    return made


def too_slow(*_: Any, **__: Any) -> NoReturn:
    raise TimeLimitReached


def answer(method: str = "GET", user: Any = None) -> str:
    """Return the limit that a view has."""
    view = limited(ADMIN, lambda request: HttpResponse(current()))
    found = view(request(method, user or User(is_staff=True, is_active=True)))
    assert isinstance(found, HttpResponse)
    return found.content.decode()


@pytest.mark.django_db(transaction=True)
def test_a_page_that_waits_for_a_lock_says_so(connect: Connect) -> None:
    """And leads those who may see the database to who waits for whom."""
    migration = connect()
    migration.execute("LOCK TABLE pgqueue_limit")
    for client, may in ((staff("view_limit"), False), (staff("view_limit", "view_jobstat"), True)):
        found = client.get(url("changelist", model="limit"))
        assert found.status_code == 503
        text = found.content.decode()
        assert "A statement of this page took longer than" in text
        assert ("Who waits for whom in the database" in text) is may
    migration.rollback()
    assert client.get(url("changelist", model="limit")).status_code == 200


def test_only_pages_that_are_read_by_the_staff_are_limited() -> None:
    assert answer() == "200ms"
    assert answer("HEAD") == "200ms"
    assert answer("POST") == "0"
    assert answer(user=AnonymousUser()) == "0"
    assert current() == "0"


class Lazy:
    """Is read by the template."""

    def __str__(self) -> str:
        return current()

    def sleep(self) -> None:
        sql("SELECT pg_sleep(10)")


def test_what_a_template_reads_is_limited(root: Client) -> None:
    def page(source: str) -> Any:
        template = engines["django"].from_string(source)
        view = limited(ADMIN, lambda request: TemplateResponse(request, template, {"lazy": Lazy()}))
        return view(request("GET", User(is_staff=True, is_active=True, is_superuser=True)))

    fast = page("{{ lazy }}").render()
    assert fast.content.decode() == "200ms"
    assert "render" not in vars(fast)
    slow = page("{{ lazy.sleep }}").render()
    assert slow.status_code == 503
    assert current() == "0"


MISSING = "could not be read in time"
OVERVIEW = "/admin/django_pgqueue/job/overview/"
MAIL = "tests.app.tasks.mail"
#: The module and the names of functions that are too slow, the page, what it says, and what is there still.
PARTS: dict[str, tuple[Any, str, str, list[str], list[str]]] = {
    "figures of queues": (queues, "depths", "queue/", [MISSING], []),
    "figures of a queue": (queues, "depths", "queue/mail/change/", [f"Depth\n{MISSING}"], ["Attempts"]),
    "charts of a queue": (queue_page, "series", "queue/mail/change/", ["the charts are missing"], ["Ready"]),
    "figures of tasks": (tasks, "breakdown", f"jobstat/?q={MAIL}", [f"The statistics {MISSING}"], [MAIL]),
    "trends of tasks": (tasks, "trends", f"jobstat/?q={MAIL}", [], [MAIL]),
    "charts of a task": (tasks, "series", f"jobstat/task/{MAIL}/", ["so the charts are missing"], [MAIL]),
    "groups of failures": (failures, "groups", "job/failures/", ["did not answer in time"], []),
    "jobs of a failure": (failures, "jobs_of", "job/failures/f/", ["did not answer in time"], []),
    "history of a worker": (workers, "ended_by", "worker/7/change/", [f"What it has ended {MISSING}"], []),
    "callers of a task": (tasks, "callers", f"jobstat/task/{MAIL}/", [MISSING], ["Attempts"]),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_slow_part_keeps_no_other(part: str, root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, address, said, there = PARTS[part]
    QueueFactory.create(name="mail")
    WorkerFactory.create(id=7)
    failure(error_class="shop.Down")
    monkeypatch.setattr(module, name, too_slow)
    page = seen(root, f"/admin/django_pgqueue/{address}")
    assert [text for text in (*said, *there) if text not in page] == []


SLOW: list[tuple[Any, str]] = [
    (health, "depths"), (health, "Crew"), (health, "lost_jobs"), (overview, "breakdown"),
    (overview, "depth_series"), (overview, "failed_jobs"), (health, "series"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "part"), SLOW)
def test_the_overview_says_which_part_is_too_slow(
    root: Client, module: Any, part: str, monkeypatch: pytest.MonkeyPatch, wording: Any
) -> None:
    """What is on record are the lines that differ then."""
    JobFactory.create(run_after=ago(minutes=2))
    WorkerFactory.create(id=7, host="app-9", pid=1)
    WorkerFactory.create(id=8, host="app-8", pid=1, heartbeat_at=ago(days=1))
    JobFactory.create(running=True, worker=8, last_attempted_at=ago(minutes=3))
    pause(everything=True)
    usual = seen(root, OVERVIEW)
    monkeypatch.setattr(module, part, too_slow)
    slow = seen(root, OVERVIEW)
    assert "Everything is paused" in slow
    changed = ndiff(usual.splitlines(), slow.splitlines())
    assert "\n".join(line for line in changed if line[0] in "+-") == wording


def test_the_page_of_a_job_has_a_chart_if_it_can(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the task has run, for those who may see statistics, and if they can be read in time."""
    address = url("change", JobFactory.create().pk)
    assert "pgqueue-runs" not in body(root, address)
    count(connection.connection, [5, 90], task="tests.app.tasks.add")
    assert body(root, address).count("uPlot.iife.min.js") == 1
    assert 'id="pgqueue-runs"' in body(staff("view_job", "view_jobstat"), address)
    assert "pgqueue-runs" not in body(staff("view_job"), address)
    monkeypatch.setattr(job_page, "series", too_slow)
    assert "pgqueue-runs" not in body(root, address)


def test_a_reason_that_takes_too_long(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "why", lambda job: sql("SELECT pg_sleep(60)"))
    monkeypatch.setattr(fields, "PATIENCE", 0.01)
    assert "It took too long to find out why." in seen(root, url("change", JobFactory.create().pk))
