"""What is said when the jobs are done: the figures, and what the index answers."""

from __future__ import annotations

import time

from example_project.search.queries import search

from .display import Screen, duration, printable
from .summary import Summary, percentile

QUERY = 'transaction "rolled back"'
ANSWERS = 3


def show_summary(screen: Screen, summary: Summary) -> None:
    """The run in figures."""
    screen.title("Summary")
    screen.fact("Jobs", f"{summary.jobs:,} finished: {summary.done:,} done, {summary.failed:,} failed")
    screen.fact("Rate", f"{summary.rate:,.0f} jobs/s for {summary.elapsed:.1f} s")
    for name, times in (("Waited", summary.waited), ("Ran", summary.ran)):
        points = (f"p{percent} {duration(percentile(times, percent)):<9}" for percent in (50, 95, 99))
        screen.fact(name, " ".join(points))
    screen.fact(
        "Queue's share",
        f"{duration(summary.overhead)} a job ({summary.workers} processes were at it for "
        f"{summary.worked:.1f} s together, {sum(summary.ran):.1f} s of it in the task)",
    )
    for failure in summary.failures:
        screen.fact(
            "Failed", f"{failure.count:3,} {failure.kind:<11} {screen.style(failure.example, 'quiet')}"
        )


def show_answers(screen: Screen, query: str = QUERY) -> None:
    """The best answers to a query, with what matched marked."""
    began = time.perf_counter()
    answers = search(query)
    seconds = time.perf_counter() - began
    screen.title(f"Search: {query}")
    screen.fact("Found", f"{answers.total:,} documents in {duration(seconds)}")
    for hit in answers.hits[:ANSWERS]:
        screen.say()
        screen.say(f"  {screen.style(hit.document.title, 'bold')}")
        screen.say(f"  {screen.style(hit.document.path, 'quiet')}")
        screen.say(
            "  "
            + "".join(screen.mark(piece) if matched else printable(piece) for piece, matched in hit.pieces)
        )
