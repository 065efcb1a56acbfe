"""A Sphinx extension: a search of the site for one of these words finds its page first.

Sphinx ranks pages by how often a word stands in them, so each page gets its words as entries of the index,
which rank higher. After the build, the words are searched in ``searchindex.js``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

#: Pages, and the words that lead to them. The text of the page has each word, too.
WORDS = {
    "explanation/performance": "benchmark",
    "explanation/scaling": "Kafka, scaling",
    "howto/admin": "dashboard",
    "howto/alerts": "alert",
    "howto/async": "async, asyncio",
    "howto/atomic": "exactly once",
    "howto/autoscaling": "autoscaling, HPA, KEDA",
    "howto/celery": "Celery, Flower",
    "howto/change": "cancel, revoke",
    "howto/citus": "Citus, PgDog",
    "howto/concurrency": "concurrency, lock, mutex",
    "howto/deployment": "Docker, Kubernetes, systemd",
    "howto/enqueue": "countdown, delay, eta, priority",
    "howto/failures": "dead letter",
    "howto/fairness": "noisy neighbor",
    "howto/high-availability": "failover, Patroni, replica",
    "howto/idempotency": "idempotent",
    "howto/managed": "Aurora, Heroku, RDS, Supabase",
    "howto/monitoring": "Grafana, metrics, Prometheus",
    "howto/observe": "OpenTelemetry, Sentry",
    "howto/pgbouncer": "PgBouncer, pooler",
    "howto/progress": "progress bar",
    "howto/rate-limits": "rate limit, throttle",
    "howto/results": "return value",
    "howto/retries": "backoff, retry",
    "howto/schedules": "beat, cron, periodic",
    "howto/steps": "checkpoint, durable, saga",
    "howto/tenants": "multi-tenant",
    "howto/testing": "pytest",
    "howto/timeouts": "deadline, time limit",
    "howto/troubleshooting": "stuck",
    "howto/unique": "debounce, singleton, unique",
    "howto/workflows": "chain, chord, DAG, workflow",
    "reference/limits": "quota",
    "reference/settings": "configuration",
    "reference/stability": "deprecation, semantic versioning",
}


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_index_entries)
    app.connect("build-finished", search)


def add_index_entries(app: Sphinx, page: str, source: list[str]) -> None:
    """Add the words of a page below its title. A forge shows the page without them."""
    if words := WORDS.get(page):
        title, _, text = source[0].partition("\n")
        entries = [f"```{{index}} ! {word}\n```\n" for word in words.split(", ")]
        source[0] = "\n".join([title, "", *entries, text])


def search(app: Sphinx, error: Exception | None) -> None:
    """Refuse a site in which one of the words leads elsewhere, or to a page that lacks it."""
    if error is not None or app.builder.format != "html":
        return
    index = json.loads(Path(app.outdir, "searchindex.js").read_text()[len("Search.setIndex(") : -1])
    wrong = []
    for page, words in WORDS.items():
        text = Path(app.env.doc2path(page)).read_text().lower() if page in app.env.found_docs else ""
        for word in words.split(", "):
            _, first = max(scores(index, word.lower()), default=(0, "no page"))
            if first != page or word.lower() not in text:
                wrong.append(
                    f"{word}: not {page}, but {first}" if first != page else f"{page} lacks {word!r}"
                )
    if wrong:
        raise ExtensionError("Words lead to the wrong page. " + "; ".join(wrong))


def scores(index: dict[str, Any], query: str) -> Iterator[tuple[float, str]]:
    """Yield the score and the page of what ``searchtools.js`` finds by titles, entries and names."""
    pages = index["docnames"]
    for title, places in index["alltitles"].items():
        if query in title.lower() and len(query) >= len(title) / 2:
            for page, _ in places:
                yield 15 * len(query) / len(title) + (index["titles"][page] == title), pages[page]
    for entry, places in index["indexentries"].items():
        if query in entry and len(query) >= len(entry) / 2:
            for page, *_ in places:
                yield 100 * len(query) / len(entry), pages[page]
    for objects in index["objects"].values():
        for page, _, priority, _, name in objects:
            if query in name.lower():
                exact = query == name.lower()
                yield (11 if exact else 6) + {0: 15, 1: 5}.get(priority, -5), pages[page]
