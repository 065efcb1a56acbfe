"""What the demonstration prints when the jobs have finished: the figures, and the results of a search."""

from __future__ import annotations

import re
import shutil
import time

from django.db import DEFAULT_DB_ALIAS

from django_pgqueue.monitoring.health import full_health
from example_project.search.models import Export
from example_project.search.queries import search

from .display import Screen, duration, printable
from .summary import Summary, percentile

QUERY = "escape html"
ANSWERS = 3
PATIENCE = 30  # seconds for the export


def show_summary(screen: Screen, summary: Summary) -> None:
    """Print the figures of the run."""
    screen.title("Summary")
    screen.fact("Jobs", f"{summary.jobs:,} finished: {summary.done:,} done, {summary.failed:,} failed")
    screen.fact("Rate", f"{summary.rate:,.0f} jobs/s for {summary.elapsed:.1f} s")
    for name, times in (("Waited", summary.waited), ("Ran", summary.ran)):
        points = (f"p{percent} {duration(percentile(times, percent)):<9}" for percent in (50, 95, 99))
        screen.fact(name, " ".join(points).rstrip())
    screen.fact(
        "Queue's share",
        f"{duration(summary.overhead)} per job ({summary.workers} processes worked for "
        f"{summary.worked:.1f} s, tasks {sum(summary.ran):.1f} s)",
    )
    for failure in summary.failures:
        room = max(20, shutil.get_terminal_size().columns - 33)
        example = screen.style(failure.example[:room], "quiet")
        screen.fact("Failed", f"{failure.count:3,} {failure.kind:<11} {example}")


def show_answers(screen: Screen, query: str = QUERY) -> None:
    """Print the best results of a query, with the matching words marked."""
    began = time.perf_counter()
    answers = search(query)
    seconds = time.perf_counter() - began
    screen.title(f"Search: {query}")
    screen.fact("Found", f"{answers.total:,} documents in {duration(seconds)}")
    export = Export.objects.create(query=query)
    export.job.join(timeout=PATIENCE)
    export.refresh_from_db()
    screen.fact(
        "Exported",
        f"{export.documents:,} lines of CSV: the row of the export is job {export.pk}, and a worker ran it",
    )
    for hit in answers.hits[:ANSWERS]:
        screen.say()
        screen.say(f"  {screen.style(hit.document.title, 'bold')}")
        screen.say(f"  {screen.style(hit.document.path, 'quiet')}")
        for line in wrap(hit.pieces, shutil.get_terminal_size().columns - 4):
            words = (screen.mark(word) if matched else printable(word) for word, matched in line)
            screen.say(f"  {''.join(words)}")


def show_health(screen: Screen) -> None:
    """Print what the overview of the admin says about the queue."""
    found = full_health(DEFAULT_DB_ALIAS)
    screen.title("Is the queue healthy?")
    screen.fact("Health", found.headline)
    for problem in found.problems:
        screen.fact("Problem", str(problem))


def wrap(pieces: list[tuple[str, bool]], width: int) -> list[list[tuple[str, bool]]]:
    """Wrap the pieces into lines of at most `width` characters, and replace white space with blanks.

    A word that is longer than `width` gets a line of its own.
    """
    lines: list[list[tuple[str, bool]]] = [[]]
    room = width
    for piece, matched in pieces:
        for word in re.findall(r"\S+|\s+", piece):
            if not word.isspace():
                if len(word) > room and lines[-1] and lines[-1][-1][0] == " ":
                    lines.append([])
                    room = width
                lines[-1].append((word, matched))
                room -= len(word)
            elif lines[-1]:
                lines[-1].append((" ", False))
                room -= 1
    return lines
