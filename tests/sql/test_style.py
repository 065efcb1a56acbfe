"""The style of SQL, as far as a tool can hold it: docs/decisions/storage.md says why no formatter does.

That each function has a comment above it is in ``test_schema.py``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import django_pgqueue

ROOT = Path(django_pgqueue.__file__).parent
LONGEST = 120
#: Comments, strings and quoted names, and what Python or Django's templates fill in.
_NO_CODE = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"[^\"]*\"|\{[#%{].*?[#%}]\}|\{\w+\}|%\(\w+\)s", re.DOTALL
)
#: Words of SQL that are also names of ours, of functions, or values.
NAMES = """
    at before call conflict current deferred each first found key last left locked new next old on others over
    schema sequence share trigger true
""".split()


def texts() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file."""
    for path in sorted(ROOT.rglob("*.sql")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def test_lines_are_short_and_have_neither_tabs_nor_trailing_blanks() -> None:
    found = [
        (path, line)
        for path, text in texts()
        for line in text.split("\n")
        if len(line) > LONGEST or "\t" in line or line != line.rstrip()
    ]
    assert found == []
    assert [path for path, text in texts() if not text.endswith("\n") or text.endswith("\n\n")] == []


def test_indents_are_multiples_of_four() -> None:
    """A comment may stand below one that ends the line before, and a string is as it is."""
    found = [
        (path, line)
        for path, text in texts()
        for line in _NO_CODE.sub("", text).split("\n")
        if line.strip() and (len(line) - len(line.lstrip())) % 4
    ]
    assert found == []


def test_keywords_are_in_capitals() -> None:
    """A word that is in capitals somewhere is so everywhere, unless it is also a name."""
    written: defaultdict[str, set[str]] = defaultdict(set)
    for path, text in texts():
        for word in re.findall(r"(?<![\w.])[A-Za-z_]+\b", _NO_CODE.sub("''", text)):
            written[word.lower()].add("" if word.isupper() else f"{word} in {path}")
    both = {word: sorted(places) for word, places in written.items() if len(places) > 1 and "" in places}
    assert {word: places for word, places in both.items() if word not in NAMES} == {}
    assert len([word for word, places in written.items() if places == {""}]) > 100
