"""The page of the database: badges, the lines that say when to act, and who sees statements."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_pgqueue.monitoring import database as parts
from tests.support.factories import JobFactory
from tests.support.sessions import Connect, start

from .helpers import body, staff

PAGE = "/admin/django_pgqueue/jobstat/database/"
UPDATE = "UPDATE pgqueue_job_live SET args = '[\"<secret>\"]'"


@pytest.mark.django_db
def test_each_part_has_a_badge_and_the_line_that_says_when_to_act(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts._readings.clear()
    page = body(root, PAGE)
    assert page.count('class="pgqueue-status pgqueue-check-') == page.count(">Act when ") == 7
    assert "pgqueue_job_past_1 (current)" in page
    assert "since the server&#x27;s sums were reset" in page
    monkeypatch.setattr(parts, "MOST_USED", 0)
    page = body(root, PAGE)
    verdict = page.split('class="pgqueue-verdict"')[1].split("</p>")[0]
    assert '<a href="#pgqueue-part-sessions">Connections</a>' in verdict
    assert page.count("pgqueue-check-act") == verdict.count("<a ") >= 1


@pytest.mark.django_db
def test_the_number_of_statements_is_constant(root: Client) -> None:
    with CaptureQueriesContext(connection) as captured:
        body(root, PAGE)
    assert sum("statement_timeout" in entry["sql"] for entry in captured) == 7 + 1, (
        "each part has its own limit"
    )


@pytest.mark.django_db(transaction=True)
def test_statements_are_for_those_who_may_view_arguments(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(parts, "LONGEST_WAIT", 0)
    monkeypatch.setattr(parts, "OLDEST", 0)
    JobFactory.create()
    holder, waiter = connect(), connect()
    holder.execute(UPDATE)
    waiting = start(waiter, lambda each: each.execute(UPDATE)).blocked()
    viewer = staff("view_jobstat")
    page = body(viewer, PAGE)
    assert f"{waiter.info.backend_pid}" in page
    assert "secret" not in page
    assert re.search(r"[2-7] parts need attention:", page)  # what other tests do may be among them
    assert "Statements are shown to users who may view the arguments and results of jobs." in page
    reader = staff("view_jobstat", "view_arguments_job")
    page = body(reader, PAGE)
    assert len(re.findall(r"(waits|blocks|statement): <code>UPDATE .*&lt;secret&gt;", page)) == 4
    settings.PGQUEUE = {"REDACT": ["re:<.*?>"]}
    page = body(reader, PAGE)
    assert page.count("<code>UPDATE ") == 4
    assert "secret" not in page
    holder.rollback()
    waiting.result()


@pytest.mark.django_db(transaction=True)
def test_a_part_that_is_too_slow_says_so(
    root: Client, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect().execute("LOCK TABLE pgqueue_ring IN ACCESS EXCLUSIVE MODE")
    monkeypatch.setattr(parts, "PATIENCE", 0.1)
    page = body(root, PAGE)
    assert page.count("pgqueue-check-slow") == page.count("The server did not answer within 0.1 s.") == 2
    assert "Nobody waits for a lock." in page
