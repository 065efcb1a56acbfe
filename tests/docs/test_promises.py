"""What the pages promise: each promise is in the list, is said where the list says, and has a test."""

from __future__ import annotations

import re

from tests.support.promises import DOCS, PAGE, holders, page, plain, promises, sections

UPDATE = "run: python3 dev.py promises"

#: Sections of other pages with these names are about guarantees.
GUARANTEES = {
    "guarantees",
    "the-guarantee",
    "what-is-guaranteed",
    "what-you-can-rely-on",
    "what-holds-on-every-page",
}

#: What such sections say besides promises that a test can hold.
OTHER = (
    "The page shows the states of the moment when it was read.",  # what nobody could see otherwise
    "Tasks without a panel or links cost nothing",  # a cost
)


def test_the_page_of_promises_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), UPDATE


def test_a_name_is_one_promise() -> None:
    names = [promise.name for promise in promises()]
    assert sorted(names) == sorted({*names})


def test_each_promise_has_a_test_and_each_mark_is_a_promise() -> None:
    assert {holder.promise for holder in holders()} == {promise.name for promise in promises()}


def test_the_pages_say_what_is_promised() -> None:
    missing = []
    for promise in promises():
        path, _, section = promise.place.partition("#")
        if plain(promise.words) not in plain(sections(DOCS / path).get(section, "")):
            missing.append(promise)
    assert missing == []


def test_each_promise_of_the_page_of_reliability_is_in_the_list() -> None:
    text = sections(DOCS / "explanation" / "reliability.md")
    bold = re.findall(r"^\*\*(.+?)\*\*", text["promised"] + text["when-something-dies"], re.MULTILINE)
    assert len(bold) >= 10
    listed = [plain(promise.words) for promise in promises()]
    missing = [words for words in map(plain, bold) if not any(words.rstrip(".") in each for each in listed)]
    assert missing == []


def test_each_point_of_a_section_of_guarantees_is_in_the_list() -> None:
    missing, seen = [], set()
    for path in sorted(DOCS.rglob("*.md")):
        for anchor, text in sections(path).items():
            if anchor not in GUARANTEES or "decisions" in path.parts:
                continue
            place = f"{path.relative_to(DOCS)}#{anchor}"
            listed = [plain(promise.words) for promise in promises() if promise.place == place]
            seen.add(place)
            points = re.findall(r"^- (.+(?:\n  .+)*)", text, re.MULTILINE) or [text]
            missing += [
                f"{place}: {point}"
                for point in map(plain, points)
                if not any(words in point for words in (*listed, *OTHER))
            ]
    assert len(seen) > 15
    assert missing == []
