"""The list of jobs, which shows itself anew. The clock of the page runs as fast as the test wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_pgqueue.models import Job
from django_pgqueue.monitoring import states
from tests.support.factories import JobFactory

from .addresses import address
from .test_keyboard import focused

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from .conftest import Open

pytestmark = pytest.mark.browser


def an_hour_later(page: Page) -> None:
    """Let one read be due. If time passed until the answer comes, it would look slow."""
    page.clock.fast_forward("01:00:00")
    page.wait_for_load_state("networkidle")


def see(page: Page, job: Job, rows: int = 0) -> None:
    """Wait until the job is on top, and the list has so many rows."""
    an_hour_later(page)
    page.wait_for_function(
        """([id, count]) => {
            const rows = document.querySelectorAll("#result_list tbody tr");
            return rows[0].querySelector("th").innerText === id && (!count || rows.length === count);
        }""",
        arg=[str(job.pk), rows],
    )


def test_new_rows_come_and_the_reader_keeps_what_he_has_begun(window: Open) -> None:
    old = JobFactory.create(queue_name="list", running=True)
    states._shared.clear()
    page = window()
    page.clock.install()
    page.goto(address("job_changelist"), wait_until="networkidle")
    running = page.locator("#pgqueue-count-running")
    before = int(running.inner_text().replace(",", ""))
    page.keyboard.press("j")
    assert focused(page) == str(old.pk)

    new = JobFactory.create(queue_name="list", running=True)
    states._shared.clear()
    see(page, new)
    assert focused(page) == str(old.pk), "the cursor stays with its row"
    assert int(running.inner_text().replace(",", "")) == before + 1

    page.keyboard.press("x")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    newest = JobFactory.create(queue_name="list", running=True)
    an_hour_later(page)
    assert requests == [], "a row is selected"
    assert page.locator("span.action-counter").inner_text().startswith("1 of ")
    page.keyboard.press("x")
    see(page, newest)
    assert focused(page) == str(old.pk)

    # Django's script counts the new boxes, and no others.
    page.locator("#action-toggle").check()
    count = page.locator("input.action-select").count()
    assert page.locator("input.action-select:checked").count() == count
    assert page.locator("span.action-counter").inner_text() == f"{count} of {count} selected"
    page.locator(f"input.action-select[value='{old.pk}']").uncheck()
    assert page.locator("span.action-counter").inner_text() == f"{count - 1} of {count} selected"


def test_the_cursor_goes_to_the_row_that_took_the_place_of_its_own(window: Open) -> None:
    first, second, third = JobFactory.create_batch(3, queue_name="short")
    page = window()
    page.clock.install()
    page.goto(f"{address('job_changelist')}?queue=short", wait_until="networkidle")
    page.locator("select[name=action]").select_option("cancel_jobs")
    page.keyboard.press("Tab")
    Job.objects.filter(pk=second.pk).update(queue_name="long")
    an_hour_later(page)
    assert page.locator("select[name=action]").input_value() == "cancel_jobs", "a choice is not lost"
    assert page.locator("#result_list tbody tr").count() == 3
    page.locator("select[name=action]").select_option("")
    page.locator("#result_list tbody tr:nth-child(2) th a").focus()
    see(page, third, rows=2)
    assert focused(page) == str(first.pk)


def test_a_search_for_text_is_not_repeated(window: Open) -> None:
    page = window()
    page.clock.install()
    page.goto(f"{address('job_changelist')}?q=no+such+text&status=running", wait_until="networkidle")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    an_hour_later(page)
    assert requests == []
