"""What is wrong with a page: what the browser complains about, what axe finds, what does not fit, and what is
too small to be tapped.
"""

from __future__ import annotations

import re
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Error, Page, Request, Response

__all__ = ["SEEN", "Faults", "axe", "bare_times", "overflow", "small"]

#: What a person with a disability cannot use, or can hardly use.
SERIOUS = {"serious", "critical"}

#: What Django's own templates do, and this package cannot mend: the label of the search is a picture.
DJANGO = {("label-title-only", 'id="searchbar"')}

#: The rules about what is seen. The others are about elements and their names, which no width and no color
#: changes.
SEEN = ["color-contrast", "link-in-text-block", "scrollable-region-focusable"]

_RUN_AXE = """
    async rules => {
        // The rows of a list are alike, and the contrast of each takes time.
        const where = {include: document, exclude: ["tbody tr:nth-child(n+5)"]};
        const found = await axe.run(where, {resultTypes: ["violations"], ...(rules && {runOnly: rules})});
        return found.violations.map(each => [
            each.impact, each.id, each.help, each.nodes.slice(0, 3).map(node => node.html.slice(0, 200)),
        ]);
    }
"""
# The body may not be wider than the window. What is wide scrolls in a box of its own.
_WIDE = """
    () => {
        const page = document.scrollingElement, most = window.innerWidth;
        if (page.scrollWidth <= most) {
            return [];
        }
        const inside = element => {
            const box = element.parentElement;
            return box && box !== document.body
                && (getComputedStyle(box).overflowX !== "visible" || inside(box));
        };
        const wide = [...document.querySelectorAll("body *")].filter(
            each => each.getBoundingClientRect().right > most + 1 && !inside(each));
        const first = wide.slice(0, 3).map(each => each.outerHTML.slice(0, 160));
        return [`${page.scrollWidth} of ${most} px`, ...first];
    }
"""


# A date with a time, as this package or Django writes it.
_BARE_TIMES = r"""
    () => {
        const texts = document.createTreeWalker(document.querySelector("#content"), NodeFilter.SHOW_TEXT);
        const found = [];
        while (texts.nextNode()) {
            const {data, parentElement} = texts.currentNode;
            const time = /\d{4}-\d\d-\d\d[ T]\d\d:\d\d|\d{4}, (\d+(:\d\d)? [ap]\.m\.|noon|midnight)/;
            if (time.test(data) && !parentElement.closest("time, pre, code, textarea, .u-legend")) {
                found.push(data.trim().slice(0, 160));
            }
        }
        return found;
    }
"""


# What fingers can hardly tap. A link within a sentence may be as low as its line (WCAG 2.5.8), and the arrow
# that sorts is Django's.
_SMALL = """
    () => {
        const all = "a[href], button, input:not([type=hidden]), select, textarea, summary";
        const elements = [...document.querySelectorAll(`#content :is(${all}), .pgqueue-nav a`)];
        const found = elements.filter(each => {
            const {width, height} = each.getBoundingClientRect(), style = getComputedStyle(each);
            const around = each.parentElement.textContent.trim().length - each.textContent.trim().length;
            const isInSentence = style.display === "inline" && around > 3;
            const isShown = width && height && style.visibility !== "hidden";
            return isShown && !isInSentence && !each.closest("svg, .sortoptions")
                && (width < 23.9 || height < 23.9);
        });
        return found.slice(0, 5).map(each => {
            const {width, height} = each.getBoundingClientRect();
            return `${width.toFixed()} x ${height.toFixed()} px: ${each.outerHTML.slice(0, 160)}`;
        });
    }
"""


class Faults(list[str]):
    """Everything that the browser complains about while it shows pages."""

    def watch(self, page: Page) -> None:
        """Listen to a page."""
        page.on("console", self._console)
        page.on("pageerror", self._error)
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)

    def _console(self, message: ConsoleMessage) -> None:
        # A violation of the policy is an error of the console. A status of an answer is told by `_answered`.
        if message.type in {"error", "warning"} and "Failed to load resource" not in message.text:
            self.append(f"console: {message.text}")

    def _error(self, error: Error) -> None:
        self.append(f"script: {error}")

    def _failed(self, request: Request) -> None:
        # A request for a live region ends when the browser leaves the page.
        if request.failure != "net::ERR_ABORTED":
            self.append(f"request: {request.url} {request.failure}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.append(f"answer: {response.url} {response.status}")


def axe(page: Page, rules: list[str] | None = None) -> list[Any]:
    """Return the serious violations that axe finds, of all rules or of these. It runs outside of the content
    security policy.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(_axe_source())
    return [
        (impact, rule, text, places)
        for impact, rule, text, places in page.evaluate(_RUN_AXE, rules)
        if impact in SERIOUS and not any((rule, name) in DJANGO for name in _names(places))
    ]


def _names(places: list[str]) -> set[str]:
    return set(re.findall(r'id="[^"]*"', " ".join(places)))


def _found(script: str, page: Page) -> list[str]:
    found: list[str] = page.evaluate(script)
    return found


#: What makes the page scroll sideways.
overflow = partial(_found, _WIDE)
#: The texts with a time that is no ``<time>``. Data and logs may have any text, and the legend of a chart has
#: that of its table.
bare_times = partial(_found, _BARE_TIMES)
#: What is smaller than 24 px on a phone.
small = partial(_found, _SMALL)


@cache
def _axe_source() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
