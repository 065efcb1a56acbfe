"""The keys: a walk without a mouse, and what they leave alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from .addresses import address
from .faults import axe

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
