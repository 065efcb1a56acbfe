"""Write the figures into the pages: ``python3 dev.py bench pages``, after ``bench figures --json FILE``.

The file is ``docs/_static/performance/figures.json``, or another one that is given, which is then copied
there. A comment, which no reader sees, says where a table is, and a test compares them::

    <!-- figures: lengths -->
    ...
    <!-- end figures -->
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import textwrap
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .contestants import OURS
from .scenarios.history import SIZES
from .scenarios.producers import COUNTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["FIGURES", "PAGES", "Figures", "main", "updated"]

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/_static/performance"
FIGURES = FOLDER / "figures.json"
PAGES = tuple(
    ROOT / name for name in ("README.md", "docs/explanation/performance.md", "benchmarks/public/README.md")
)

BLOCK = re.compile(r"^<!-- figures: (?P<name>[\w-]+) -->\n(?:.*\n)*?<!-- end figures -->$", re.MULTILINE)
WIDTH = 120
NONE = "-"
RATE = "jobs/s"
QUEUES = {
    OURS: "**django_pgqueue**",
    "pgqueuer": "PgQueuer",
    "oban": "Oban (Python)",
    "awa": "Awa (Python)",
    "procrastinate": "procrastinate",
    "django-ox": "django-ox",
    "django-tasks-db": "django-tasks-db",
    "celery": "Celery",
}
#: A row of the table of bad days: scenario, variant, what it is compared with.
BAD_DAYS = (
    ("a session holds a snapshot", "snapshot", OURS, ""),
    ("three long transactions overlap", "analytics", "three long reports", "plain"),
    ("beside 1,000,000 future jobs of a higher priority", "future", "beside future jobs", "plain"),
    ("a backlog of 1,000,000 jobs", "ready", "backlog", "plain"),
    ("jobs of 100 priorities", "spread", "100 priorities", "plain"),
    ("jobs of 50 queues", "spread", "50 queues", "plain"),
    ("64 idle sessions listen", "listeners", "64 idle sessions", "plain"),
    ("beside a bulk insert (compared with one into another database)", "loading", "bulk insert",
     "bulk insert into another database"),
)  # fmt: skip


class Figures:
    """A run: medians, and tables of them as Markdown."""

    def __init__(self, run: dict[str, Any]) -> None:
        self.run = run
        self._scenarios = {each["name"]: each for each in run["scenarios"]}

    def values(self, scenario: str, variant: str, figure: str) -> list[float]:
        """Return a figure of all rounds."""
        rounds = self._scenarios.get(scenario, {}).get("rounds", {}).get(variant, [])
        return [each[figure] for each in rounds if figure in each]

    def median(self, scenario: str, variant: str, figure: str = RATE) -> float | None:
        """Return the median of all rounds, None if it was not measured."""
        values = self.values(scenario, variant, figure)
        return statistics.median(values) if values else None

    def shown(self, scenario: str, variant: str, figure: str = RATE) -> str:
        """Return the median as text."""
        return number(self.median(scenario, variant, figure))

    def ratio(self, scenario: str, variant: str, against: str, figure: str = RATE) -> str:
        """Return the median of the ratios of each round, as text."""
        pairs = zip(
            self.values(scenario, variant, figure), self.values(scenario, against, figure), strict=False
        )
        ratios = [one / other for one, other in pairs if other]
        return f"{statistics.median(ratios):.2f}" if ratios else NONE

    @cached_property
    def queues(self) -> list[str]:
        """The queues that took part, in the order of the tables."""
        return [name for name in QUEUES if name in self.run["contestants"]]

    def both(self, name: str) -> str:
        """Return the name of the best configuration, or the queue itself if it has only one."""
        return f"{name}-best" if f"{name}-best" in self.run["contestants"] else name


def number(value: float | None) -> str:
    """Write a figure with at least three digits."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 100 else f"{float(f'{value:.3g}'):g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def run(figures: Figures) -> str:
    """When, where, and with which versions the figures were measured."""
    about, machine, server = figures.run, figures.run["machine"], figures.run["server"]
    rounds = [len(each) for scenario in about["scenarios"] for each in scenario["rounds"].values()]
    return textwrap.fill(
        f"Measured on {about['date']} in {about['minutes']:.0f} minutes by `{about['command']}`, at commit"
        f" `{about['commit']}`: {machine['processor']}, {machine['cores']} cores, {machine['system']}; Python"
        f" {machine['Python']}, Django {machine['Django']}, psycopg {machine['psycopg']}; PostgreSQL"
        f" {server['server_version']} with `fsync = {server['fsync']}`, `synchronous_commit ="
        f" {server['synchronous_commit']}` and `shared_buffers = {server['shared_buffers']}`. Each figure is"
        f" the median of {' to '.join(dict.fromkeys(map(str, (min(rounds), max(rounds)))))} rounds.",
        WIDTH,
        break_long_words=False,
        break_on_hyphens=False,
    )


def contestants(figures: Figures) -> str:
    """The versions and configurations, and what could not run."""
    about = figures.run["contestants"]
    rows = []
    for name in figures.queues:
        best = figures.both(name)
        services = [about[each]["service"] for each in dict.fromkeys((name, best)) if about[each]["service"]]
        versions = ", ".join([*about[name]["versions"], *services]) or "this commit"
        cells = [about[name]["configuration"], about[best]["configuration"] if best != name else NONE]
        rows.append([QUEUES[name], versions, *cells])
    skipped = [
        f"{name} was left out: {' '.join(why.split())}" for name, why in figures.run["skipped"].items()
    ]
    failed = [
        f"{variant} failed in `{scenario['name']}`: {why.strip().splitlines()[0]}."
        for scenario in figures.run["scenarios"]
        for variant, why in scenario.get("failed", {}).items()
    ]
    return "\n\n".join([table(["Queue", "Versions", "Default", "Best"], rows), *skipped, *failed])


def of_both(figures: Figures, head: Sequence[str], cells: Callable[[str], list[str]]) -> str:
    """Return a table with a row for each configuration of each queue."""
    rows = [
        [QUEUES[name] if variant == name else "", "default" if variant == name else "best", *cells(variant)]
        for name in figures.queues
        for variant in dict.fromkeys((name, figures.both(name)))
    ]
    return table(["Queue", "Configuration", *head], rows)


def lengths(figures: Figures) -> str:
    """Jobs per second by the length of the jobs."""
    names = ("drain", "drain-1", "drain-10", "drain-100")
    head = ["jobs that do nothing", "that wait for 1 ms", "10 ms", "100 ms"]
    shown = of_both(figures, head, lambda variant: [figures.shown(name, variant) for name in names])
    return f"{shown}\n| *bare SQL, one process* | | {figures.shown('drain', 'bare-sql')} | | | |"


def work(figures: Figures) -> str:
    """Jobs that insert a row, and the pick-up."""

    def cells(variant: str) -> list[str]:
        delay = " / ".join(figures.shown("latency", variant, f"p{part} ms") for part in (50, 99))
        return [figures.shown("inserts", variant), delay]

    floor = " / ".join(figures.shown("latency", "bare-notify", f"p{part} ms") for part in (50, 99))
    shown = of_both(figures, ["Insert jobs/s", "Pick-up p50 / p99, ms"], cells)
    return f"{shown}\n| *plain loops; NOTIFY and claim* | | {figures.shown('inserts', 'loops')} | {floor} |"


def producers(figures: Figures) -> str:
    """What processes enqueue while workers run."""
    rows = [
        [
            QUEUES[name],
            *(
                " / ".join(
                    figures.shown(f"producers-{count}", figures.both(name), figure)
                    for figure in ("enqueued/s", "run/s")
                )
                for count in COUNTS
            ),
            figures.shown("bulk", figures.both(name)),
        ]
        for name in figures.queues
    ]
    head = [f"{count} process{'es' if count > 1 else ''}, enqueued / run per second" for count in COUNTS]
    floor = ["*a bare INSERT of `unnest()`*", *[""] * len(COUNTS), figures.shown("bulk", "unnest")]
    return table(["Queue", *head, "Bulk enqueue, jobs/s"], [*rows, floor])


def history(figures: Figures) -> str:
    """What finished jobs cost."""
    rows = []
    for name in figures.queues:
        variants = [f"{figures.both(name)}, {size}" for size in SIZES]
        if figures.median("history", variants[0]) is not None:
            rates = [figures.shown("history", variant) for variant in variants]
            rows.append([QUEUES[name], *rates, figures.ratio("history", variants[-1], variants[0])])
    head = [f"{size:,} finished jobs" if size else "none" for size in SIZES]
    return table(["Queue", *head, "largest compared with none"], rows)


def bad_days(figures: Figures) -> str:
    """Drains under bad conditions."""
    rows = []
    for label, scenario, variant, against in BAD_DAYS:
        if against:
            rate, last = figures.ratio(scenario, variant, against), "last tenth / first"
        else:
            rate, last = figures.shown(scenario, variant, "of the plain rate"), "last tenth / first tenth"
        rows.append(
            [
                label,
                rate,
                figures.shown(scenario, variant, last),
                figures.shown(scenario, variant, "server us/job"),
            ]
        )
    head = ["No-op jobs, one process", "Rate, compared with the plain drain in the same round"]
    return table([*head, "Last tenth of the run, compared with the first", "Server, µs a job"], rows)


def costs(figures: Figures) -> str:
    """What a job costs."""
    shown = figures.shown
    drained = "history-off"
    kept = [shown("payloads", size, RATE) for size in ("10 kB", "1 MB")]
    half = [shown("half-load", "half load", f"p{part} ms") for part in (50, 99)]
    idle = (
        f"{shown('idle', 'idle worker', 'statements/s')} transactions a second in its database,"
        f" {shown('idle', 'idle worker', '% of a core')} % of a core"
    )
    rows = [
        [
            "WAL of a no-op job, from enqueue to history",
            f"{shown(drained, 'history', 'WAL bytes/job')} bytes",
        ],
        [
            "the same without history (`retention = 0`)",
            f"{shown(drained, 'history off', 'WAL bytes/job')} bytes",
        ],
        ["commits for a job, under load", shown(drained, "history", "commits/job")],
        ["an idle worker command", idle],
        [
            "memory of a worker process, over bare Django",
            f"{shown('idle', 'idle worker', 'MB over bare Django')} MB",
        ],
        ["jobs with arguments of 10 kB; 1 MB", f"{'; '.join(kept)} jobs/s"],
        ["jobs that fail once and are retried", f"{shown('retries', 'every job fails once')} jobs/s"],
        ["at half of the drain's rate: from the commit to the start", f"p50 {half[0]} ms, p99 {half[1]} ms"],
        [
            "processor time of the server, and of the worker process, for a no-op job",
            " and ".join(shown("future", "plain", f"{who} us/job") for who in ("server", "worker")) + " µs",
        ],
        [
            "insert jobs, compared with plain loops in as many threads",
            figures.ratio("inserts", OURS, "loops"),
        ],
        [
            "insert jobs with a new connection for each job, instead of kept ones",
            f"{shown('inserts', 'each')} instead of {shown('inserts', OURS)} jobs/s",
        ],
    ]
    return table(["", ""], rows)


def public(figures: Figures) -> str:
    """The phases of the public harness."""
    results = figures.run["public"]["contestants"]
    phases: dict[str, dict[str, dict[str, Any]]] = {}
    for name, result in results.items():
        for part in result.get("parts", {}).values():
            for phase, measured in part["phases"].items():
                phases.setdefault(phase, {})[name] = measured
    rows = []
    for phase, measured in phases.items():
        if phase == "peak":
            cells = [number(measured.get(name, {}).get("completion_rate")) for name in results]
            rows.append([f"{phase}, jobs per second", *cells])
        else:
            rows.append(
                [
                    phase,
                    *(
                        " / ".join(
                            number(measured.get(name, {}).get(f"end_to_end_p{part}_ms")) for part in (50, 99)
                        )
                        for name in results
                    ),
                ]
            )
    return table(["", *results], rows)


def readme(figures: Figures) -> str:
    """The table of the README: the default and the best configuration in one cell."""

    def pair(name: str, scenario: str, figure: str = RATE) -> str:
        variants = dict.fromkeys((name, figures.both(name)))
        return " / ".join(figures.shown(scenario, variant, figure) for variant in variants)

    rows = [
        [
            QUEUES[name],
            *(pair(name, scenario) for scenario in ("drain", "drain-10", "inserts")),
            pair(name, "latency", "p50 ms"),
        ]
        for name in figures.queues
        if name not in ("awa", "django-ox", "oban")
    ]
    head = [
        "Default / best configuration, two cores for everything",
        "No-op jobs/s",
        "Jobs/s that wait 10 ms",
        "Jobs/s that insert a row",
    ]
    return table([*head, "Pick-up when idle, p50, ms"], rows)


BLOCKS: dict[str, Callable[[Figures], str]] = {
    "run": run,
    "contestants": contestants,
    "lengths": lengths,
    "work": work,
    "producers": producers,
    "history": history,
    "bad-days": bad_days,
    "costs": costs,
    "public": public,
    "readme": readme,
}


def updated(text: str, figures: Figures) -> str:
    """Return the page with the figures of this run."""

    def block(found: re.Match[str]) -> str:
        name = found["name"]
        return f"<!-- figures: {name} -->\n{BLOCKS[name](figures)}\n<!-- end figures -->"

    return BLOCK.sub(block, text)


def main(arguments: Sequence[str]) -> None:
    """Write the pages and the picture."""
    from .plots import draw

    for file in arguments:
        scenarios = json.loads(Path(file).read_text())["scenarios"]
        if any(len(found) < 2 for each in scenarios for found in each["rounds"].values()):
            raise SystemExit(
                f"Nothing was written: {file} has only one round of some scenarios: the machine was slow. "
                f"Measure for longer: python3 dev.py bench figures --minutes 60 --json {file}"
            )
        shutil.copyfile(file, FIGURES)
    figures = Figures(json.loads(FIGURES.read_text()))
    for path in PAGES:
        path.write_text(updated(path.read_text(), figures))
    for picture in draw(figures.run, FOLDER, only="overview"):
        print(picture)
