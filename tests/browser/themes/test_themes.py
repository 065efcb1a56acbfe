"""Each page with the theme of the settings, in light and dark, on a screen and on a phone: the bar leads to
all pages, what is written and what can be pressed is seen, and the page fits. Pictures are in ``var/themes``.

``tox run -e themes`` runs this with each theme.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings

from tests.browser.faults import axe, overflow
from tests.browser.hands import NAMES, address, is_page
from tests.browser.test_pages import DJANGO, SETTLED

if TYPE_CHECKING:
    from tests.browser.conftest import Open
    from tests.browser.faults import Faults

pytestmark = pytest.mark.themes

THEME = settings.SETTINGS_MODULE.rpartition(".")[2]
FOLDER = Path(__file__).resolve().parents[3] / "var" / "themes" / THEME

#: Of a text and what is behind it. Links and hints of these themes do not have the 4.5 of WCAG 2.1. The
#: palest are those of grappelli; what cannot be read has 1.
LEAST_CONTRAST = 2.4
_PALE = """
    async least => {
        const found = await axe.run({include: document, exclude: ["tbody tr:nth-child(n+5)"]},
            {runOnly: ["color-contrast"], resultTypes: ["violations"]});
        return found.violations.flatMap(each => each.nodes)
            .map(node => [node.any[0].data.contrastRatio, node.html.slice(0, 160)])
            .filter(([ratio]) => ratio < least);
    }
"""
# What can be pressed, and is cut off or has no size.
_CUT = """
    () => [...document.querySelectorAll("[class^=pgqueue-] :is(a, button), button[class*=pgqueue-]")]
        .filter(each => each.checkVisibility({visibilityProperty: true, opacityProperty: true}))
        .filter(each => each.innerText?.trim())
        .filter(each => each.localName === "button"
            ? each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 1
            : !each.getClientRects().length)
        .map(each => each.outerHTML.slice(0, 160))
"""


def look_at(page: Any, name: str, look: str) -> list[Any]:
    """Return what is wrong with the page as it is shown, and save its picture."""
    page.evaluate(SETTLED)
    FOLDER.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=FOLDER / f"{name}-{look}.png", full_page=True)
    axe(page, ["color-contrast"])  # it is loaded
    # Forms of grappelli are 960 px wide or more.
    wide = [] if (THEME, look) == ("grappelli", "phone") else overflow(page)
    return [*wide, *page.evaluate(_PALE, LEAST_CONTRAST), *page.evaluate(_CUT)]


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith(DJANGO)])
def test_a_page_with_the_theme(name: str, window: Open, faults: Faults) -> None:
    path = address(name)
    if not is_page(path):
        return
    found = {}
    for look in ("light", "dark", "phone"):
        page = window(look, reduced_motion="reduce")
        page.goto(path)
        bars = page.locator(".pgqueue-nav")
        assert bars.count() == 1
        assert bars.locator("a").count() == 11
        assert bars.is_visible()
        found[look] = look_at(page, name, look)
    ours = [each for each in faults if "pgqueue" in each]
    faults.clear()  # what a theme does is not ours
    assert {look: wrong for look, wrong in found.items() if wrong} == {}
    assert ours == []
