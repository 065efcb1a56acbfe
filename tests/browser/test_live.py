"""Pages that show themselves anew, and their charts. The clock of the page runs as fast as a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from django_pgqueue import pause, resume

from .addresses import address

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


def overview(window: Open, look: str = "light") -> Page:
    page = window(look, fresh=True)
    page.clock.install()
    page.goto(address("job_overview"), wait_until="networkidle")
    return page


def let_time_pass(page: Page) -> None:
    page.clock.run_for(LONG)
    page.wait_for_load_state("networkidle")


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
        ("#pgqueue-verdict", "#pgqueue-verdict button[value=resume]"),
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
        ("job_overview", "#pgqueue-failures-now", "#pgqueue-failures-now [role=region]"),
        ("job_changelist", "#pgqueue-rows", "#changelist-form .results"),
    ],
)
def test_what_is_scrolled_sideways_stays_there(name: str, part: str, box: str, window: Open) -> None:
    page = window("phone", fresh=True)
    page.clock.install()
    page.goto(address(name), wait_until="networkidle")
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
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    let_time_pass(page)
    assert requests == []
    if how == "by the button":
        page.get_by_role("button", name="Refresh again").click()
        let_time_pass(page)
        assert requests


def test_it_says_so_when_the_session_has_ended(window: Open) -> None:
    page = overview(window)
    page.context.clear_cookies()
    note = page.locator("[data-pgqueue-ended]").first
    assert not note.is_visible()
    let_time_pass(page)
    note.wait_for()


@pytest.mark.parametrize("look", ["light", "phone"])
def test_charts_are_drawn_and_fit(look: str, window: Open) -> None:
    page = window(look)
    page.goto(address("job_overview"), wait_until="networkidle")
    canvases = page.locator("#pgqueue-graphs canvas")
    assert canvases.count() >= 2
    for number in range(canvases.count()):
        assert canvases.nth(number).evaluate(DRAWN)
    page.set_viewport_size({"width": 700, "height": 900})
    page.wait_for_function(FITS)


def test_without_a_script_the_figures_are_a_table(window: Open) -> None:
    page = window("plain")
    page.goto(address("job_overview"))
    page.locator("#pgqueue-graphs summary").first.click()
    assert page.locator("#pgqueue-graphs tbody tr").first.is_visible()
