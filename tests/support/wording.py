"""Texts that people read, whole, compared with those on record in ``__snapshots__`` beside the test.

A test says ``assert text == wording``. ``python3 dev.py test --snapshot-update FOLDER`` writes the texts of
this folder afresh, and the reviewer reads the difference. What changes from run to run has a name instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from html.parser import HTMLParser
from typing import Any, ClassVar

import django
import pytest
from django.core.checks import CheckMessage
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.amber import AmberSnapshotExtension

#: What is another in each run, and what stands for it.
PASSING = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"(?<!\d)20\d\d-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?"), "<time>"),
    (
        re.compile(r"\b[A-Z][a-z]{2,8}\.? \d\d?, 20\d\d(, (\d\d?(:\d\d)? [ap]\.m\.|noon|midnight))?"),
        "<time>",
    ),
    (re.compile(r"\bat \d\d:\d\d(:\d\d)?\b"), "at <time>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|milliseconds?|µs)\b"), "<ms>"),
    (re.compile(r"\b(pid|process) \d+\b"), r"\1 <pid>"),
    (re.compile(r"\btest_\w+?(_gw\d+)\b"), "<database>"),
    (re.compile(r"\bInvalidTaskError\b"), "InvalidTask"),  # its name in the package that Django 5.2 needs
)


def lasting(text: str, **names: object) -> str:
    """Return `text` with a name for what passes. `names` are further values, each with its name."""
    for name, value in names.items():
        text = text.replace(str(value), f"<{name}>")
    for pattern, name in PASSING:
        text = pattern.sub(name, text)
    return text


class Texts(AmberSnapshotExtension):
    """Compares texts, and structures of them, by what lasts of them."""

    def serialize(self, data: Any, **options: Any) -> str:
        """Return what is on record for `data`."""
        return lasting(super().serialize(data, **options))


#: A form of an older Django has the help below its field.
of_forms = pytest.mark.skipif(django.VERSION < (6, 1), reason="the record has the form of the newest Django")


@pytest.fixture
def wording(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """The texts of this test that are on record."""
    return snapshot.use_extension(Texts)


def shown(page: str | bytes) -> str:
    """Return what a reader of the page sees in its content: a line for each block and each row of a table."""
    reader = _Reader()
    reader.feed(page.decode() if isinstance(page, bytes) else page)
    lines = (re.sub(r"\s+", " ", line).strip(" |") for line in "".join(reader.parts).split("\n"))
    return "\n".join(line for line in lines if line)


class _Reader(HTMLParser):
    """Collects texts, with the address of each link and the name and value of each field."""

    APART: ClassVar = set(
        "address article dd div dl dt fieldset form h1 h2 h3 h4 li main ol p pre section".split()
    )
    APART |= set(
        "caption details footer header legend nav option summary table tbody thead tr ul br hr label".split()
    )
    VOID: ClassVar = set("area base br col embed hr img input link meta source track wbr".split())
    UNSEEN: ClassVar = {"script", "style", "template", "title"}

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.depth = 0  # of elements since the content began
        self.unseen = 0
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if found.get("id") == "content":
            self.depth = 1
        elif self.depth and tag not in self.VOID:
            self.depth += 1
        if tag in self.UNSEEN:
            self.unseen += 1
        if not self.depth or self.unseen:
            return
        if tag in self.APART:
            self.parts.append("\n")
        elif tag in {"td", "th"}:
            self.parts.append(" | ")
        if tag == "a":
            self.links.append(found.get("href") or "")
        elif tag == "input" and found.get("type") != "hidden":
            marks = "".join(f" {mark}" for mark in ("checked", "disabled") if mark in found)
            self.parts.append(
                f" [{found.get('type') or 'text'} {found.get('name')}={found.get('value') or ''}{marks}] "
            )
        elif tag in {"select", "textarea", "button"}:
            self.parts.append(f" [{tag} {found.get('name') or ''}] ")
        elif tag == "option" and "selected" in found:
            self.parts.append("* ")

    def handle_endtag(self, tag: str) -> None:
        if self.depth and tag not in self.VOID:
            self.depth -= 1
            if not self.unseen:
                if tag == "a" and self.links:
                    self.parts.append(f" <{self.links.pop()}> ")
                elif tag in self.APART:
                    self.parts.append("\n")
        if tag in self.UNSEEN:
            self.unseen -= 1

    def handle_data(self, data: str) -> None:
        if self.depth and not self.unseen:
            self.parts.append(data.replace("\n", " "))


def refusals(error: type[Exception], *calls: Callable[[], object]) -> str:
    """Return what each of the calls says when it is refused, in a line for each."""
    said = []
    for call in calls:
        with pytest.raises(error) as caught:
            call()
        said.append(re.sub(r" at 0x\w+", "", str(caught.value)))
    return "\n".join(said)


def text_of(messages: Iterable[CheckMessage]) -> str:
    """Return the messages as one text. Each must have a hint."""
    found = list(messages)
    assert all(each.msg.strip() and each.hint for each in found)
    return "\n".join(f"{each.id}: {each.msg}\n    HINT: {each.hint}" for each in found)
