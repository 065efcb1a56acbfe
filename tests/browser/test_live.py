"""Pages that show themselves anew, their charts, and the drawing of a workflow. The clock of the page runs as
fast as a test wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from django_pgqueue import cancel, pause, resume
from django_pgqueue.admin import lists
from django_pgqueue.admin.jobs import search
from django_pgqueue.models import Job, JobBatch
from django_pgqueue.monitoring import queues
from tests.support.factories import JobFactory

from .conftest import ROWS
from .hands import address, change, page as address_of
from .test_keyboard import focused

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from .conftest import Open

pytestmark = pytest.mark.browser

LONG = 120_000  # milliseconds; in this time, each part is read at least once
REASON = "a reason nobody has seen before"
# Whether something is drawn on a canvas.
DRAWN = """
    canvas => {
        const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return data.some(value => value > 0);
    }
"""
FITS = """
    () => [...document.querySelectorAll("#pgqueue-graphs canvas")].every(canvas => {
        const {width} = canvas.getBoundingClientRect();
        return width > 200 && width <= 700;
    })
"""


def show(window: Open, path: str, look: str = "light", *, fresh: bool = False) -> Page:
    """Open a page whose clock is ours."""
    page = window(look, fresh=fresh)
    page.clock.install()
    page.goto(path, wait_until="networkidle")
    return page


def overview(window: Open) -> Page:
    return show(window, address("job_overview"), fresh=True)


def let_time_pass(page: Page) -> None:
    page.clock.run_for(LONG)
    page.wait_for_load_state("networkidle")


@contextmanager
def nothing_is_read(page: Page) -> Iterator[None]:
    requests: list[str] = []
    page.on("request", note := lambda request: requests.append(request.url))
    yield
    assert requests == []
    page.remove_listener("request", note)


@pytest.fixture
def news() -> Iterator[Callable[[], None]]:
    """Return a function that pauses a queue, which the overview then tells. It is resumed at the end."""

    def tell() -> None:
        pause(queue="demo-images", reason=REASON)

    yield tell
    resume(queue="demo-images")


def test_the_overview_shows_what_is_new_and_keeps_what_was_unfolded(
    window: Open, news: Callable[[], None]
) -> None:
    page = overview(window)
    summary = page.locator("#pgqueue-graphs summary").first
    summary.focus()
    page.keyboard.press("Enter")
    assert REASON not in page.content()
    news()
    let_time_pass(page)
    page.wait_for_function("reason => document.body.innerText.includes(reason)", arg=REASON)
    assert page.locator("#pgqueue-graphs details[open]").count() == 1
    assert page.evaluate("document.activeElement.localName") == "summary"


def show_anew(page: Page, part: str) -> None:
    """Wait until a part is shown anew."""
    page.locator(part).evaluate("part => { part.dataset.old = 'yes' }")
    let_time_pass(page)
    page.locator(f"{part}:not([data-old])").wait_for()


@pytest.mark.parametrize(
    ("part", "element"),
    [
        ("#pgqueue-health", "#pgqueue-health button[value=resume]"),
        ("#pgqueue-queues-now", "#pgqueue-queues-now details[open] button[value=pause]"),
        ("#pgqueue-failures-now", "#pgqueue-failures-now [role=region]"),
    ],
    ids=["resume", "pause", "a box"],
)
def test_the_focus_stays(part: str, element: str, window: Open, news: Callable[[], None]) -> None:
    news()
    page = overview(window)
    if "details" in element:
        page.locator("#pgqueue-queues-now summary").first.click()
    page.locator(element).first.focus()
    before = page.evaluate("document.activeElement.outerHTML.slice(0, 90)")
    show_anew(page, part)
    assert page.evaluate("document.activeElement.outerHTML.slice(0, 90)") == before
    assert page.locator(element).first.evaluate("each => each === document.activeElement")


@pytest.mark.parametrize(
    ("name", "part", "box"),
    [
        ("job_overview", "#pgqueue-workers-now", "#pgqueue-workers-box"),
        ("job_changelist", "#pgqueue-rows", "#changelist-form .results"),
    ],
)
def test_what_is_scrolled_sideways_stays_there(name: str, part: str, box: str, window: Open) -> None:
    page = show(window, address(name), "phone", fresh=True)
    page.locator(box).evaluate("box => { box.scrollLeft = 60 }")
    show_anew(page, part)
    assert page.locator(box).evaluate("box => box.scrollLeft") == 60


@pytest.mark.parametrize("how", ["by the button", "in a hidden tab"])
def test_nothing_is_read_while_nobody_wants_it(how: str, window: Open) -> None:
    page = overview(window)
    if how == "by the button":
        page.get_by_role("button", name="Pause refreshing").click()
    else:
        page.evaluate("Object.defineProperty(document, 'hidden', {get: () => true})")
    with nothing_is_read(page):
        let_time_pass(page)
    if how == "by the button":
        with page.expect_request("**"):
            page.get_by_role("button", name="Refresh again").click()
            let_time_pass(page)


def test_it_says_so_when_the_session_has_ended(window: Open) -> None:
    page = overview(window)
    page.context.clear_cookies()
    note = page.locator("[data-pgqueue-ended]").first
    assert not note.is_visible()
    let_time_pass(page)
    note.wait_for()


@pytest.mark.parametrize("look", ["light", pytest.param("phone", marks=pytest.mark.long)])
def test_charts_are_drawn_and_fit(look: str, window: Open) -> None:
    page = window(look)
    page.goto(address("job_overview"), wait_until="networkidle")
    canvases = page.locator("#pgqueue-graphs canvas")
    assert canvases.count() >= 2
    for number in range(canvases.count()):
        assert canvases.nth(number).evaluate(DRAWN)
    page.set_viewport_size({"width": 700, "height": 900})
    page.wait_for_function(FITS)


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
    queues._shared.clear()
    page = show(window, address("job_changelist"))
    running = page.locator("#pgqueue-count-running")
    before = int(running.inner_text().replace(",", ""))
    page.keyboard.press("j")
    assert focused(page) == str(old.pk)

    new = JobFactory.create(queue_name="list", running=True)
    queues._shared.clear()
    see(page, new)
    assert focused(page) == str(old.pk), "the cursor stays with its row"
    assert int(running.inner_text().replace(",", "")) == before + 1

    page.keyboard.press("x")
    with nothing_is_read(page):
        newest = JobFactory.create(queue_name="list", running=True)
        an_hour_later(page)
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
    page = show(window, f"{address('job_changelist')}?queue=short")
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


@pytest.mark.parametrize("kind", ["worker", "queue", "schedule", "limit", "pause"])
def test_every_list_shows_itself_anew_and_loses_no_selection(
    kind: str, window: Open, news: Callable[[], None]
) -> None:
    news()  # so that the list of pauses has a row
    page = show(window, address(f"{kind}_changelist"), fresh=True)
    show_anew(page, "#pgqueue-rows")
    if page.locator("input.action-select").count():
        page.locator("input.action-select").first.check()
        with nothing_is_read(page):
            let_time_pass(page)
        assert page.locator("input.action-select").first.is_checked()


def read_anew(page: Page) -> None:
    """Let one read be due, and wait for its answer."""
    with page.expect_response(lambda answer: answer.request.resource_type == "fetch") as found:
        page.clock.fast_forward("01:00:00")
    found.value.finished()


def test_the_page_of_a_job_shows_itself_anew_until_the_job_has_ended(window: Open) -> None:
    error = {"attempt": 1, "class": "shop.Down", "message": "m", "traceback": "T\n" * 90}
    job = JobFactory.create(attempts=1, errors=[error])
    page = show(window, change(job), fresh=True)
    page.locator("#attempt-1 summary").focus()
    if page.locator("#attempt-1[open]").count():
        page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    page.locator("#pgqueue-now").evaluate("part => { part.dataset.old = 'yes' }")
    read_anew(page)
    page.locator("#pgqueue-now:not([data-old])").wait_for()
    assert page.locator("#attempt-1[open]").count() == 1
    assert page.evaluate("document.activeElement.localName") == "summary"
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#attempt-1 pre'))")
    Job.objects.filter(pk=job.pk).update(errors=[{**error, "message": REASON}])
    read_anew(page)
    assert REASON not in page.content(), "a user copies the traceback"
    page.evaluate("getSelection().removeAllRanges()")
    read_anew(page)
    page.get_by_text(REASON).first.wait_for()

    assert page.get_by_role("button", name="Cancel", exact=True).count() == 1
    cancel(job)
    read_anew(page)
    page.locator("#pgqueue-now:not([data-pgqueue-source])").wait_for()
    assert page.get_by_role("button", name="Cancel", exact=True).count() == 0
    with nothing_is_read(page):
        an_hour_later(page)


def test_a_search_for_text_is_not_repeated(window: Open) -> None:
    page = show(window, f"{address('job_changelist')}?q=no+such+text&status=running")
    with nothing_is_read(page):
        an_hour_later(page)


def test_from_a_batch_through_its_workflow_to_a_job(window: Open) -> None:
    page = window(user="viewer")
    page.goto(change(JobBatch.objects.get(name="demo: orders of Monday")))
    with page.expect_navigation():
        page.locator("#content a[href$='/workflow/']").first.click()
    assert page.locator("svg a").count() >= 4
    assert page.locator("svg path.pgqueue-arrow").count() >= 3
    boxes = [str(each.bounding_box()) for each in page.locator("svg .pgqueue-box").all()]
    assert len(set(boxes)) == len(boxes)
    assert not page.locator("#pgqueue-workflow-table").is_visible()
    page.locator("svg a[href*='/job/']").first.focus()
    before = focused(page)
    page.locator("#pgqueue-workflow-now").evaluate(
        "part => Object.assign(part.dataset, {pgqueuePause: '1', old: 'yes'})"
    )
    page.wait_for_selector("#pgqueue-workflow-now:not([data-old]) svg a")
    assert focused(page) == before
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert "/job/" in page.url


def test_without_a_script_charts_and_a_workflow_are_tables(window: Open) -> None:
    page = window("plain")
    page.goto(address("job_overview"))
    page.locator("#pgqueue-graphs figure summary").first.click()
    assert page.locator("#pgqueue-graphs tbody tr").first.is_visible()
    page.goto(address_of("jobbatch_workflow", JobBatch.objects.get(name="demo: orders of Monday").pk))
    assert page.locator("#pgqueue-workflow-table").is_visible()
    assert not page.locator("#pgqueue-drawing-box").is_visible()


def test_a_search_that_has_found_nothing_goes_on_until_its_end_or_a_key(
    window: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "PATIENCE", 0.0)  # one window
    monkeypatch.setattr(search, "WINDOW_OF_SCAN", max(1, ROWS // 4))
    page = window()
    page.goto(f"{address('job_changelist')}?q=no+such+text+anywhere")
    page.get_by_text("Nothing found.").wait_for()
    assert "?p=" in page.url
    page.add_init_script("addEventListener('load', () => dispatchEvent(new KeyboardEvent('keydown')))")
    page.goto(f"{address('job_changelist')}?q=no+such+text+anywhere")
    page.wait_for_timeout(1000)  # five times as long as until the next page
    assert "?p=" not in page.url
    page.get_by_text("Search on").click()
    page.wait_for_url("**p=*")
