"""One part of the state of the database: what was found, and the line that says when to act."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.db import connections
from django.db.models import TextChoices
from django.utils.formats import number_format
from django.utils.translation import gettext_lazy as _

from ... import conf
from ...formatting import period
from ...postgres.timeout import time_limit
from ...redaction import redact_text

PATIENCE = 1.0  # seconds that one statement may take
MOST = 50  # rows
CHARACTERS = 300  # of a statement
_READ = 1_000  # of them, so that patterns see more than is shown; the server keeps no more than 1,023 bytes
_FOLDER = Path(__file__).parent


class State(TextChoices):
    """What a part says."""

    FINE = "fine", _("fine")
    ACT = "act", _("act")
    HIDDEN = "hidden", _("not visible")
    """The role of this connection may not see enough to tell."""
    SLOW = "slow", _("too slow")
    """The server did not answer in time."""


_TITLES = {
    "locks": _("Lock contention"),
    "snapshots": _("Old transactions and held snapshots"),
    "tables": _("Tables"),
    "sessions": _("Connections"),
    "traffic": _("Commits and write-ahead log"),
    "wakeups": _("Wake-ups"),
    "ring": _("History"),
}


@dataclass(slots=True)
class Part:
    """One part."""

    code: str
    state: State
    finding: str
    """What was found, in one sentence."""
    rule: str
    """When to act, and how."""
    rows: list[Any] = field(default_factory=list)
    """Instances of one dataclass, the worst first."""

    @property
    def title(self) -> str:
        """What it is about."""
        return str(_TITLES[self.code])

    def as_json(self) -> dict[str, Any]:
        """Return it as values."""
        return {
            "code": self.code,
            "state": self.state.value,
            "finding": self.finding,
            "rule": self.rule,
            "rows": [{name: _plain(value) for name, value in asdict(row).items()} for row in self.rows],
        }


def rows_of(
    alias: str, name: str, columns: dict[str, str] | None = None, **parameters: Any
) -> list[tuple[Any, ...]]:
    """Run the statement of a file, and return its rows. Raises ``TimeLimitReached``.

    ``columns``: the names that differ between versions of the server.
    """
    statement = (_FOLDER / f"{name}.sql").read_text(encoding="utf-8")
    if columns is not None:
        statement = statement.format(**columns)
    with time_limit(alias, PATIENCE), connections[alias].cursor() as cursor:
        cursor.execute(statement, {"most": MOST, "characters": _READ, **parameters})
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def words(seconds: float) -> str:
    """Return a length of time in words."""
    return period(timedelta(seconds=seconds)) if seconds >= 1 else f"{seconds:.1f} s"


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def statement_text(statement: str) -> str:
    """Return a statement in one line, redacted; "…" if it is too long for that."""
    if len(statement.encode()) >= _READ and not conf.current().redact.are_names:
        return "…"  # what a pattern is to find may have been cut off
    return redact_text(" ".join(statement.split()))[:CHARACTERS]


def count_text(count: int) -> str:
    """Return a count with thousands separators."""
    return number_format(count, force_grouping=True)
