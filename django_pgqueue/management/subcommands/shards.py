"""``manage.py pgqueue shard``: name a database that is to share the jobs, and drain one."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterable, Sequence
from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError
from django.db.models import Count, Q

from ... import conf
from ...formatting import counted
from ...jobs.relay import move_spread
from ...models import LiveJob, Worker
from ...postgres import fetch_value
from ...postgres.ask import ask_all
from ...tasks.paths import discover
from ...tasks.shards import MOST, SEEN_FOR, Shard, forget, read_shard
from .._arguments import at_least, database_alias
from .._conditions import check_database
from .._output import Columns, Output, Table
from .._parser import argument, subcommand

_ACTIONS = ("list", "add", "drain", "activate")
_NAME_SQL = "SELECT _pgqueue_name_shard(%s, %s)"
_DRAIN_SQL = "SELECT _pgqueue_drain_shard(%s)"
_COLUMNS: Columns = {
    "Shard": lambda row: row["shard"],
    "State": lambda row: row["state"],
    "Number": lambda row: _text(row["number"]),
    "Live jobs": lambda row: _text(row["live"]),
    "Running": lambda row: _text(row["running"]),
    "Workers": lambda row: _text(row["workers"]),
}


def _text(number: int | None) -> str:
    return "-" if number is None else str(number)


@subcommand(
    "shard",
    "List the shards, name a new one, or drain one",
    argument(
        "action", nargs="?", default="list", choices=_ACTIONS, help="list (the default), add, drain, activate"
    ),
    argument("alias", nargs="?", type=database_alias, help="the alias of the database"),
    argument(
        "--move", action="store_true", help="drain: hand over waiting jobs that are spread to other shards"
    ),
    argument("--number", type=at_least(0), metavar="N", help="of a new shard (default: the next one)"),
    shards="all",
)
def _shard(options: dict[str, Any]) -> Output:
    action, alias = options["action"], options["alias"]
    if action == "list":
        rows = _rows((alias,) if alias else conf.current().shards)
        table = Table.of(_COLUMNS, rows, right=(2, 3, 4, 5), empty="PGQUEUE has no SHARDS.")
        return Output([table], {"shards": rows})
    if alias is None:
        raise ArgumentTypeError(f"Name the database: manage.py pgqueue shard {action} ALIAS")
    check_database(alias)
    if options["move"] and action != "drain":
        raise ArgumentTypeError("--move is for: manage.py pgqueue shard drain ALIAS")
    if action == "add":
        return _add(alias, options["number"])
    return _drain(alias, draining=action == "drain", moves=options["move"])


def _add(alias: str, number: int | None) -> Output:
    if number is None:
        shard = read_shard(alias)
        number = _next_number({*conf.current().shards} - {alias}) if shard is None else shard.number
    if number >= MOST:
        raise CommandError(f"The number of a shard is at most {MOST - 1}. It would be {number}.")
    _run(alias, _NAME_SQL, alias, number)
    first = fetch_value(alias, "SELECT last_value + is_called::integer FROM pgqueue_job_id_seq")
    text = [f"The database {alias!r} is shard {number}. The id of its next job is {alias}:{first} or higher."]
    if alias not in conf.current().shards:
        text.append(f"Start its workers, and then add {alias!r} to PGQUEUE['SHARDS'] of the web processes.")
    return Output(text, {"shard": alias, "number": number})


def _next_number(others: Iterable[str]) -> int:
    """Return the number after the numbers of the other shards, all of which must answer."""
    answers = ask_all(sorted(others), read_shard)
    if answers.failed:
        raise CommandError(
            f"The numbers of the other shards are not known. {answers}\n"
            "Give a number that no shard has: --number N"
        )
    return max((shard.number for shard in answers.given.values() if shard is not None), default=-1) + 1


def _drain(alias: str, *, draining: bool, moves: bool) -> Output:
    if not _run(alias, _DRAIN_SQL, draining):
        raise CommandError(f"The database {alias!r} has no name. Run: manage.py pgqueue shard add {alias}")
    forget()
    moved = left = 0
    if moves:
        discover()
        for some, rest in move_spread(alias):
            moved, left = moved + some, left + rest
    (row,) = _rows([alias])
    within = f"within {SEEN_FOR:g} seconds, in each process"
    text = [f"Jobs are spread to {alias!r} again, {within}."]
    if draining:
        live = f"{counted(row['live'], 'live job')} left, and its workers run them"
        text = [f"No jobs are spread to {alias!r} any more, {within}. It has {live}."]
    if moves:
        text.append(f"The relay hands over {counted(moved, 'waiting job')} to the other shards.")
    if left:
        text.append(f"{counted(left, 'waiting job')} cannot be moved and will run there.")
    return Output(text, {**row, "moved": moved})


def _run(alias: str, statement: str, *parameters: Any) -> Any:
    try:
        return fetch_value(alias, statement, *parameters)
    except DatabaseError as error:
        raise CommandError(f"Nothing was changed: {str(error).splitlines()[0]}") from error


def _rows(aliases: Sequence[str]) -> list[dict[str, Any]]:
    """Return what is known of each shard."""
    given = ask_all(aliases, _row).given
    unknown = {"state": "did not answer", **dict.fromkeys(("number", "live", "running", "workers"))}
    return [given.get(alias, {"shard": alias, **unknown}) for alias in aliases]


def _row(alias: str) -> dict[str, Any]:
    shard = read_shard(alias)
    running = Count("pk", filter=Q(status="running"))
    counts = LiveJob._base_manager.using(alias).aggregate(live=Count("pk"), running=running)
    number, workers = None if shard is None else shard.number, Worker.objects.using(alias).count()
    return {"shard": alias, "state": _state(alias, shard), "number": number, **counts, "workers": workers}


def _state(alias: str, shard: Shard | None) -> str:
    if shard is None:
        return "no name"
    if shard.name != alias:
        return f"named {shard.name!r}"
    return "draining" if shard.is_draining else "active"
