"""Queries on the index: ranked results with the words that matched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.postgres.search import SearchRank
from django.db.models import F, QuerySet, Value

from .models import Document
from .vectors import headline, split_hits, web_query

PAGE = 10
BY_LENGTH = 1  # divide the rank by the logarithm of the length, because a long text has more of every word


@dataclass(frozen=True, slots=True)
class Hit:
    """One result. `pieces` is an extract of its text, split around the matching words. It is not escaped."""

    document: Document
    rank: float
    pieces: list[tuple[str, bool]]


@dataclass(frozen=True, slots=True)
class Answers:
    """One page of results, best first. `total` is the number of results on all pages."""

    hits: list[Hit]
    total: int
    page: int

    @property
    def pages(self) -> int:
        """The number of pages, at least 1."""
        return max(1, -(-self.total // PAGE))

    @property
    def previous(self) -> int:
        """The number of the page before this one."""
        return self.page - 1

    @property
    def next(self) -> int:
        """The number of the page after this one."""
        return self.page + 1


def ranked(text: str) -> QuerySet[Any]:
    """Return the documents that match a query, best first, with their `rank`."""
    query = web_query(text)
    rank = SearchRank(F("vector"), query, normalization=Value(BY_LENGTH))
    return Document.objects.filter(vector=query).annotate(rank=rank).order_by("-rank", "path")


def search(text: str, page: int = 1) -> Answers:
    """Return the documents that match a query. A page number after the last page returns the last page."""
    query = web_query(text)
    total = Document.objects.filter(vector=query).count()
    page = min(max(page, 1), max(1, -(-total // PAGE)))
    ranks = dict(ranked(text).values_list("pk", "rank")[(page - 1) * PAGE : page * PAGE])
    # A second query makes the extracts, because they are costly and only needed for the documents of this
    # page.
    extracts = Document.objects.defer("text", "vector").annotate(extract=headline(query)).in_bulk(ranks)
    hits = [
        Hit(extracts[pk], rank, split_hits(extracts[pk].extract))
        for pk, rank in ranks.items()
        if pk in extracts  # the document may have been removed between the two queries
    ]
    return Answers(hits, total, page)
