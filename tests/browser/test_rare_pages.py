"""Pages that few people see: the exact number of very many jobs, and a page whose statement took too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import connection

from django_pgqueue.admin import base
from django_pgqueue.admin.bulk import selection

from .addresses import address
from .faults import SEEN, Faults, axe, overflow
from .hands import press

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from .conftest import Open

pytestmark = pytest.mark.browser


def content(page: Page) -> str:
    return page.locator("#content").inner_text()


@pytest.mark.parametrize("look", ["light", "phone"])
def test_more_jobs_than_are_counted(look: str, window: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MOST_COUNTED", 100)
    page = window(look)
    page.goto(f"{address('job_changelist')}?status=pending")
    page.locator("#action-toggle").check()
    page.get_by_role("button", name="Select all that match, on every page").click()
    page.select_option("select[name=action]", "cancel_jobs")
    press(page, "^(run|go)$")
    assert "100 or more jobs are selected" in content(page)
    assert overflow(page) == axe(page, SEEN) == []


@pytest.mark.parametrize("look", ["light", "phone"])
def test_a_page_that_takes_too_long_says_why(
    look: str, window: Open, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "SECONDS", 0.2)
    page = window(look)
    parameters = {
        name: given
        for name, given in connection.get_connection_params().items()
        if name in {"host", "port", "user", "password", "dbname"}
    }
    with psycopg.connect(**parameters) as migration:
        migration.execute("LOCK TABLE pgqueue_limit")
        answer: Any = page.goto(address("limit_changelist"))
    assert answer.status == 503
    assert "was given up" in content(page)
    assert overflow(page) == axe(page) == []
    assert all("503" in fault for fault in faults)
    faults.clear()
    page.get_by_role("link", name="Who waits for whom in the database").click()
    page.wait_for_url("**/database/**")
