from __future__ import annotations

import time

import pytest

from example_project.search.extraction import MAX_TITLE, extract, is_python


def test_a_plain_text_is_titled_by_its_first_line() -> None:
    found = extract("notes/LICENSE", "\n  MIT  License\n\nPermission is hereby granted")
    assert (found.title, found.headings) == ("MIT License", "")
    assert "hereby" in found.text


def test_a_long_first_line_is_no_title() -> None:
    assert extract("story.txt", "word " * 40).title == "story.txt"


@pytest.mark.parametrize("name", ["data.json", "style.css"])
def test_other_formats_are_titled_by_their_name(name: str) -> None:
    assert extract(f"deep/{name}", "{ first }\nline").title == name


@pytest.mark.parametrize("text", ["", "   \n\n", "-----\n", "***\n"])
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.rst", "a.py", "a.html", "a.json"])
def test_text_without_words_is_titled_by_its_name(name: str, text: str) -> None:
    assert extract(name, text).title == name


def test_a_title_has_a_limit() -> None:
    assert len(extract("a.md", "# " + "long " * 100).title) == MAX_TITLE


@pytest.mark.parametrize(
    ("text", "title"),
    [
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
    ],
)
def test_python_is_titled_by_its_docstring(text: str, title: str) -> None:
    assert extract("pkg/m.py", text).title == title


def test_python_headings_are_its_classes_and_functions() -> None:
    source = (
        "class A:\n    def run(self): ...\n\nasync def main(): ...\ndef run(): ...\nundefined = 'class'\n"
    )
    found = extract("m.py", source)
    assert found.headings == "A\nrun\nmain"
    assert found.text == source


def test_markdown_headings_of_both_styles() -> None:
    text = "Title\n=====\n\ntext\n\n## Second ##\n\nThird\n---\n\n- item\n---\n"
    found = extract("README.md", text)
    assert (found.title, found.headings) == ("Title", "Title\nSecond\nThird")


def test_markdown_inside_a_fence_has_no_headings() -> None:
    text = "# Real\n\n```sh\n# not one\n```\n\n~~~\n# nor this\n~~~\n## Also real\n"
    assert extract("a.md", text).headings == "Real\nAlso real"


def test_markdown_front_matter_names_the_title_and_is_left_out() -> None:
    found = extract("a.md", '---\ntitle: "A post"\ndate: 2026-11-21\n---\n# Heading\nwords\n')
    assert found.title == "A post"
    assert "date" not in found.text


def test_restructured_headings_need_a_rule_as_long_as_they_are() -> None:
    text = "=====\nTitle\n=====\n\nSection\n-------\n\ntoo long a line\n---\n\n===  ===\na    b\n===  ===\n"
    found = extract("a.rst", text)
    assert (found.title, found.headings) == ("Title", "Title\nSection")


def test_html_shows_what_a_reader_sees() -> None:
    page = """<!doctype html><html><head><title>A &amp; B</title><style>p { color: red }</style></head>
    <body><h1>Big <em>thing</em></h1><p>un<b>bold</b>ed caf&eacute;<br>next</p><h2></h2>
    <script>if (a < b) hidden()</script><h2>Small</h2></body></html>"""
    found = extract("a.html", page)
    assert (found.title, found.headings) == ("A & B", "Big thing\nSmall")
    assert found.text == "Big thing\nunbolded café\nnext\nSmall"


def test_html_without_a_title_takes_its_first_heading() -> None:
    assert extract("a.htm", "<h1>Heading</h1><p>text").title == "Heading"


@pytest.mark.parametrize("page", ["<![bad[", "<!doctype [<!", "<p <p <", "</", "<h1><h1>", "&#xd800;&#0;"])
def test_malformed_html_is_taken_as_it_is(page: str) -> None:
    found = extract("a.html", page)
    found.text.encode()
    assert "\0" not in found.text


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
