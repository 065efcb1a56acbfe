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
from example_project.search.extraction import MAX_TITLE, extract, is_python
from example_project.search.failures import Gone, NotText, TooLarge, Unreadable
from example_project.search.reading import decode, read

MODIFIED = 1_700_000_000_123_456_789

# --- Folders


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("four")


def found(root: Path, **options: set[str]) -> tuple[list[str], dict[str, int]]:
    """Return the files of a folder, and what was skipped."""
    result = walk(root, **options)
    return [str(Path(file.path).relative_to(root)) for file in result.files], dict(result.skipped)


def test_lists_files_of_all_folders_in_order_of_path_with_size_and_time(tmp_path: Path) -> None:
    assert found(tmp_path) == ([], {})
    make(tmp_path, "b.txt", "a/z.md", "a/deeper/x.py", "no_suffix")
    os.utime(tmp_path / "b.txt", ns=(0, MODIFIED))
    assert found(tmp_path) == (["a/deeper/x.py", "a/z.md", "b.txt", "no_suffix"], {})
    (file,) = walk(tmp_path, suffixes={".txt"}).files
    assert (file.size, file.modified) == (4, MODIFIED)


def link(root: Path) -> None:
    make(root, "real.txt")
    for name, target in (("linked.txt", "real.txt"), ("loop", ""), ("broken", "nowhere")):
        (root / name).symlink_to(root / target)


def make_deep(root: Path) -> None:
    while len(bytes(root)) <= MAX_PATH_BYTES:
        root /= "d" * 200
    make(root, "a.txt")


@pytest.mark.parametrize(
    ("prepare", "files", "skipped"),
    [
        (lambda root: make(root, "__pycache__/a.txt", "a/.mypy_cache/a.txt", ".git/a.txt", "a/kept.txt"),
         ["a/kept.txt"], {"cache folder": 2, "version-control folder": 1}),
        (lambda root: make(root, "a.PNG", "a/b.so", "a/kept.txt"), ["a/kept.txt"], {"binary suffix": 2}),
        (link, ["linked.txt", "real.txt"], {"link to a folder": 1, "not a regular file": 1}),
        (lambda root: os.mkfifo(root / "pipe.txt"), [], {"not a regular file": 1}),
        (make_deep, [], {"path too long": 1}),
    ],
    ids=["caches", "binary", "links", "a named pipe", "a path too long for an index"],
)  # fmt: skip
def test_skips_and_counts_what_is_of_no_use(
    tmp_path: Path, prepare: Callable[[Path], None], files: list[str], skipped: dict[str, int]
) -> None:
    prepare(tmp_path)
    assert found(tmp_path) == (files, skipped)


def test_a_root_that_is_itself_called_like_a_cache_is_walked(tmp_path: Path) -> None:
    make(tmp_path, ".cache/a.txt")
    assert found(tmp_path / ".cache") == (["a.txt"], {})


def test_suffixes_narrow_the_walk(tmp_path: Path) -> None:
    make(tmp_path, "a.py", "B.PY", "c.json", "d")
    assert found(tmp_path, suffixes={".py"}) == (["B.PY", "a.py"], {"other suffix": 2})


def test_a_name_that_is_not_utf8_is_skipped(tmp_path: Path) -> None:
    try:
        Path(os.fsdecode(bytes(tmp_path) + b"/caf\xe9.txt")).write_text("latin-1 name")
    except OSError:
        pytest.skip("this file system refuses such names")
    assert walk(tmp_path).skipped == {"name not UTF-8": 1}


