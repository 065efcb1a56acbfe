"""How text becomes words: the same for documents, queries and highlights, or they would not find each other.

PostgreSQL's parser takes `os.path.join` for the name of a host and `a/b` for that of a file: one word each,
which a search for `join` misses. And it takes text for HTML: it leaves out tags, and after `<script>` all the
rest. So dots, slashes and angles are made to separate words.
"""

from __future__ import annotations

from django.contrib.postgres.search import CombinedSearchVector, SearchHeadline, SearchQuery, SearchVector
from django.db.models import F, Func, TextField, Value

LANGUAGE = "english"
HIT, END = "\ue000", "\ue001"  # around what matched: private characters, which no text has for a purpose

_SEPARATE = str.maketrans("./\\<", "    ")
_INVISIBLE = "\u200b"  # a space of no width


def document_vector(title: str, headings: str, path: str, text: str) -> CombinedSearchVector:
    """What a document is found by, from its title (weight A) to its text (weight D)."""
    return (
        _vector(title, "A") + _vector(headings, "B") + _vector(path, "C") + _vector(text, "D")  # type: ignore[return-value]
    )


def _vector(text: str, weight: str) -> SearchVector:
    return SearchVector(Value(text.translate(_SEPARATE)), config=LANGUAGE, weight=weight)


def web_query(text: str) -> SearchQuery:
    """A query as one types it: words, "a phrase", or, -not. Never a syntax error."""
    return SearchQuery(text.translate(_SEPARATE), config=LANGUAGE, search_type="websearch")


def headline(query: SearchQuery) -> SearchHeadline:
    """The best lines of a document's text, HIT and END around what matched; to be read by `split_hits`."""
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
    """A headline as pieces of plain text, each with whether it matched. The caller escapes them."""
    pieces: list[tuple[str, bool]] = []
    for position, part in enumerate(text.replace(_INVISIBLE, "").split(HIT)):
        hit, end, rest = part.partition(END)
        if position and end:
            pieces += [(hit, True), (rest, False)]
        else:
            pieces.append((hit + rest, False))
    return [(piece.replace(END, ""), is_hit) for piece, is_hit in pieces if piece]
