"""What a person does on a page: press buttons, tick rows, read the message. And the actions of the admin:
their names, where they are offered, and which ones a window has sent.

An action is a POST to a page of this package. Its name is that of the URL: ``job_retry``. If the URL has
several actions, the one of the list, or the button, follows: ``job_changelist retry_jobs``, ``job_overview
pause``. A confirmation has the name of what it confirms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urljoin, urlsplit

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import Model
from django.urls import Resolver404, URLPattern, URLResolver, resolve, reverse

from django_pgqueue.models import FailureGroup, Job, JobBatch, Limit, Pause, Queue, Schedule, Worker

if TYPE_CHECKING:
    from django.db.models import Model
    from django.test import Client
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


def delete(page: Page) -> None:
    """Delete the row of a page, with Django's own pages."""
    with page.expect_navigation():
        page.locator("#content a.deletelink").click()
    press(page, SURE)


# --- The actions of the admin


#: The values of these fields tell the actions of one URL apart.
TELLING = ("action", "button")


def name_of(url: str, fields: Mapping[str, str]) -> str | None:
    """Return the name of the action that a POST with these fields is; None if it is not of this package."""
    try:
        match: Any = resolve(urlsplit(url).path)
    except Resolver404:
        return None
    name = match.url_name or ""
    if not name.startswith(PREFIX):
        return None
    return " ".join([name.removeprefix(PREFIX), *filter(None, map(fields.get, TELLING))])


class Pressed(set[str]):
    """The names of the actions that pages have sent."""

    def note(self, request: Request) -> None:
        """Add the action of a request."""
        if request.method == "POST":
            name = name_of(request.url, dict(parse_qsl(request.post_data or "")))
            self.update([name] if name else [])


def offered(client: Client) -> set[str]:
    """Return the actions for which the pages offer a button to a user, for rows of each kind."""
    found: set[str | None] = set()
    for path in {*map(address, NAMES), *map(change, _rows()), *_groups()}:
        answer = client.get(path)
        if answer.status_code == 200:
            found |= _Forms(path).names(answer.content.decode())
    return {name for name in found if name}


def buttons(client: Client) -> set[str]:
    """Return the addresses that answer to a POST only."""
    return {path for path in map(address, NAMES) if client.get(path).status_code == 405}


def _rows() -> Iterator[Model]:
    """Yield some rows of each kind, and jobs in each state."""
    for model in (Worker, Pause, Schedule, JobBatch, Limit, Queue):
        yield from model._default_manager.order_by("pk")[:5]
    for status in Job.Status.values:
        yield from Job.objects.filter(status=status, queue_name="demo-flows").order_by("-pk")[:1]


def _groups() -> Iterator[str]:
    for muted in (True, False):
        for group in FailureGroup.objects.filter(muted_at__isnull=not muted)[:1]:
            yield page("job_failure", group.pk)


class _Forms(HTMLParser):
    """The forms of a page that send a POST, and what their buttons send."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self._page = page
        self._target: str | None = None
        self._fields: dict[str, str] = {}
        self._choice = ""
        self._found: set[str | None] = set()

    def names(self, html: str) -> set[str | None]:
        """Return the names of the actions that a page offers."""
        self.feed(html)
        return self._found

    def handle_starttag(self, tag: str, given: list[tuple[str, str | None]]) -> None:
        """Collect the fields of the form, and note what each button and each choice would send."""
        values = {name: value or "" for name, value in given}
        if tag == "form" and values.get("method", "").lower() == "post":
            self._target, self._fields = urljoin(self._page, values.get("action", "")), {}
        elif self._target is None:
            return
        elif tag == "input" and values.get("type") == "hidden":
            self._fields[values["name"]] = values.get("value", "")
        elif tag == "select":
            self._choice = values.get("name", "")
        elif tag == "option" and self._choice in TELLING and values.get("value"):
            self._note({self._choice: values["value"]})
        elif tag == "button" or values.get("type") == "submit":
            self._press(values)

    def handle_endtag(self, tag: str) -> None:
        """Leave the form, or the choice."""
        if tag == "form":
            self._target = None
        elif tag == "select":
            self._choice = ""

    def _press(self, button: dict[str, Any]) -> None:
        # The list has one button for all of its actions.
        if button.get("type") != "button" and button.get("name") != "index":
            self._note({button.get("name", ""): button.get("value", "")})

    def _note(self, more: Mapping[str, str]) -> None:
        assert self._target is not None
        self._found.add(name_of(self._target, {**self._fields, **more}))


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
    known: dict[str, Callable[[str], Any]] = {
        "object_id": _object,
        "fingerprint": lambda _: _failed().error_fingerprint,
        "task_path": lambda _: _failed().task_path,
        "path": lambda _: _failed().task_path,
    }
    if part not in known:
        raise LookupError(f"Add to known a value for <{part}> in the address of {name}.")
    return known[part](name)


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