def test_an_unreadable_folder_is_counted_and_the_walk_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "secret/a.txt", "open.txt")
    scandir = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("secret"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert found(tmp_path) == (["open.txt"], {"unreadable folder": 1})


# --- Reading


def test_reads_up_to_a_limit_with_the_size_and_time_of_that_version(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"words")
    os.utime(tmp_path / "a.txt", ns=(0, MODIFIED))
    contents = read(tmp_path / "a.txt", limit=5)
    assert (contents.data, contents.size, contents.modified) == (b"words", 5, MODIFIED)
    (tmp_path / "a.txt").write_bytes(b"x" * 2000)
    with pytest.raises(TooLarge, match="has 2,000 bytes; the limit is 10"):
        read(tmp_path / "a.txt", limit=10)


@pytest.mark.parametrize(
    ("prepare", "name", "reason"),
    [
        (Path.touch, "missing.txt", r"missing\.txt no longer exists"),
        (Path.touch, "a.txt/b.txt", "no longer exists"),  # its folder became a file
        (Path.mkdir, "a.txt", "no longer a regular file"),
        (os.mkfifo, "a.txt", "no longer a regular file"),
    ],
)
def test_what_is_no_file_any_more_is_gone(
    tmp_path: Path, prepare: Callable[[Path], None], name: str, reason: str
) -> None:
    prepare(tmp_path / "a.txt")
    with pytest.raises(Gone, match=reason):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("error", "expected", "reason"),
    [
        # root can read every file, so chmod would have no effect
        (PermissionError(13, "Permission denied"), Unreadable, "no permission to read"),
        (OSError(5, "Input/output error"), OSError, "Input/output error"),  # for a retry
    ],
)
def test_an_error_of_the_disk_passes_through_but_not_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, expected: type[Exception], reason: str
) -> None:
    (tmp_path / "a.txt").write_text("on a bad disk")

    def fail(self: Path, mode: str) -> None:
        raise error

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(expected, match=reason):
        read(tmp_path / "a.txt")


