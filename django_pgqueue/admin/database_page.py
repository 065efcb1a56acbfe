"""The page of the database: each part of ``monitoring.database`` with its badge, the line that says when to
act, and a table.

The texts of statements may contain the arguments of jobs, so only users who may view those see them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from .. import formatting
from ..formatting import age
from ..monitoring.database.parts import (
    DatabasePart,
    HeldSnapshot,
    LockWait,
    PartState,
    Program,
    TableSize,
    Traffic,
    database,
)
from . import display
from .console import console_page, is_restricted
from .paused import paused

if TYPE_CHECKING:
    from .base import DatabaseAdmin

LARGE = 2**24  # bytes of a table that is always shown
ARGUMENTS_PERMISSION = "django_pgqueue.view_arguments_job"


class DatabaseRow(NamedTuple):
    """One row of a table."""

    name: Any
    cells: Sequence[Any]
    more: Sequence[tuple[Any, str]] = ()
    """Labels and statements, which are shown below it."""
    is_alarming: bool = False


def database_page(admin: DatabaseAdmin[Any], request: HttpRequest) -> TemplateResponse:
    """Return the page for a user who may view statistics."""
    statements = request.user.has_perm(ARGUMENTS_PERMISSION) and not is_restricted(admin.admin_site, request)
    parts = database(admin.database, statements=statements)
    return console_page(
        admin,
        request,
        "admin/django_pgqueue/database.html",
        str(_("Database")),
        pgqueue_paused=paused(admin.admin_site, request, admin.database),
        sections=[_section(part) for part in parts],
        to_act=[part for part in parts if part.state == PartState.ACT],
        hides_statements=not statements,
    )


def _section(part: DatabasePart) -> dict[str, Any]:
    """Return a part with whether to act, and its rows. Those that matter less are folded."""
    columns, row = _TABLES.get(part.code, ((), None))
    folded = [each for each in part.rows if isinstance(each, TableSize) and _is_minor(each)]
    return {
        "part": part,
        "badge": display.badge(f"check-{part.state}", str(PartState(part.state).label)),
        "columns": columns,
        "rows": [row(each) for each in part.rows if each not in folded] if row else [],
        "others": [row(each) for each in folded] if row else [],
    }


def _is_minor(table: TableSize) -> bool:
    """Return whether a table is small, healthy, and not one of those that jobs go through."""
    is_main = table.name in {"pgqueue_job_live", "pgqueue_job_kept"} or bool(table.is_current)
    return not (is_main or table.has_too_many or table.total_bytes > LARGE)


_KINDS = {
    "transaction": _("transaction"), "prepared": _("prepared transaction"), "slot": _("replication slot"),
}  # fmt: skip


def _wait(wait: LockWait) -> DatabaseRow:
    blocker = _session(wait.blocked_by, wait.blocker) if wait.blocked_by else _("a prepared transaction")
    since = "" if wait.blocker_seconds is None else age(wait.blocker_seconds)
    return DatabaseRow(
        _session(wait.pid, wait.program),
        [age(wait.seconds), wait.table, wait.lock, blocker, wait.blocker_state, since],
        (
            (pgettext_lazy("statement", "waits"), wait.statement),
            (pgettext_lazy("statement", "blocks"), wait.blocker_statement),
        ),
    )


def _held(held: HeldSnapshot) -> DatabaseRow:
    name = held.name if held.pid is None else _session(held.pid, held.name)
    seconds = "" if held.seconds is None else age(held.seconds)
    state = held.state if held.is_visible else _("not visible")
    transactions = "" if held.transactions is None else formatting.number(held.transactions)
    cells = [_KINDS[held.kind], state, seconds, transactions, held.role]
    return DatabaseRow(name, cells, ((_("statement"), held.statement),), held.is_too_old)


def _table(table: TableSize) -> DatabaseRow:
    name = format_html("{} ({})", table.name, _("current")) if table.is_current else table.name
    cells = [
        formatting.number(table.live_rows),
        formatting.number(table.dead_rows),
        _size(table.table_bytes),
        _size(table.index_bytes),
        display.time(table.vacuumed_at),
        display.time(table.analyzed_at),
    ]
    return DatabaseRow(name, cells, is_alarming=table.has_too_many)


def _program(program: Program) -> DatabaseRow:
    used = program.connections, program.active, program.in_transaction
    counts = *used, program.hidden, program.in_this_database
    return DatabaseRow(program.name or _("(no name)"), [formatting.number(count) for count in counts])


def _traffic(traffic: Traffic) -> DatabaseRow:
    what = _("since the server's sums were reset") if traffic.is_since_reset else _("since the last look")
    cells = [
        age(traffic.seconds),
        *(f"{rate:.1f}" for rate in (traffic.commits_per_second, traffic.rollbacks_per_second)),
        _size(traffic.wal_bytes_per_second),
        formatting.number(traffic.deadlocks),
        f"{formatting.number(traffic.timed_checkpoints)} / {formatting.number(traffic.forced_checkpoints)}",
    ]
    return DatabaseRow(what, cells)


#: The columns of each part that has a table, and what makes its rows.
_TABLES: dict[str, tuple[Sequence[Any], Callable[[Any], DatabaseRow]]] = {
    "locks": (
        (_("Waiting session"), _("how long"), _("table"), _("lock"), _("Blocked by"), _("state"),
                 _("transaction open for")),
        _wait,
    ),
    "snapshots": (
        (_("Name"), _("kind"), _("state"), _("how long"), _("transactions since"), _("role")),
        _held,
    ),
    "tables": (
        (_("Table"), _("live rows"), _("dead rows"), _("size"), _("indexes"), _("last vacuum"),
                 _("last analyze")),
        _table,
    ),
    "sessions": (
        (_("Program"), _("connections"), pgettext_lazy("connections", "active"),
                 _("idle in a transaction"), _("not visible"), _("in this database")),
        _program,
    ),
    "traffic": (
        (_("Time"), _("length"), _("commits a second"), _("rollbacks a second"), _("log a second"),
                 _("deadlocks"), _("checkpoints by time / forced")),
        _traffic,
    ),
}  # fmt: skip


def _session(pid: int, name: str) -> str:
    return f"{pid} ({name})" if name else str(pid)


def _size(count: float) -> str:
    return str(filesizeformat(int(count)))
