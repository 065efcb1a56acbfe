"""Extract from a text what the search engine needs: the title, the headings, and the words.

Each format has one small function. None of them fails: a text that does not match its suffix is used as it
is.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import PurePath

MAX_TITLE = 200


@dataclass(frozen=True, slots=True)
class Extract:
    """The parts of a document, the most important first. `headings` has one heading per line."""

    title: str
    headings: str
    text: str


def extract(name: str, text: str) -> Extract:
    """Return title, headings and text of a file called `name`. If there is no title, `name` is used."""
    path = PurePath(name)
    title, headings, body = _FORMATS.get(path.suffix.lower(), _plain)(text)
    # Escapes in a docstring may produce NUL and lone surrogates, which PostgreSQL cannot store.
    title = title.replace("\0", " ").encode(errors="ignore").decode()
    title = " ".join(title.split())[:MAX_TITLE]
    if not any(character.isalnum() for character in title):
        title = path.name
    return Extract(title, "\n".join(dict.fromkeys(headings)), body)


def is_python(name: str) -> bool:
    """Return whether a file with this name is Python source, which may have a coding cookie."""
    return _FORMATS.get(PurePath(name).suffix.lower()) is _python


_Parts = tuple[str, list[str], str]


def _plain(text: str) -> _Parts:
    return "", [], text


def _prose(text: str) -> _Parts:
    """Take the first line as the title if it is short enough."""
    first = text.lstrip().partition("\n")[0].strip()
    return first if len(first) <= 80 else "", [], text


_DOCSTRING = re.compile(
    r"""
    (?: [ \t\f]* (?: \#[^\n]* )? \n )*          # comments and blank lines
    ( [rRuU]? (?: \"{3} .*? (?<!\\) \"{3} | '{3} .*? (?<!\\) '{3} | "[^"\n\\]*" | '[^'\n\\]*' ) )
    """,
    re.VERBOSE | re.DOTALL,
)
_DEFINITION = re.compile(r"^[ \t]*(?:async[ \t]+)?(?:class|def)[ \t]+(\w+)", re.MULTILINE)


def _python(text: str) -> _Parts:
    """Take the docstring's first line as the title. This avoids `ast.parse`, which would take most of the
    time.
    """
    title = ""
    if match := _DOCSTRING.match(text):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an invalid escape in somebody's docstring
                title = str(ast.literal_eval(match[1])).strip().partition("\n")[0]
        except (SyntaxError, ValueError):
            pass
    return title, _DEFINITION.findall(text), text


_FRONT_MATTER = re.compile(r"\A---\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ATX = re.compile(r" {0,3}#{1,6}[ \t]+(.*)")
_SETEXT_RULE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_NO_SETEXT = re.compile(r"\s*(?:[>#*+-]|$)")  # lists, quotes and blank lines cannot be underlined headings


def _markdown(text: str) -> _Parts:
    """Find headings of both styles outside fenced code. The front matter may contain the title."""
    title = ""
    body = text
    if front := _FRONT_MATTER.match(text):
        body = text[front.end() :]
        if named := re.search(r"^title:[ \t]*(['\"]?)(.+)\1[ \t]*$", front[1], re.MULTILINE):
            title = named[2]
    headings = _markdown_headings(body)
    return title or next(iter(headings), ""), headings, body


def _markdown_headings(body: str) -> list[str]:
    headings = []
    fence = above = ""
    for line in body.split("\n"):
        if fence:
            if line.strip().startswith(fence):
                fence = ""
        elif opened := _FENCE.match(line):
            fence = opened[1]
        elif atx := _ATX.match(line):
            headings.append(atx[1].rstrip("# \t"))
        elif _SETEXT_RULE.match(line) and not _NO_SETEXT.match(above):
            headings.append(above.strip())
        above = line
    return [heading for heading in headings if heading]


_UNDERLINED = re.compile(r"""^(?P<title>\S[^\n]*)\n(?P<rule>([=\-`:'"~^_*+#<>.])\3+)[ \t]*$""", re.MULTILINE)


def _restructured(text: str) -> _Parts:
    """Find headings: lines that are underlined with punctuation of at least the same length."""
    headings = [
        match["title"].strip()
        for match in _UNDERLINED.finditer(text)
        if len(match["rule"]) >= len(match["title"].strip()) and re.search(r"[^\W_]", match["title"])
    ]
    return next(iter(headings), ""), headings, text


def _html(text: str) -> _Parts:
    page = _Page()
    try:
        page.feed(text)
        page.close()
    except AssertionError:  # the parser raises this for a malformed declaration
        return _plain(text)
    headings = [heading for found in page.headings if (heading := " ".join("".join(found).split()))]
    body = "\n".join(line for raw in "".join(page.text).split("\n") if (line := raw.strip()))
    return "".join(page.title).strip() or next(iter(headings), ""), headings, body


class _Page(HTMLParser):
    """Collects the visible text of the page, without scripts and styles."""

    HIDDEN = frozenset({"script", "style", "template"})
    HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
    # fmt: off
    INLINE = frozenset({
        "a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "em", "i", "kbd", "mark", "q", "s",
        "samp", "small", "span", "strong", "sub", "sup", "u", "var",
    })
    # fmt: on

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title: list[str] = []
        self.headings: list[list[str]] = []
        self.text: list[str] = []
        self._inside: str | None = None  # the current title, heading or hidden element

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._separate(tag)
        if tag in self.HEADINGS:
            self.headings.append([])
        if tag in self.HEADINGS or tag in self.HIDDEN or (tag == "title" and not self.title):
            self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._separate(tag)
        if tag == self._inside:
            self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside in self.HIDDEN:
            return
        if self._inside == "title":
            self.title.append(data)
            return
        if self._inside is not None:
            self.headings[-1].append(data)
        self.text.append(data)

    def _separate(self, tag: str) -> None:
        """Start a new line for a block element. An inline element may be within a word."""
        if tag not in self.INLINE:
            self.text.append("\n")


_FORMATS: dict[str, Callable[[str], _Parts]] = {
    "": _prose,
    ".txt": _prose,
    ".text": _prose,
    ".md": _markdown,
    ".markdown": _markdown,
    ".rst": _restructured,
    ".rest": _restructured,
    ".py": _python,
    ".pyi": _python,
    ".pyw": _python,
    ".htm": _html,
    ".html": _html,
    ".xhtml": _html,
}
