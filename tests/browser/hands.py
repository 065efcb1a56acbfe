"""What a person does on a page: press buttons, tick rows, read the message."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from django_pgqueue.models import Job

__all__ = ["REASON", "SURE", "delete", "press", "said", "tick"]

#: What they give as a reason, which pages must escape.
REASON = "a <b>test</b>"

#: The button of most pages that ask first.
SURE = "^yes"


def press(page: Page, name: str, key: str = "") -> None:
    """Press the button with this name, by the mouse or by a key, and wait for the next page."""
    button = page.locator("#content").get_by_role("button", name=re.compile(name, re.IGNORECASE)).first
    with page.expect_navigation():
        if key:
            button.focus()
            page.keyboard.press(key)
        else:
            button.click()


def said(page: Page) -> str:
    """Return the message above the page."""
    return page.locator(".messagelist").inner_text()


def tick(page: Page, rows: Iterable[Job | int | str], action: str) -> None:
    """Select rows of a list, choose an action, and start it."""
    for row in rows:
        page.locator(f"input.action-select[value='{getattr(row, 'pk', row)}']").check()
    page.select_option("select[name=action]", action)
    press(page, "^(run|go)$")


def delete(page: Page) -> None:
    """Delete the row of a page, with Django's own pages."""
    with page.expect_navigation():
        page.locator("#content a.deletelink").click()
    press(page, SURE)
