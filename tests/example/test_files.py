"""What the example finds in folders, and the text, title and headings that it takes from a file."""

from __future__ import annotations

import codecs
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from example_project.search.discovery import MAX_PATH_BYTES, walk
from example_project.search.extraction import MAX_TITLE, extract
from example_project.search.failures import NotText
from example_project.search.reading import decode


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("four")


def link(root: Path) -> None:
    make(root, "real.txt")
    for name, target in (("linked.txt", "real.txt"), ("loop", ""), ("broken", "nowhere")):
        (root / name).symlink_to(root / target)


def make_deep(root: Path) -> None:
    while len(bytes(root)) <= MAX_PATH_BYTES:
        root /= "d" * 200
    make(root, "a.txt")


def name_in_latin_1(root: Path) -> None:
    try:
        Path(os.fsdecode(bytes(root) + b"/caf\xe9.txt")).touch()
    except OSError:
        pytest.skip("this file system refuses such names")


@pytest.mark.parametrize(
    ("prepare", "suffixes", "files", "skipped"),
    [
        (lambda root: make(root, "b.txt", "a/z.md", "a/x/y.py", "none"), None,
         ["a/x/y.py", "a/z.md", "b.txt", "none"], {}),
        (lambda root: make(root, "__pycache__/a.txt", "a/.mypy_cache/a.txt", ".git/a.txt", "a/kept"), None,
         ["a/kept"], {"cache folder": 2, "version-control folder": 1}),
        (lambda root: make(root, "a.PNG", "a/b.so", "kept.txt"), None, ["kept.txt"], {"binary suffix": 2}),
        (lambda root: make(root, "a.py", "B.PY", "c.json"), {".py"}, ["B.PY", "a.py"], {"other suffix": 1}),
        (link, None, ["linked.txt", "real.txt"], {"link to a folder": 1, "not a regular file": 1}),
        (lambda root: os.mkfifo(root / "pipe.txt"), None, [], {"not a regular file": 1}),
        (make_deep, None, [], {"path too long": 1}),
        (name_in_latin_1, None, [], {"name not UTF-8": 1}),
    ],
    ids=["order", "caches", "binary", "suffixes", "links", "a named pipe", "a path too long", "not UTF-8"],
)  # fmt: skip
def test_a_walk_skips_and_counts_what_is_of_no_use(
    tmp_path: Path, prepare: Callable[[Path], None], suffixes: Any, files: list[str], skipped: Any
) -> None:
    prepare(tmp_path)
    result = walk(tmp_path, suffixes=suffixes) if suffixes else walk(tmp_path)
    found = [str(Path(file.path).relative_to(tmp_path)) for file in result.files]
    assert (found, dict(result.skipped)) == (files, skipped)


