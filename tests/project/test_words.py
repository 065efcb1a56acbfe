"""Texts are plain American English: ``words.toml`` lists what they avoid. codespell checks the spelling."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from .test_layers import PACKAGE, ROOT

WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text())["word"]
KINDS = {".css", ".html", ".js", ".py", ".sql", ".txt"}


def texts(part: str) -> Iterator[Path]:
    """Yield the files of the pages or of the package."""
    if part == "pages":
        yield from (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    else:
        files = (path for path in (ROOT / PACKAGE).rglob("*") if path.suffix in KINDS)
        yield from (path for path in files if not {"dagre", "uplot"} & set(path.parts))


@pytest.mark.parametrize("part", ["pages", "package"])
@pytest.mark.parametrize("word", WORDS, ids=lambda word: word["instead"].split(":")[0].split(",")[0])
def test_texts_avoid(word: dict[str, str | int], part: str) -> None:
    pattern = re.compile(str(word["pattern"]), re.MULTILINE)
    found = [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0].strip()}"
        for path in sorted(texts(part))
        for text in [path.read_text()]
        for match in pattern.finditer(text)
    ]
    assert len(found) <= int(word.get(part, 0)), f"Write {word['instead']}:\n" + "\n".join(found)
