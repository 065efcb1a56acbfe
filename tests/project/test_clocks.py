"""Nothing in the package depends on the clock of the machine, except for the places that are listed here.

Times of the queue are those of the server (``clock``), and durations are measured with the monotonic
clock. The scenario ``wrong clocks`` of the fault suite runs workers and web processes whose clocks are wrong.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "django_pgqueue"

# : How often a module may read the clock of the machine, and why it does.
ALLOWED = {
    "tasks/task.py": (1, "a delay for a backend of others, which takes only a time"),
    "telemetry/log.py": (1, "a line of the log, beside the times that logging itself writes"),
    "management/_reload.py": (2, "compared with the times of files on the same machine"),
    "management/subcommands/top.py": (1, "shown if the server cannot be reached"),
    "schedules/cron.py": (2, "any time will do to see whether an expression has runs"),
    "explanation/schedules.py": (1, "any time will do to put an expression into words"),
    "postgres/clock.py": (1, "the server has not told the time yet"),
    "tasks/options.py": (1, "whether a time is within 100 years"),
    "testing/calls.py": (1, "a job without a database"),
    "testing/factories.py": (3, "invented jobs"),
    "testing/modes.py": (2, "jobs without a database"),
}

_READS = {
    "now",
    "today",
    "utcnow",
    "time",
    "time_ns",
    "localdate",
    "localtime",
    "gmtime",
    "strftime",
    "ctime",
}
_OWNERS = {"datetime", "date", "timezone", "django_timezone", "time"}
_NEEDS_NONE = {"localtime", "localdate", "gmtime", "ctime"}
"""Functions that read the clock only if they are called without a time."""


def test_the_clock_of_the_machine_is_read_only_where_it_may_be() -> None:
    found = {
        str(path.relative_to(PACKAGE)): number
        for path in PACKAGE.rglob("*.py")
        if (number := sum(1 for _ in reads(path.read_text())))
    }
    assert found == {path: number for path, (number, _why) in ALLOWED.items()}


def test_pages_do_not_read_the_clock_of_the_browser_or_of_the_web_process() -> None:
    texts = [*PACKAGE.rglob("*.html"), *(PACKAGE / "static" / "django_pgqueue").glob("*.js")]
    pattern = re.compile(r"Date\.now|new Date\(\)|\{% now |\|\s*(timesince|timeuntil|naturaltime)\b(?!:)")
    assert not [
        (path.name, pattern.search(path.read_text())) for path in texts if pattern.search(path.read_text())
    ]


def test_each_way_to_read_the_clock_is_found() -> None:
    source = """
from time import monotonic, time
from django.utils import timezone
a = timezone.now(), datetime.now(UTC), time(), date.today(), datetime.utcnow(), timezone.localtime()
b = Field(default=timezone.now)
c = timezone.localtime(moment), datetime.time, job.now, moment.time(), monotonic(), Now(), show.time(moment)
import time as clock, datetime as dt
d = clock.time(), dt.datetime.now(), clock.monotonic(), clock.strftime("%H", moment), clock.strftime("%H")
"""
    assert Counter(reads(source)) == {4: 6, 5: 1, 8: 3}


def reads(source: str) -> Iterator[int]:
    """Yield the line of each expression that reads the clock of the machine."""
    if not any(
        word in source
        for word in ("timezone", "import datetime", "from datetime", "import time", "from time")
    ):
        return  # most files; to parse them all takes seconds
    nodes = list(ast.walk(ast.parse(source)))
    owners, names = set(_OWNERS - {"time"}), set()
    for node in nodes:
        if isinstance(node, ast.Import):
            owners |= {each.asname or each.name for each in node.names if each.name in _OWNERS}
        elif isinstance(node, ast.ImportFrom) and node.module in {"time", "django.utils.timezone"}:
            names |= {each.asname or each.name for each in node.names if each.name in _READS}
    arguments = {
        id(node.func): len(node.args) + len(node.keywords) for node in nodes if isinstance(node, ast.Call)
    }
    for node in nodes:
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        if isinstance(node, ast.Attribute) and node.attr in _READS:
            owner = (
                node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            )
            is_type = (owner, node.attr) == ("datetime", "time")
            name = node.attr if owner in owners and not is_type else None
        else:
            name = node.id if isinstance(node, ast.Name) and node.id in names else None
        if name is None or not isinstance(node.ctx, ast.Load):
            continue
        needs = 1 if name in _NEEDS_NONE else 2 if name == "strftime" else 99
        if arguments.get(id(node), 0) < needs:
            yield node.lineno
