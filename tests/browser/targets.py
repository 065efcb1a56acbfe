"""What can be tapped on a phone is large enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["small"]

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


def small(page: Page) -> list[str]:
    """Return what is smaller than 24 px on a phone."""
    found: list[str] = page.evaluate(_SMALL)
    return found
