"""Ask the index: ranked answers with what matched, and how far the indexing is."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.postgres.search import SearchRank
from django.db.models import Count, F, Value

from .models import Document
from .tasks import live_jobs
from .vectors import headline, split_hits, web_query

PAGE = 10
BY_LENGTH = 1  # a long text has more of every word: divide the rank by the logarithm of its length


@dataclass(frozen=True, slots=True)
class Hit:
    """An answer; `pieces` is an extract of its text, cut where it matched. Nothing in it is escaped."""

    document: Document
    rank: float
    pieces: list[tuple[str, bool]]


@dataclass(frozen=True, slots=True)
class Answers:
    """A page of answers, best first, of `total` ones."""

    hits: list[Hit]
    total: int
    page: int

    @property
    def pages(self) -> int:
        """How many pages there are; one if there is nothing."""
        return max(1, -(-self.total // PAGE))

    @property
    def previous(self) -> int:
        """The number of the page before this one."""
        return self.page - 1

    @property
    def next(self) -> int:
        """The number of the page after this one."""
        return self.page + 1


def search(text: str, page: int = 1) -> Answers:
    """The documents for a query as one types it; a page beyond the last one is the last one."""
    query = web_query(text)
    matches = Document.objects.filter(vector=query)
    total = matches.count()
    page = min(max(page, 1), max(1, -(-total // PAGE)))
    ranked = matches.annotate(
        rank=SearchRank(F("vector"), query, normalization=Value(BY_LENGTH)),
    ).order_by("-rank", "path")
    ranks = dict(ranked.values_list("pk", "rank")[(page - 1) * PAGE : page * PAGE])
    # The extracts in a second query: they are costly, and made for this page's documents only.
    extracts = Document.objects.defer("text", "vector").annotate(extract=headline(query)).in_bulk(ranks)
    hits = [
        Hit(extracts[pk], rank, split_hits(extracts[pk].extract))
        for pk, rank in ranks.items()
        if pk in extracts  # not removed between the two queries
    ]
    return Answers(hits, total, page)


@dataclass(frozen=True, slots=True)
class Progress:
    """How many documents are in which state, and how many jobs are still to be finished."""

    indexed: int
    failed: int
    waiting: int
    jobs: int

    @property
    def total(self) -> int:
        """All documents."""
        return self.indexed + self.failed + self.waiting

    @property
    def done(self) -> int:
        """The documents that are not waiting."""
        return self.indexed + self.failed


def progress() -> Progress:
    """The state of the index, now."""
    states = dict(Document.objects.order_by().values_list("state").annotate(Count("pk")))
    return Progress(
        indexed=states.get(Document.State.INDEXED, 0),
        failed=states.get(Document.State.FAILED, 0),
        waiting=states.get(Document.State.WAITING, 0),
        jobs=live_jobs().count(),
    )