MARKS = [
    (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"),
]  # fmt: skip
COOKIE = "#!/usr/bin/python\n# -*- coding: latin-1 -*-\nname = 'naïve'\n"


@pytest.mark.parametrize(
    ("data", "python", "text"),
    [
        (b"", True, ""), (b"a\r\nb\rc\n", False, "a\nb\nc\n"), ("naïve".encode(), False, "naïve"),
        *((mark + "naïve".encode(codec), False, "naïve") for mark, codec in MARKS),
        (COOKIE.encode("latin-1"), True, COOKIE),
        (COOKIE.encode("latin-1"), False, None),  # a cookie counts in Python only
        (codecs.BOM_UTF8 + b"# coding: utf-8\n", True, "# coding: utf-8\n"),
        (codecs.BOM_UTF8 + b"# coding: latin-1\n", True, None),  # unlike the mark
        (b"# coding: no-such-codec\n", True, None),
        (b"# coding: rot13\n", True, None),  # not a codec of bytes
        (b"# coding: raw_unicode_escape\nx = '\\ud800'\n", True, None),
        (b"caf\xe9 au lait", False, None), (b"\xff\xfeodd", False, None), (b"abc\0def", False, None),
        (codecs.BOM_UTF16_LE + "a\0b".encode("utf-16-le"), False, None),
    ],
)  # fmt: skip
def test_decodes_by_marks_and_cookies_and_refuses_the_rest(
    data: bytes, python: bool, text: str | None
) -> None:
    if text is None:
        with pytest.raises(NotText):
            decode(data, python=python)
    else:
        assert decode(data, python=python) == text


PAGE = """<!doctype html><html><head><title>A &amp; B</title><style>p { color: red }</style></head>
<body><h1>Big <em>thing</em></h1><p>un<b>bold</b>ed caf&eacute;<br>next</p><h2></h2>
<script>if (a < b) hidden()</script><h2>Small</h2></body></html>"""


@pytest.mark.parametrize(
    ("name", "text", "title", "headings"),
    [
        ("notes/LICENSE", "\n  MIT  License\n\nPermission is hereby granted", "MIT License", ""),
        ("story.txt", "word " * 40, "story.txt", ""),  # its first line is too long for a title
        ("deep/data.json", "{ first }\nline", "data.json", ""),
        ("README.md", "Title\n=====\n\ntext\n\n## Second ##\n\nThird\n---\n\n- item\n---\n", "Title",
         "Title\nSecond\nThird"),
        ("a.md", "# Real\n\n```sh\n# not one\n```\n\n~~~\n# nor this\n~~~\n## Also real\n", "Real",
         "Real\nAlso real"),
        ("a.md", '---\ntitle: "A post"\ndate: 2026-11-21\n---\n# Heading\nwords\n', "A post", "Heading"),
        # A rule is as long as its heading.
        ("a.rst", ("=====\nTitle\n=====\n\nSection\n-------\n\ntoo long a line\n---\n\n===  ===\n"
         "a    b\n===  ===\n"), "Title", "Title\nSection"),
        ("a.html", PAGE, "A & B", "Big thing\nSmall"),
        ("m.py", "class A:\n    def run(self): ...\n\nasync def main(): ...\n", "m.py", "A\nrun\nmain"),
        *(
            ("pkg/m.py", text, title, "")
            for text, title in (
                ('"""Walk a tree."""\n', "Walk a tree."),
                ("#!/usr/bin/python\n# a comment\n\n'''\nFirst line\n\nMore.\n'''\n", "First line"),
                ('"""With \\"escapes\\" and \\d."""', 'With "escapes" and \\d.'),
                ("import os\n'''not a docstring'''\n", "m.py"),
                ('"""never closed', "m.py"),
                ('"""a\\0lone \\ud800surrogate"""', "a lone surrogate"),
            )
        ),
    ],
)  # fmt: skip
def test_each_format_has_its_title_and_headings(name: str, text: str, title: str, headings: str) -> None:
    assert (extract(name, text).title, extract(name, text).headings) == (title, headings)


def test_the_text_is_what_a_reader_sees() -> None:
    assert extract("a.html", PAGE).text == "Big thing\nunbolded café\nnext\nSmall"
    assert "date" not in extract("a.md", "---\ndate: 2026-11-21\n---\nwords\n").text
    assert len(extract("a.md", "# " + "long " * 100).title) == MAX_TITLE
    for page in ("<![bad[", "<!doctype [<!", "<p <p <", "</", "<h1><h1>", "&#xd800;&#0;"):
        assert "\0" not in extract("a.html", page).text.encode().decode()


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.rst", "a.py", "a.html"])
def test_no_pattern_takes_for_ever(name: str) -> None:
    for unit in ("\n", "#\n", "=\n", "`", "<", "a\n-\n", '"""', "```\n", "<p>", "---\n", " " * 8, "\\"):
        # Only the time of this thread is measured. Patterns whose time grows with the length take a
        # hundredth of it; those whose time grows with its square take several times as much.
        before = time.thread_time()
        extract(name, unit * (200_000 // len(unit)))
        assert time.thread_time() - before < 10, unit
