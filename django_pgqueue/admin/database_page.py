"""The page of the database: each part of ``monitoring.database`` with its badge, the line that says when to
act, and a table.

The texts of statements may contain the arguments of jobs, so only users who may view those see them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _, pgettext_lazy

from ..checks.doctor import examine
from ..formatting import age, number
from ..monitoring.database import LIVE, DatabasePart, PartState, database, has_too_many, is_too_old
from . import display
from .base import DatabaseAdmin
from .console import console_page, is_restricted, paused

LARGE = 2**24  # bytes of a table that is always shown
ARGUMENTS_PERMISSION = "django_pgqueue.view_arguments_job"


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


def doctor_page(admin: DatabaseAdmin[Any], request: HttpRequest) -> TemplateResponse:
    """Return the page that examines everything, each time it is opened: this takes sessions and commits."""
    found = [
        {
            "title": each.title,
            "badge": display.badge(f"check-{each.state}", str(_DOCTOR_STATES[each.state])),
            "complaints": each.complaints,
            "note": each.note,
        }
        for each in examine(admin.writes_to)
    ]
    title, template = str(_("Doctor")), "admin/django_pgqueue/doctor.html"
    return console_page(admin, request, template, title, examinations=found)


_DOCTOR_STATES = {"fine": PartState.FINE.label, "minor": _("minor"), "act": PartState.ACT.label}


def _section(part: DatabasePart) -> dict[str, Any]:
    """Return a part with whether to act, and its rows. Rows that matter less are folded."""
    columns = _COLUMNS.get(part.code, ())
    shown: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for row in part.rows if columns else ():
        line = {
            "cells": [cell(row) for _label, cell in columns],
            "statements": [(label, getattr(row, name)) for label, name in _STATEMENTS.get(part.code, ())],
            "is_alarming": part.code in _ALARMS and _ALARMS[part.code](row),
        }
        shown[part.code == "tables" and _is_minor(row)].append(line)
    return {
        "part": part,
        "badge": display.badge(f"check-{part.state}", str(part.state.label)),
        "columns": [label for label, _cell in columns],
        "rows": shown[False],
        "others": shown[True],
    }


def _is_minor(table: Any) -> bool:
    """Return whether a table is small, healthy, and not one that jobs go through."""
    is_main = table.name in {LIVE, "pgqueue_job_kept"} or table.is_current
    return not (is_main or has_too_many(table) or table.table_bytes + table.index_bytes > LARGE)


def _session(pid: int | None, name: str) -> str:
    return name if pid is None else f"{pid} ({name})" if name else str(pid)


def _known(value: Any, show: Callable[[Any], str]) -> str:
    return "" if value is None else show(value)


def _size(count: float) -> str:
    return str(filesizeformat(int(count)))


_ALARMS: dict[str, Callable[[Any], bool]] = {"snapshots": is_too_old, "tables": has_too_many}
_STATEMENTS = {
    "locks": (
        (pgettext_lazy("statement", "waits"), "statement"),
        (pgettext_lazy("statement", "blocks"), "blocker_statement"),
    ),
    "snapshots": ((_("statement"), "statement"),),
}
_PREPARED = _("a prepared transaction")
_CURRENT = {True: "{} ({})", False: "{}"}
_KINDS = {
    "transaction": _("transaction"),
    "prepared": _("prepared transaction"),
    "slot": _("replication slot"),
}
_SINCE = {False: _("since the last look"), True: _("since the server's sums were reset")}
#: The columns of each part that has a table: their headings, and what makes their cells.
_COLUMNS: dict[str, tuple[tuple[Any, Callable[[Any], Any]], ...]] = {
    "locks": (
        (_("Waiting session"), lambda wait: _session(wait.pid, wait.program)),
        (_("how long"), lambda wait: age(wait.seconds)),
        (_("table"), lambda wait: wait.table),
        (_("lock"), lambda wait: wait.lock),
        (
            _("Blocked by"),
            lambda lock: _session(lock.blocked_by, lock.blocker) if lock.blocked_by else _PREPARED,
        ),
        (_("state"), lambda wait: wait.blocker_state),
        (_("transaction open for"), lambda wait: _known(wait.blocker_seconds, age)),
    ),
    "snapshots": (
        (_("Name"), lambda held: _session(held.pid, held.name)),
        (_("kind"), lambda held: _KINDS[held.kind]),
        (_("state"), lambda held: held.state if held.is_visible else _("not visible")),
        (_("how long"), lambda held: _known(held.seconds, age)),
        (_("transactions since"), lambda held: _known(held.transactions, number)),
        (_("role"), lambda held: held.role),
    ),
    "tables": (
        (_("Table"), lambda table: format_html(_CURRENT[bool(table.is_current)], table.name, _("current"))),
        (_("live rows"), lambda table: number(table.live_rows)),
        (_("dead rows"), lambda table: number(table.dead_rows)),
        (_("size"), lambda table: _size(table.table_bytes)),
        (_("indexes"), lambda table: _size(table.index_bytes)),
        (_("last vacuum"), lambda table: display.time(table.vacuumed_at)),
        (_("last analyze"), lambda table: display.time(table.analyzed_at)),
    ),
    "sessions": (
        (_("Program"), lambda program: program.name or _("(no name)")),
        (_("connections"), lambda program: number(program.connections)),
        (pgettext_lazy("connections", "active"), lambda program: number(program.active)),
        (_("idle in a transaction"), lambda program: number(program.in_transaction)),
        (_("not visible"), lambda program: number(program.hidden)),
        (_("in this database"), lambda program: number(program.in_this_database)),
    ),
    "traffic": (
        (_("Time"), lambda row: _SINCE[row.is_since_reset]),
        (_("length"), lambda row: age(row.seconds)),
        (_("commits a second"), lambda row: f"{row.commits_per_second:.1f}"),
        (_("rollbacks a second"), lambda row: f"{row.rollbacks_per_second:.1f}"),
        (_("log a second"), lambda row: _size(row.wal_bytes_per_second)),
        (_("deadlocks"), lambda row: number(row.deadlocks)),
        (
            _("checkpoints by time / forced"),
            lambda row: f"{number(row.timed_checkpoints)} / {number(row.forced_checkpoints)}",
        ),
    ),
}
