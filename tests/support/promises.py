"""What users are promised, and the tests that hold it: ``python3 dev.py promises`` writes the page about it.

`tests/promises.toml` has the promises, in the words of the pages. A test names those that it holds by
``@pytest.mark.promise("completed-once")``, with ``case=`` if one case of a table holds them, and a
scenario of the fault suite by its `promises`.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[1]
DOCS = TESTS.parent / "docs"
PAGE = DOCS / "contributing" / "promises.md"

HEAD = """\
# What is promised, and which test holds it

`python3 dev.py promises` writes this page. `tests/promises.toml` has the promises, with the words of the
pages where users read them. A test that holds one is marked with its name, as in
`@pytest.mark.promise("completed-once")`, and so is a scenario of
[the fault suite](../explanation/reliability.md#how-this-is-tested). Tests fail if a promise has no test, if
its page no longer says so, or if a section about guarantees says something that is not here.
"""


class Promise(NamedTuple):
    """A promise. `place` is the page and its section, as in ``howto/unique.md#guarantees``."""

    topic: str
    place: str
    name: str
    words: str


class Holder(NamedTuple):
    """A test, or a scenario, and the promise that it says it holds."""

    path: str
    test: str
    promise: str


def promises() -> list[Promise]:
    """Return the promises in the order of the page."""
    with (TESTS / "promises.toml").open("rb") as file:
        topics = tomllib.load(file)
    return [
        Promise(topic, place, name, words)
        for topic, places in topics.items()
        for place, named in places.items()
        for name, words in named.items()
    ]


@cache
def holders() -> list[Holder]:
    """Read which tests and scenarios hold which promises, without importing them."""
    return [holder for path in sorted(TESTS.rglob("*.py")) for holder in _holders(path)]


def _holders(path: Path) -> Iterator[Holder]:
    source = path.read_text()
    # Parsing takes long.
    if ("mark.promise" in source or "Scenario(" in source) and path != Path(__file__):
        name = path.relative_to(TESTS).as_posix()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.promise":
                        test = node.name
                        for case in mark.keywords:
                            words = ast.literal_eval(case.value)
                            test += f": {words}"
                            if source.count(f'"{words}') < 2:  # here and in the table
                                raise ValueError(f"{name} has no case of this name: {test}")
                        yield from (Holder(name, test, ast.literal_eval(word)) for word in mark.args)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "Scenario":
                given = {word.arg: word.value for word in node.keywords}
                for promise in ast.literal_eval(given.get("promises", ast.Tuple([]))):
                    yield Holder(name, ast.literal_eval(given["name"]), promise)


def sections(path: Path) -> dict[str, str]:
    """Return the text of a page below each of its headings, by the anchor of the heading."""
    text = re.sub(r"^ *```.*?^ *```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    parts = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {_anchor(heading): text for heading, text in zip(parts[1::2], parts[2::2], strict=True)}


def _anchor(heading: str) -> str:
    """Return the anchor that the docs give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def plain(text: str) -> str:
    """Return text without its markup, in one line. A colon is between the cells of a table."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^\| | \|$", "", text, flags=re.MULTILINE).replace(" | ", ": ")
    return " ".join(re.sub(r"[*`]", "", text).split())


def page() -> str:
    """Return the page: a table for each topic."""
    held = defaultdict(list)
    for holder in holders():
        words = holder.test.removeprefix("test_").replace("_", " ")
        held[holder.promise].append(f"`{holder.path}`: {words}")
    topics = defaultdict(list)
    for promise in promises():
        path = DOCS / promise.place.partition("#")[0]
        title = path.read_text().splitlines()[0].removeprefix("# ")
        where = f"[{title}](../{promise.place})"
        topics[promise.topic].append(f"| {promise.words} | {where} | {'<br>'.join(held[promise.name])} |")
    tables = (
        "\n".join([f"\n## {topic}\n", "| Promise | Page | Tests |", "| --- | --- | --- |", *rows])
        for topic, rows in topics.items()
    )
    return "\n".join([HEAD.rstrip(), *tables, ""])


def update() -> None:
    """Write the page."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
    print(f"{PAGE.relative_to(TESTS.parent)}: {len(promises())} promises")


if __name__ == "__main__":
    update()
