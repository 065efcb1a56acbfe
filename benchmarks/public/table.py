"""The table that is printed for a contestant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEAD = (
    f"{'':<20}{'jobs/s':>8}{'mean':>8}{'end to end, ms':>24}{'start, ms':>24}{'depth':>9}{'backlog':>9}"
    f"{'dead':>9}{'MB':>6}\n{'':<20}{'':>8}{'':>8}" + f"{'p50':>8}{'p95':>8}{'p99':>8}" * 2
)
COLUMNS = (
    ("completion_rate", 8),
    ("mean_completion_rate", 8),
    ("end_to_end_p50_ms", 8),
    ("end_to_end_p95_ms", 8),
    ("end_to_end_p99_ms", 8),
    ("subscriber_p50_ms", 8),
    ("subscriber_p95_ms", 8),
    ("subscriber_p99_ms", 8),
    ("queue_depth", 9),
    ("last_backlog", 9),
    ("dead_tuples", 9),
    ("database_mb", 6),
)

EXPLANATION = """
Each figure is the median of the samples of a phase, if not stated otherwise.
  jobs/s      jobs that finished, per second. In `peak` the producer keeps --depth jobs waiting; in all other
              phases it adds --rate jobs per second, half as many again in `pressure`
  mean        the same as a mean: it includes the time in which killed processes were away
  end to end  from the insert to the end of the job
  start       from the insert to the start of the job (the harness calls this subscriber)
  depth       jobs that were waiting
  backlog     jobs that were waiting or running at the end of the phase, as far as the queue can tell
  dead        the most dead rows in all tables of the database, as PostgreSQL's statistics estimate it
  MB          the size of the database at the end of the phase
"""


def table(name: str, parts: Mapping[str, Any]) -> str:
    """Return the table of a contestant."""
    lines = [f"\n{name}", HEAD]
    for part in parts.values():
        for phase, figures in part["phases"].items():
            cells = "".join(_cell(figures[column]).rjust(width) for column, width in COLUMNS)
            lines.append(f"{phase:<20}{cells}")
        if "broken" in part:
            lines.append(f"broken: {part['broken']}")
        elif any(code != 0 for code in part["exit_codes"]):
            lines.append(f"exit codes after SIGTERM, of which there should be only 0: {part['exit_codes']}")
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"
