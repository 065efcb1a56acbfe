"""The chart of a task on the pages of its jobs."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from django.db import connection
from django.test import Client

from django_pgqueue.admin.job_page import page as page_module
from django_pgqueue.postgres.timeout import TimeLimitReached
from tests.support.factories import JobFactory
from tests.support.statistics import count

from .helpers import body, staff, url

pytestmark = pytest.mark.django_db


def too_slow(*_: Any, **__: Any) -> NoReturn:
    raise TimeLimitReached


def test_a_job_shows_how_long_its_task_ran(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    address = url("change", JobFactory.create().pk)
    assert "pgqueue-runs" not in body(root, address)  # the task has not run
    count(connection.connection, [5, 90], task="tests.app.tasks.add")
    page = body(root, address)
    assert '<figure class="pgqueue-chart" id="pgqueue-runs"' in page
    assert page.count("uPlot.iife.min.js") == 1
    assert "pgqueue-runs" not in body(staff("view_job"), address)
    assert "pgqueue-runs" in body(staff("view_job", "view_jobstat"), address)
    monkeypatch.setattr(page_module, "series", too_slow)
    assert "pgqueue-runs" not in body(root, address)
