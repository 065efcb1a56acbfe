"""Write all results of a search as CSV."""

from __future__ import annotations

import csv
from io import StringIO

from .queries import ranked

#: A spreadsheet would take a cell that begins with one of these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_csv(text: str) -> tuple[int, str]:
    """Return how many documents match a query, and one line for each of them, best first."""
    output = StringIO()
    writer = csv.writer(output)
    writer.writerow(["rank", "path", "title"])
    documents = 0
    for document in ranked(text).only("path", "title").iterator():
        writer.writerow([f"{document.rank:.6f}", _cell(document.path), _cell(document.title)])
        documents += 1
    return documents, output.getvalue()


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
