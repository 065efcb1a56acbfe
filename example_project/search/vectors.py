"""Split text into words. Documents, queries and highlights must be split in the same way to match each other.

PostgreSQL's parser treats `os.path.join` as a host name and `a/b` as a file name. Each becomes a single word,
so a search for `join` does not find it. The parser also treats text as HTML: it drops tags, and everything
after `<script>`. Therefore dots, slashes and angle brackets are replaced, so that they separate words.
"""

from __future__ import annotations

from django.contrib.postgres.search import CombinedSearchVector, SearchHeadline, SearchQuery, SearchVector
from django.db.models import F, Func, TextField, Value
from django.db.models.functions import Substr

LANGUAGE = "english"
HIT, END = "\ue000", "\ue001"  # around each match: private-use characters, which no ordinary text contains

_SEPARATE = str.maketrans("./\\<", "    ")
_INVISIBLE = "\u200b"  # a zero-width space


def document_vector(title: str, headings: str, path: str, text: str) -> CombinedSearchVector:
    """Return the search vector of a document, from its title (weight A) to its text (weight D)."""
    return head_vector(title, headings, path) + _vector(text, "D")  # type: ignore[return-value]


def head_vector(title: str, headings: str, path: str) -> CombinedSearchVector:
    """Return the search vector of a document without its text."""
    return _vector(title, "A") + _vector(headings, "B") + _vector(path, "C")  # type: ignore[return-value]


def longer_vector(start: int, end: int) -> CombinedSearchVector:
    """Return the vector of a row, extended by a part of the row's text. The server has both."""
    part = Func(
        Substr("text", start + 1, end - start),
        Value("".join(map(chr, _SEPARATE))),
        Value("".join(map(str, _SEPARATE.values()))),
        function="translate",
        output_field=TextField(),
    )
    added = SearchVector(part, config=LANGUAGE, weight="D")
    return CombinedSearchVector(F("vector"), "||", added, added.config)


def _vector(text: str, weight: str) -> SearchVector:
    return SearchVector(Value(text.translate(_SEPARATE)), config=LANGUAGE, weight=weight)


def web_query(text: str) -> SearchQuery:
    """Parse a query as a user types it: words, "a phrase", or, -not. It never raises a syntax error."""
    return SearchQuery(text.translate(_SEPARATE), config=LANGUAGE, search_type="websearch")


def headline(query: SearchQuery) -> SearchHeadline:
    """Return the best lines of a document, with HIT and END around each match. `split_hits` reads them."""
    separated = Func(
        F("text"),
        Value(r"([./\\<])"),
        Value(rf"\1{_INVISIBLE}"),
        Value("g"),
        function="regexp_replace",
        output_field=TextField(),
    )
    return SearchHeadline(
        separated,
        query,
        config=LANGUAGE,
        start_sel=HIT,
        stop_sel=END,
        max_fragments=2,
        min_words=12,
        max_words=30,
        fragment_delimiter=" … ",
    )


def split_hits(text: str) -> list[tuple[str, bool]]:
    """Split a headline into pieces of plain text and whether each one matched. The caller escapes them."""
    pieces: list[tuple[str, bool]] = []
    for position, part in enumerate(text.replace(_INVISIBLE, "").split(HIT)):
        hit, end, rest = part.partition(END)
        if position and end:
            pieces += [(hit, True), (rest, False)]
        else:
            pieces.append((hit + rest, False))
    return [(piece.replace(END, ""), is_hit) for piece, is_hit in pieces if piece]
