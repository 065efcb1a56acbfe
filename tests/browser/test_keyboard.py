"""Pages without a mouse: the keys, what they leave alone, and the Tab key, which reaches everything in the
order in which it is read.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.admin import JobAdmin
from django_pgqueue.models import Job
from tests.support.factories import JobFactory

from .faults import axe
from .hands import address, change, tick

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from .conftest import Open

pytestmark = pytest.mark.browser


def focused(page: Page) -> str:
    """Return the id or the text of what has the focus."""
    return str(page.evaluate("document.activeElement.id || document.activeElement.innerText"))


def selected(page: Page) -> int:
    return page.locator("input.action-select:checked").count()


def test_from_page_to_page_and_through_a_list(window: Open) -> None:
    page = window()
    page.goto(address("job_overview"))
    with page.expect_navigation():
        page.keyboard.type("gj")
    assert page.url.endswith(address("job_changelist"))
    page.keyboard.press("/")
    assert focused(page) == "searchbar"
    page.keyboard.type("jxg?")  # it is typed, and nothing else
    assert page.input_value("#searchbar") == "jxg?"
    assert selected(page) == 0
    page.locator("#searchbar").evaluate("field => field.blur()")

    links = page.locator("#result_list tbody th a")
    ids = [links.nth(number).inner_text() for number in range(3)]
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert focused(page) == ids[1]
    page.keyboard.press("x")
    assert selected(page) == 1
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("k")
    assert focused(page) == ids[0]
    page.keyboard.press("k")  # there is no row before
    assert focused(page) == ids[0]
    with page.expect_navigation():
        page.keyboard.press("o")
    assert re.search(rf"/{ids[0]}/change/", page.url)


@pytest.mark.parametrize("name", ["job_failures", "jobstat_changelist"])
def test_the_keys_go_through_lists_that_are_not_of_a_model(name: str, window: Open) -> None:
    page = window()
    page.goto(address(name))
    links = page.locator("#content tbody th a")
    for number in range(2):
        page.keyboard.press("j")
        assert links.nth(number).evaluate("link => link === document.activeElement")
    with page.expect_navigation():
        page.keyboard.press("o")


def test_the_dialog_tells_the_keys_and_turns_them_off(window: Open) -> None:
    page = window("phone", fresh=True)
    page.goto(address("job_changelist"))
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    assert "search" in dialog.inner_text()
    assert axe(page) == []
    page.keyboard.type("gw")  # a dialog is open
    dialog.get_by_label("Use these keys").uncheck()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    page.locator("body").evaluate("body => document.activeElement.blur()")
    for key in ("?", "j"):
        page.keyboard.press(key)
    assert not dialog.is_visible()
    assert page.locator("#result_list tr:focus-within").count() == 0
    page.reload()
    page.get_by_role("button", name="Keys").click()
    assert not dialog.get_by_label("Use these keys").is_checked()


@pytest.mark.parametrize("modifier", ["Control", "Alt", "Meta"])
def test_keys_with_a_modifier_belong_to_the_browser(modifier: str, window: Open) -> None:
    page = window()
    page.goto(address("job_changelist"))
    page.keyboard.press(f"{modifier}+j")
    assert page.locator("#result_list tr:focus-within").count() == 0


# Numbers what the key should reach, in the order of the page, and notes how it looks without the focus. The
# key does not reach what is hidden, or in a closed box.
NUMBER = """
    () => {
        const look = element => {
            const style = getComputedStyle(element);
            return ["outline", "boxShadow", "borderColor", "backgroundColor", "color", "textDecorationLine"]
                .map(name => style[name]).join(" ");
        };
        const kinds = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]";
        const all = [...document.querySelectorAll(kinds)].filter(each =>
            each.checkVisibility({visibilityProperty: true}) && !each.disabled && each.tabIndex >= 0);
        Object.assign(window, {wanted: all, looks: all.map(look), look});
        const name = each => each.id || each.innerText || each.name || each.className;
        return all.map((each, number) => `${number} ${each.localName} ${name(each)}`.slice(0, 80));
    }
"""
# What has the focus: its number, and what is wrong with it.
FOCUSED = """
    async () => {
        const here = document.activeElement, number = window.wanted.indexOf(here), faults = [];
        if (number < 0) {
            return [number, here.localName, faults];
        }
        if (window.look(here) === window.looks[number]) {
            faults.push("looks as without the focus");
        }
        // Each line of a text is a box, maybe longer than the window. Another element may not cover all.
        const isSeen = () => [...here.getClientRects()].some(box => {
            const [top, bottom] = [Math.max(box.top, 0), Math.min(box.bottom, innerHeight)];
            const [x, y] = [(box.left + box.right) / 2, (top + bottom) / 2];
            const found = document.elementFromPoint(x, y);
            return found && (here.contains(found) || found.contains(here));
        });
        const patience = performance.now() + 10000;  // it may be scrolled smoothly
        while (!isSeen() && performance.now() < patience) {
            await new Promise(requestAnimationFrame);
        }
        if (!isSeen()) {
            const {x, y, width, height} = here.getBoundingClientRect();
            faults.push(`is out of sight at ${[x, y, width, height].map(Math.round)}`);
        }
        return [number, here.localName, faults];
    }
"""


def walk(page: Page) -> list[Any]:
    """Press Tab until the page is left. Return what is wrong with the way."""
    page.evaluate(
        "Object.defineProperty(document, 'hidden', {get: () => true})"
    )  # so that it is not refreshed
    names = page.evaluate(NUMBER)
    assert len(names) > 5
    way, faults = [], []
    for _step in range(len(names) + 60):  # a field for a time has a stop for each of its parts
        page.keyboard.press("Tab")
        number, kind, found = page.evaluate(FOCUSED)
        if number < 0:
            if kind == "body":
                break
            faults.append((kind, "has no place in the order"))
            continue
        way.append(number)
        faults += [(names[number], fault) for fault in found]
    missed = [names[number] for number in sorted(set(range(len(names))) - set(way))]
    backward = [names[later] for before, later in pairwise(way) if later < before]
    return [
        *faults,
        *((name, "is not reached") for name in missed),
        *((name, "too late") for name in backward),
    ]


def skip(page: Page) -> None:
    """Press the link that skips the bar at the top, and go on in the content."""
    page.keyboard.press("Tab")
    assert "skip" in page.evaluate("document.activeElement.className")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('#content').contains(document.activeElement)")


@pytest.mark.parametrize("name", ["job_changelist", "queue_changelist", "schedule_changelist"])
def test_the_first_row_is_reached_with_few_keys(name: str, window: Open) -> None:
    page = window()
    page.goto(address(name))
    page.keyboard.press("Tab")  # the link to the content, which Django has
    page.keyboard.press("Tab")
    assert focused(page).lower() == "skip to results"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('#result_list tbody tr').rowIndex") == 1


@pytest.mark.parametrize("look", ["light", pytest.param("phone", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["job_overview", "job_changelist", "job_change", "confirmation"])
def test_the_tab_key_reaches_everything_in_order(
    name: str, look: str, window: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobAdmin, "list_per_page", 5)
    page = window(look)
    if name == "confirmation":
        jobs = JobFactory.create_batch(2, queue_name=f"tab-{look}", scheduled=True)
        page.goto(f"{address('job_changelist')}?queue=tab-{look}")
        tick(page, jobs, "edit_jobs")
    elif name == "job_change":
        page.goto(change(Job.objects.filter(queue_name="demo-flows", status="failed").earliest("pk")))
    else:
        page.goto(address(name))
    if look == "light":
        skip(page)
        page.reload()
    assert walk(page) == []