MARKS = [
    (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"),
]  # fmt: skip
COOKIE = "#!/usr/bin/python\n# -*- coding: latin-1 -*-\nname = 'naïve'\n"


@pytest.mark.parametrize(
    ("data", "python", "text"),
    [
        (b"", False, ""), (b"", True, ""), (b"a\r\nb\rc\n", False, "a\nb\nc\n"),
        ("naïve".encode(), False, "naïve"),
        *((mark + "naïve".encode(codec), False, "naïve") for mark, codec in MARKS),
        (COOKIE.encode("latin-1"), True, COOKIE),
        (codecs.BOM_UTF8 + b"# coding: utf-8\n", True, "# coding: utf-8\n"),
    ],
)  # fmt: skip
def test_decodes_by_marks_and_cookies(data: bytes, python: bool, text: str) -> None:
    assert decode(data, python=python) == text


@pytest.mark.parametrize(
    ("data", "python", "reason"),
    [
        (COOKIE.encode("latin-1"), False, "cannot be decoded"),  # a cookie counts in Python only
        (codecs.BOM_UTF8 + b"# coding: latin-1\n", True, "."),  # unlike the mark
        (b"# coding: no-such-codec\n", True, "."),
        (b"# coding: rot13\n", True, "."),  # not a codec of bytes
        (b"# coding: raw_unicode_escape\nx = '\\ud800'\n", True, "."),
        *(
            (data, python, ".")
            for data in (b"GIF89a\0\1\2", b"caf\xe9 au lait", b"\xff\xfeodd", b"\xff\xff")
            for python in (False, True)
        ),
        (b"abc\0def", False, "NUL byte at position 3"),
        (codecs.BOM_UTF16_LE + "a\0b".encode("utf-16-le"), False, "NUL"),
    ],
)  # fmt: skip
def test_the_rest_is_not_text(data: bytes, python: bool, reason: str) -> None:
    with pytest.raises(NotText, match=reason):
        decode(data, python=python)


# --- Titles and headings

PAGE = """<!doctype html><html><head><title>A &amp; B</title><style>p { color: red }</style></head>
<body><h1>Big <em>thing</em></h1><p>un<b>bold</b>ed caf&eacute;<br>next</p><h2></h2>
<script>if (a < b) hidden()</script><h2>Small</h2></body></html>"""


@pytest.mark.parametrize("text", ["", "   \n\n", "-----\n", "***\n"])
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.rst", "a.py", "a.html", "a.json"])
def test_text_without_words_is_titled_by_its_name(name: str, text: str) -> None:
    assert extract(name, text).title == name


@pytest.mark.parametrize(
    ("name", "text", "title", "headings"),
    [
        ("notes/LICENSE", "\n  MIT  License\n\nPermission is hereby granted", "MIT License", ""),
        ("story.txt", "word " * 40, "story.txt", ""),  # its first line is too long for a title
        ("deep/data.json", "{ first }\nline", "data.json", ""),
        ("deep/style.css", "{ first }\nline", "style.css", ""),
        ("README.md", "Title\n=====\n\ntext\n\n## Second ##\n\nThird\n---\n\n- item\n---\n", "Title",
         "Title\nSecond\nThird"),
        ("a.md", "# Real\n\n```sh\n# not one\n```\n\n~~~\n# nor this\n~~~\n## Also real\n", "Real",
         "Real\nAlso real"),
        ("a.md", '---\ntitle: "A post"\ndate: 2026-11-21\n---\n# Heading\nwords\n', "A post", "Heading"),
        # A rule is as long as its heading.
        ("a.rst", ("=====\nTitle\n=====\n\nSection\n-------\n\ntoo long a line\n---\n\n===  ===\n"
         "a    b\n===  ===\n"), "Title", "Title\nSection"),
        ("a.html", PAGE, "A & B", "Big thing\nSmall"),
        ("a.htm", "<h1>Heading</h1><p>text", "Heading", "Heading"),
        ("m.py", ("class A:\n    def run(self): ...\n\nasync def main(): ...\ndef run(): ...\n"
         "undefined = 'class'\n"), "m.py", "A\nrun\nmain"),
        *(
            ("pkg/m.py", text, title, "")
            for text, title in (
                ('"""Walk a tree."""\n', "Walk a tree."),
                ("#!/usr/bin/python\n# a comment\n\n'''\nFirst line\n\nMore.\n'''\n", "First line"),
                ('r"""Raw \\d+ text."""', "Raw \\d+ text."),
                ("'single quotes'", "single quotes"),
                ('"""With \\"escapes\\" and \\d."""', 'With "escapes" and \\d.'),
                ('"""quote at the end\\""""', 'quote at the end"'),
                ("import os\n'''not a docstring'''\n", "m.py"),
                ('b"""bytes are none"""', "m.py"),
                ('"""never closed', "m.py"),
                ('"""bad \\x escape"""', "m.py"),
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
    assert extract("a.py", "x = 1\n").text == "x = 1\n"
    assert len(extract("a.md", "# " + "long " * 100).title) == MAX_TITLE


@pytest.mark.parametrize("page", ["<![bad[", "<!doctype [<!", "<p <p <", "</", "<h1><h1>", "&#xd800;&#0;"])
def test_malformed_html_is_taken_as_it_is(page: str) -> None:
    text = extract("a.html", page).text
    text.encode()
    assert "\0" not in text


def test_which_names_are_python() -> None:
    assert [is_python(name) for name in ("a.py", "a.PYI", "a.txt", "a")] == [True, True, False, False]


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.rst", "a.py", "a.html"])
@pytest.mark.parametrize(
    "unit", ["\n", "#\n", "=\n", "`", "<", "a\n-\n", '"""', "```\n", "<p>", "---\n", " " * 8, "\\"]
)
def test_no_pattern_takes_for_ever(name: str, unit: str) -> None:
    text = unit * (200_000 // len(unit))
    # Only the time of this thread is measured. Patterns whose time grows with the length take a
    # hundredth of it; those whose time grows with its square take several times as much.
    before = time.thread_time()
    extract(name, text)
    assert time.thread_time() - before < 10
