"""Whatever the texts of jobs, workers and users are: no page contains them as markup, none has control
characters in its texts, and no address breaks a page.

The pages are read from the admin classes, so that a new page is tested, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.test import Client
from django.utils import timezone

from django_pgqueue.models import Job, JobProgress, Limit, Pause, Step
from django_pgqueue.models.statistics import StatRollup, StatSpan
from tests.support.factories import (
    ERROR,
    BatchFactory,
    JobFactory,
    JobStatFactory,
    QueueFactory,
    ScheduleFactory,
    WorkerFactory,
)
from tests.support.figures import failure

from .helpers import ADMINS, pages_of, url

pytestmark = pytest.mark.django_db

HOSTILE = (
    "<script>pwned()</script>\"'><b pwned='1' pwned=\"1\">&lt;&amp;{{ 7|add:7 }}%s%(x)s{x}"
    "\x1b[2J\x9b2J\x7f\x07\r\n\x85\u202e\u2066/../"
)
#: Names without what their checks refuse, which SQL would let through anyway.
SHORT = "<script>pwned()</script>\"'><b pwned=1>\u202e"
#: What turns a text around, and what no browser shows.
CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
#: What the pages read from their addresses.
NAMES = (
    "q", "p", "o", "e", "status", "queue", "task", "finished", "span", "part", "keys", "log", "muted", "kind",
    "name", "state", "source", "overridden", "again", "page", "next", "_changelist_filters", "_popup",
    "reason", "until",
)  # fmt: skip


#: The attributes that lead somewhere.
ADDRESSES = {"href", "src", "action", "formaction", "data-pgqueue-source"}


class Markup(HTMLParser):
    """Collects what a hostile text has become if it was not escaped."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._tag = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note attributes that no page has, and addresses that lead elsewhere."""
        self._tag = "json" if ("type", "application/json") in attrs else tag
        self.found += [f"<{tag} {name}" for name, _value in attrs if "pwned" in name or name.startswith("on")]
        for name, value in attrs:
            if name in ADDRESSES and not _stays_here(value or ""):
                self.found.append(f"<{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        """Note scripts in the page, which no page has, and control characters, except in fields. JSON for a
        script of ours has no markup, also if it is read as HTML, and its texts are shown.
        """
        if self._tag == "json":
            if "<" in data or any(map(CONTROLS.search, _texts(json.loads(data)))):
                self.found.append(data)
        elif (self._tag == "script" and "pwned" in data) or (
            self._tag != "textarea" and CONTROLS.search(data)
        ):
            self.found.append(data)

    def handle_endtag(self, tag: str) -> None:
        """End a script."""
        self._tag = ""


def _texts(found: Any) -> Iterator[str]:
    """Yield the texts in JSON."""
    if isinstance(found, str):
        yield found
    elif isinstance(found, (list, dict)):
        for each in found.values() if isinstance(found, dict) else found:
            yield from _texts(each)


def _stays_here(address: str) -> bool:
    """Return whether an address is one of this site. The page of a job has its whole address, to share it."""
    parts = urlsplit(address)
    return parts.netloc in {"", "testserver"} and parts.scheme in {"", "http"}


def value(text: str = HOSTILE) -> dict[str, Any]:
    """Return JSON with the text in each place."""
    return {text: [text, {text: text}], "plain": text}


def hostile_jobs(batch: Any, worker: int) -> list[Job]:
    """Return a job of each state, with the text in each field."""
    error = {
        **ERROR, "class": HOSTILE, "message": HOSTILE, "traceback": HOSTILE, "worker": HOSTILE,
        "step": HOSTILE, "version": HOSTILE, "progress": {"done": 1, "total": 2, "note": HOSTILE},
    }  # fmt: skip
    line = {"at": HOSTILE, "level": HOSTILE, "logger": HOSTILE, "message": HOSTILE}
    step = {
        "name": HOSTILE, "kind": HOSTILE, "attempt": 1, "seconds": 1, "result": value(), "wake_at": HOSTILE,
    }  # fmt: skip
    common: dict[str, Any] = {
        "task_path": HOSTILE, "args": [HOSTILE, value()], "kwargs": value(), "metadata": value(),
        "context": {**value(), "carried": value(), "traceparent": HOSTILE, "user": HOSTILE},
        "queue_name": SHORT, "waiting_reason": HOSTILE, "current_step": HOSTILE, "limit_key": HOSTILE,
        "group_key": HOSTILE, "on_lost": "rerun", "error_fingerprint": SHORT[:40], "marks": 8 | 16,
        "errors": [error], "logs": [{"attempt": 1, "lines": [line], "left_out": 3}],
    }  # fmt: skip
    states: list[dict[str, Any]] = [
        {"running": True, "worker": worker}, {}, {"retrying": True}, {"blocked": True},
        {"done": True, "result": value()}, {"failed": True}, {"cancelled": True},
    ]  # fmt: skip
    jobs: list[Job] = []
    for place, state in enumerate(states):
        over = {"steps": [step]} if {"done", "failed"} & state.keys() else {}
        ties = {"batch": batch, "unique_key": f"{place}{HOSTILE}", "parents": jobs[:1]}
        jobs.append(JobFactory.create(**{**common, **ties, **over, **state}))
    return jobs


def make_rows() -> dict[str, Any]:
    """Make rows of each kind, with the text in each field."""
    user = User.objects.create(username=HOSTILE[:100])
    worker = WorkerFactory.create(
        host=HOSTILE, version=HOSTILE[:50], queues=[SHORT], last_group=HOSTILE, supervisor=1
    )
    batch = BatchFactory.create(name=HOSTILE)
    jobs = hostile_jobs(batch, worker.pk)
    JobProgress.objects.create(job=jobs[0], done=1, total=2, note=HOSTILE)
    Step.objects.create(job_id=jobs[0].pk, name=HOSTILE[:100], result=value())
    pauses = [
        Pause.objects.create(kind=kind, name=name, reason=HOSTILE, author=HOSTILE)
        for kind, name in (("queue", SHORT), ("task", HOSTILE), ("all", ""))
    ]
    limit = Limit.objects.create(name=HOSTILE, concurrency=1, declared_by=HOSTILE, declared_concurrency=2)
    schedule = ScheduleFactory.create(
        name=HOSTILE, task_path=HOSTILE, args=[HOSTILE], kwargs=value(), queue_name=SHORT,
        pause_reason=HOSTILE, pause_author=HOSTILE, declared={"cron": HOSTILE, "kwargs": value()},
        overridden=["cron", "kwargs"],
    )  # fmt: skip
    stat = JobStatFactory.create(queue_name=SHORT, task_path=HOSTILE)
    for span in StatSpan:
        StatRollup.objects.create(
            span=span, start=timezone.now() - timedelta(minutes=5), queue_name=SHORT, task_path=HOSTILE,
            failed=3, wait_histogram=stat.wait_histogram, run_histogram=stat.run_histogram,
        )  # fmt: skip
    failure(
        SHORT[:40], task_path=HOSTILE, queue_name=SHORT, version=HOSTILE[:50], error_class=HOSTILE,
        message=HOSTILE, traceback=HOSTILE, job_id=jobs[5].pk,
    )  # fmt: skip
    made: dict[str, Any] = {
        "job": jobs, "jobbatch": [batch], "worker": [worker], "pause": pauses, "limit": [limit],
        "schedule": [schedule], "queue": [QueueFactory.create(name=SHORT)], "jobstat": [stat],
    }  # fmt: skip
    for some in made.values():
        for row in some:
            LogEntry.objects.create(
                user=user, content_type=ContentType.objects.get_for_model(row), object_id=str(row.pk),
                object_repr=HOSTILE, action_flag=CHANGE, change_message=HOSTILE,
            )  # fmt: skip
    return made


def addresses(kind: str, rows: list[Any]) -> dict[str, str]:
    """Return the addresses of an admin class for its first row and the pages of the others, by names."""
    path = HOSTILE.replace("\n", "")  # no URL has line breaks
    first, *others = (quote(row.pk) for row in rows)
    given = {"object_id": first, "fingerprint": quote(SHORT[:40]), "task_path": path}
    unknown = {"unknown": url("failure", quote(HOSTILE))} if kind == "job" else {}
    more = {f"other {each}": url("change", each, model=kind) for each in others}
    return {**dict(pages_of(ADMINS[kind], **given)), **unknown, **more}


def read(client: Client, address: str, **query: Any) -> str:
    """Return a page, of which no part is what a text became without escaping; empty if there is none."""
    response = client.get(address, query)
    assert response.status_code in {200, 302, 400, 403, 404, 405}, address
    location = response.headers.get("Location", "/")
    assert _stays_here(location), location
    html = response.content.decode() if response.status_code == 200 else ""
    if response["Content-Type"].startswith("text/html"):
        assert Markup(html).found == [], address
        assert "<script>pwned" not in html, address
        assert "&amp;lt;script" not in html, f"{address} escapes twice"
    return html


def test_no_text_is_markup_nor_breaks_a_page(root: Client) -> None:
    """Whatever the query of the address says, which Django's own pages do not read. Numbers are read by
    lists, and for the log of a job (`test_job_page`).
    """
    for kind, rows in make_rows().items():
        pages = {name: (read(root, each), each) for name, each in addresses(kind, rows).items()}
        assert sum("&lt;script&gt;pwned" in page for page, _address in pages.values()) > 1
        for name, (page, address) in pages.items():
            if page and not name.endswith(("_history", "_delete")) and not name.startswith("other "):
                is_list = not name.endswith(("_change", "_workflow", "_clone", "_task", "_failure"))
                for text in (HOSTILE, "9" * 40)[: 1 + is_list]:
                    read(root, address, **dict.fromkeys(NAMES, text))
