"""From text to what the search engine wants to know: a title, headings, and the words.

One small function a format. None of them fails: text that is not what its suffix says is taken as it stands.
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
    """What a document is about, from the most telling to the least; `headings` has a heading a line."""

    title: str
    headings: str
    text: str


def extract(name: str, text: str) -> Extract:
    """Title, headings and text of a file called `name`; the title falls back on that name."""
    path = PurePath(name)
    title, headings, body = _FORMATS.get(path.suffix.lower(), _plain)(text)
    # A docstring's escapes may make what PostgreSQL cannot store: NUL and lone surrogates.
    title = title.replace("\0", " ").encode(errors="ignore").decode()
    title = " ".join(title.split())[:MAX_TITLE]
    if not any(character.isalnum() for character in title):
        title = path.name
    return Extract(title, "\n".join(dict.fromkeys(headings)), body)


def is_python(name: str) -> bool:
    """Whether a file of this name is Python source, and so may carry a coding cookie."""
    return _FORMATS.get(PurePath(name).suffix.lower()) is _python


_Parts = tuple[str, list[str], str]


def _plain(text: str) -> _Parts:
    return "", [], text


def _prose(text: str) -> _Parts:
    """The first line of a text is its title, if it is as short as one."""
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
    """Titled by the docstring's first line, found without `ast.parse`, which would take most of the time."""
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
_NO_SETEXT = re.compile(r"\s*(?:[>#*+-]|$)")  # lists, quotes and blank lines have no rule under them


def _markdown(text: str) -> _Parts:
    """Headings of both styles, outside fenced code; front matter may name the title."""
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
    """A heading is a line with a rule of punctuation under it that is at least as long."""
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
    except AssertionError:  # how the parser gives up on a malformed declaration
        return _plain(text)
    headings = [heading for found in page.headings if (heading := " ".join("".join(found).split()))]
    body = "\n".join(line for raw in "".join(page.text).split("\n") if (line := raw.strip()))
    return "".join(page.title).strip() or next(iter(headings), ""), headings, body


class _Page(HTMLParser):
    """Collects what a reader of the page sees, apart from its scripts and styles."""

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
        self._inside: str | None = None  # the title, heading or hidden element that we are in

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
        """A block starts a line of its own; what is inline may lie within a word."""
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
