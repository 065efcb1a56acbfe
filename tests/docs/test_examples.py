"""The pages show the examples as they are tested, with all that they need."""

from __future__ import annotations

import builtins
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.examples import AUTODOC, BLOCK, DOCS, EXAMPLES, PAGES, ROOT, Page, Source, names_in
from tests.support.promises import PAGE, holders, page, plain, promises, sections

UPDATE = "run: python3 dev.py examples"


def test_the_pages_show_the_examples_as_they_are() -> None:
    assert [path for path in PAGES if Page(text := path.read_text()).updated() != text] == [], UPDATE


def test_every_example_is_on_a_page() -> None:
    shown = {source.path for path in PAGES for source in Page(path.read_text()).sources()}
    structure = {"__init__.py", "manage.py", "urls.py"}
    files = {path for path in EXAMPLES.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    # Others are parts of the sites in tests/wagtail.
    assert {path for path in files if path.name not in structure} == {
        path for path in shown if path.is_relative_to(EXAMPLES)
    }


def test_python_and_sql_on_the_pages_come_from_files_that_run() -> None:
    written_here = re.compile(r"^ *(?:```|:::)\{?(?:python|sql|code-block|literalinclude)\}?.*", re.MULTILINE)
    pages = {
        path: AUTODOC.sub("", BLOCK.sub("", path.read_text())) for path in PAGES if path.is_relative_to(DOCS)
    }
    assert [path for path, text in pages.items() if written_here.search(text)] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_shows_every_name_that_its_examples_use(path: Path) -> None:
    shown: defaultdict[Path, str] = defaultdict(str)
    for block in BLOCK.finditer(path.read_text()):
        source = Source(block["source"])
        if source.language == "python":
            lines = block[0].splitlines()[2:-2]
            shown[source.path] += "\n".join([line.removeprefix(block["margin"]) for line in lines] + [""])
    for file, code in shown.items():
        used, bound = names_in(code)
        assert used - bound - {*dir(builtins)} == set(), file.name


# --- What the pages promise


UPDATE_PROMISES = "run: python3 dev.py promises"

#: Sections of other pages with these names are about guarantees.
GUARANTEES = {
    "guarantees", "the-guarantee", "what-is-guaranteed", "what-you-can-rely-on", "what-holds-on-every-page",
}  # fmt: skip

#: What such sections say besides promises that a test can hold.
OTHER = (
    "The page shows the states of the moment when it was read.",  # what nobody could see otherwise
    "Tasks without a panel or links cost nothing",  # a cost
)


def test_the_page_of_promises_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), UPDATE_PROMISES


def test_a_name_is_one_promise() -> None:
    names = [promise.name for promise in promises()]
    assert sorted(names) == sorted({*names})


def test_each_promise_has_a_test_and_each_mark_is_a_promise() -> None:
    assert {holder.promise for holder in holders()} == {promise.name for promise in promises()}


def test_the_pages_say_what_is_promised() -> None:
    for promise in promises():
        path, _, section = promise.place.partition("#")
        assert plain(promise.words) in plain(sections(DOCS / path).get(section, "")), promise


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
