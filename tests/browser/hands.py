"""What a person does on a page: press buttons, tick rows, read the message. And the pages and actions of the
admin: their names, their addresses, and which actions a window has sent.

An action is a POST to a page of this package. Its name is that of the URL: ``job_retry``. If the URL has
several actions, the one of the list, or the button, follows: ``job_changelist retry_jobs``, ``job_overview
pause``. A confirmation has the name of what it confirms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import Client
from django.urls import Resolver404, URLPattern, URLResolver, resolve, reverse

from django_pgqueue.models import Job, JobBatch, Limit, Queue, Worker

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request

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


def answer(path: str) -> Any:
    """Return what the server answers to a superuser."""
    client = Client(headers={"host": "127.0.0.1"})
    client.force_login(User.objects.get(username="root"))
    return client.get(path)


def is_page(path: str) -> bool:
    """Return whether a look is answered by a page, and not by a part that is shown anew, or not at all: some
    addresses are for actions, or for nobody.
    """
    found = answer(path)
    assert found.status_code in {200, 302, 403, 405}
    return found.status_code == 200 and b"</title>" in found.content


def delete(page: Page) -> None:
    """Delete the row of a page, with Django's own pages."""
    with page.expect_navigation():
        page.locator("#content a.deletelink").click()
    press(page, SURE)


class Pressed(set[str]):
    """The names of the actions that pages have sent."""

    def note(self, request: Request) -> None:
        """Add the action of a request, if it is one of this package."""
        if request.method != "POST":
            return
        try:
            match: Any = resolve(urlsplit(request.url).path)
        except Resolver404:
            return
        name = match.url_name or ""
        if name.startswith(PREFIX):
            fields = parse_qs(request.post_data or "")
            told = [fields[field][-1] for field in ("action", "button") if field in fields]
            self.add(" ".join([name.removeprefix(PREFIX), *told]))


# --- All pages of the queue in the admin, found by the names of their URLs


PREFIX = "django_pgqueue_"


def _patterns(found: list[Any]) -> list[URLPattern]:
    patterns: list[URLPattern] = []
    for each in found:
        patterns += _patterns(each.url_patterns) if isinstance(each, URLResolver) else [each]
    return [each for each in patterns if each.name and each.name.startswith(PREFIX)]


_PATTERNS = {str(pattern.name): pattern for pattern in _patterns(admin.site.get_urls())}

#: The names, without the prefix of the app.
NAMES = sorted(name.removeprefix(PREFIX) for name in _PATTERNS)


def address(name: str) -> str:
    """Return the address of a page, with values from the data of the demonstration."""
    parts = list(_PATTERNS[PREFIX + name].pattern.converters)
    return reverse(f"admin:{PREFIX}{name}", args=[_value(name, part) for part in parts])


def change(row: Model) -> str:
    """Return the address of the page of a row."""
    return page(f"{row._meta.model_name}_change", quote(str(row.pk)))


def page(name: str, *parts: Any) -> str:
    """Return the address of a page, with these parts."""
    return reverse(f"admin:{PREFIX}{name}", args=parts)


def _value(name: str, part: str) -> Any:
    known: dict[str, Callable[[], Any]] = {
        "object_id": lambda: _object(name),
        "fingerprint": lambda: _failed().error_fingerprint,
        "task_path": lambda: _failed().task_path,
        "path": lambda: _failed().task_path,
    }
    assert part in known, f"Add to known a value for <{part}> in the address of {name}."
    return known[part]()


def _failed() -> Job:
    return Job.objects.filter(status="failed", queue_name__startswith="demo-").latest("pk")


def _object(name: str) -> Any:
    """Return the key of a row that the page has something to say about."""
    model = apps.get_model("django_pgqueue", name.split("_")[0])
    if model is Queue:
        return "demo-orders"
    rows = model._default_manager.all()
    if model is JobBatch:
        rows = rows.filter(name__contains="Monday")
    if model is Limit:  # one that can be deleted, if there is one
        return min(rows, key=lambda row: row.is_declared).pk
    if model is Worker:
        rows = rows.filter(host="demo-app-1", pid=4211)
    if model is Job:
        wanted = {"cancel": "pending", "run_now": "pending", "edit": "pending", "extend": "running"}
        rows = rows.filter(status=wanted.get(name.split("_")[1], "failed"), queue_name__startswith="demo-")
    return rows.latest("pk").pk
