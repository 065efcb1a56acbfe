"""Pages with the Tab key only: everything is reached, in the order in which it is read, and can be seen."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from django_pgqueue.admin import JobAdmin
from django_pgqueue.models import Job
from tests.support.factories import JobFactory

from .addresses import address, change
from .hands import tick

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from .conftest import Open

pytestmark = pytest.mark.browser

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
        // Each line of a text is a box. Another element may not cover them all.
        const isSeen = () => [...here.getClientRects()].some(box => {
            const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
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
    for _step in range(len(names) + 20):
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


@pytest.mark.parametrize("look", ["light", "phone"])
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
