"""Links between the pages lead somewhere, on a forge as well as on the site."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

from tests.support.examples import DOCS, ROOT

FILES = sorted([*ROOT.glob("*.md"), *(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)])
#: Blocks of code have no headings and no links.
FENCE = re.compile(r"^ *(`{3,}).*?^ *\1`*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)|\b(?:src|srcset|href)=\"([^\"]+)\"")


def prose(path: Path) -> str:
    return FENCE.sub("", path.read_text())


@cache
def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page, and MyST with `myst_heading_anchors`."""
    found: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#{1,6} +(.+?)(?: +#+)?$", prose(path), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        text = re.sub(r"(?<![\w`])([*_]+)(\S.*?)\1(?!\w)", r"\2", text)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        names.add(f"{slug}-{found[slug]}" if found[slug] else slug)
        found[slug] += 1
    return names


def problem(page: Path, link: str) -> bool:
    """Whether the link of a page leads nowhere."""
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    return not target.exists() or bool(anchor and anchor not in anchors(target))


def test_relative_links_and_anchors_exist() -> None:
    links = [(page, link) for page in FILES for pair in LINK.findall(prose(page)) if (link := "".join(pair))]
    relative = [(page, link) for page, link in links if not re.match(r"[a-z]+:", link)]
    assert len(relative) > 300
    assert [(str(page.relative_to(ROOT)), link) for page, link in relative if problem(page, link)] == []


def test_no_page_needs_an_anchor_that_only_the_site_has() -> None:
    label = re.compile(r"^\([\w-]+\)=$|^<a (?:id|name)=", re.MULTILINE)
    assert [page for page in FILES if label.search(prose(page))] == []


def test_pages_use_few_directives_that_a_forge_does_not_know() -> None:
    known = {"toctree", "include"}  # lists of pages, the changelog
    used = {
        name
        for page in FILES
        for name in re.findall(r"^ *(?:`{3,}|:{3,})\{([\w-]+)\}", page.read_text(), re.M)
    }
    assert used <= known
