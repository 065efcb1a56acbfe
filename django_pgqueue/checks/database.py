"""System checks that query the database, for ``manage.py check --database default`` and each start of a
worker.

If there are unapplied migrations, these checks only warn about them: ``migrate`` runs the checks first, and
an error would stop it. When the command is ``migrate``, the warning is left out, too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Tags
from django.db import NotSupportedError, OperationalError, ProgrammingError, connections
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Max, Model
from psycopg.errors import InsufficientPrivilege

from .. import conf
from ..formatting import exact, first_few
from ..maintenance.payloads import payload_models
from ..models import Job, JobBatch, LiveJob, QueueStatus, Ring
from ..operations import SQL_FOLDER, lost_functions
from ..postgres import fetch_rows, fetch_value, sql_of
from ..postgres.replicas import is_replica_of
from ..postgres.roles import filtered, guarded, kept_roles, lacking, unguarded
from ..tasks.shards import read_shard
from .backends import check, message
from .tasks import queue_databases

_LABEL = "django_pgqueue"
_ROUTINE = re.compile(r"^(CREATE|DROP) (?:FUNCTION|PROCEDURE) (_?pgqueue_\w+)", re.MULTILINE)
_INSTALLED = sql_of(__file__, "installed")


@check(Tags.database)
def check_database(
    app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any
) -> Iterator[CheckMessage]:
    """E012, E026, W003, W018 and ``database_problems``, for the given databases that jobs go to."""
    for alias in checkable(databases):
        try:
            if not (waiting := unapplied(alias, _LABEL)):
                found = database_problems(alias)
                yield from found
                if not any(isinstance(each, Error) for each in found):
                    yield from _sequence(alias)
                yield from _replica(alias)
            elif sys.argv[1:2] != ["migrate"]:
                yield message(
                    "W003",
                    f"Migrations of {_LABEL} are not applied to the database {alias!r}: "
                    f"{', '.join(waiting)}.",
                    f"Run: python manage.py migrate --database {alias}",
                )
        except NotSupportedError as problem:
            yield _too_old(alias, problem)
        except OperationalError as problem:
            yield message(
                "E012",
                f"The database {alias!r} of the jobs cannot be reached: {str(problem).strip()}",
                f"Check that the server is running and that DATABASES[{alias!r}] is correct.",
            )


def _replica(primary: str) -> Iterator[CheckMessage]:
    replica = "" if conf.problems() else conf.current().replicas.get(primary, "")
    if not replica or replica not in connections.settings:
        return
    try:
        if is_replica_of(replica, primary):
            return
        wrong = f"is not a standby of the database {primary!r}"
    except OperationalError as problem:
        wrong = f"does not answer: {str(problem).strip()}"
    yield message(
        "W018",
        f"The database {replica!r}, which PGQUEUE['REPLICAS'] names, {wrong}. The admin would show it.",
        f"Correct DATABASES[{replica!r}], or remove it from PGQUEUE['REPLICAS'].",
    )


def checkable(databases: Iterable[str] | None) -> list[str]:
    """Return the databases that jobs go to. E001 reports databases that are not PostgreSQL."""
    ours = sorted({*queue_databases()} & {*(databases or ())})
    return [alias for alias in ours if connections[alias].vendor == "postgresql"]


def database_problems(alias: str) -> list[CheckMessage]:
    """Return the problems of the database ``alias``: errors that prevent workers from working, and warnings.

    E009: tables are missing. E010: functions are missing. E011: the server is too old. E013: the ring of
    history has lost its row. E030: the functions expect their tables in another schema. W004: there are
    functions of another version. W005: the ring has another retention than PGQUEUE. W009: roles lack rights.
    E033, W017: a shard has another name, or none. E035: the role of the connection lacks a right.
    W011: the table of statuses has lost rows. W013: the encoding is not UTF8. E028, W015: row-level security
    hides jobs, or payloads. W019: a partition lacks the policies of tenants.

    Raises ``OperationalError`` if the server cannot be reached.
    """
    try:
        return list(_problems(alias))
    except NotSupportedError as problem:
        return [_too_old(alias, problem)]
    except ProgrammingError as error:
        if not isinstance(error.__cause__, InsufficientPrivilege):
            raise
        return [lacks_right(alias, error)]


def lacks_right(alias: str, error: Exception) -> CheckMessage:
    """Return the problem that the server has refused something to the role of the connection."""
    return message(
        "E035",
        f"The role of the database {alias!r} lacks a right that workers need: {str(error).strip()}.",
        "Connect with the role of the workers. If this is that role, run with the owner of the tables: "
        f"python manage.py pgqueue roles --apply --database {alias} --worker ROLE",
    )


def _problems(alias: str) -> Iterator[CheckMessage]:
    models: list[type[Model]] = [*apps.get_app_config(_LABEL).get_models(), LiveJob]
    tables, functions = {model._meta.db_table for model in models}, _functions()
    installed = {name for (name,) in fetch_rows(alias, _INSTALLED, (sorted(tables),))}
    migrate = f"Run: python manage.py migrate --database {alias} {_LABEL}"
    if missing := tables - installed:
        yield message(
            "E009",
            f"The database {alias!r} lacks tables of django_pgqueue: {first_few(sorted(missing))}.",
            f"{migrate}. In tests, do not use --nomigrations or MIGRATION_MODULES: "
            "only migrations create these tables and their functions.",
        )
        return
    if missing := {*functions} - installed:
        yield message(
            "E010",
            f"The database {alias!r} lacks functions of this version: {first_few(sorted(missing))}.",
            f"{migrate}. If there are no unapplied migrations, the functions were dropped manually: "
            f"run what manage.py sqlmigrate {_LABEL} 0002 prints for them.",
        )
    if unknown := installed - tables - functions:
        yield message(
            "W004",
            f"The database {alias!r} has functions that this version does not know: "
            f"{', '.join(sorted(unknown))}.",
            "If this process is older than the last migration, restart it with the new version.",
        )
    # A migrate corrects this, and an error would prevent it.
    if sys.argv[1:2] != ["migrate"] and (lost := lost_functions(alias)):
        yield message(
            "E030",
            f"The functions of the database {alias!r} expect their tables in the schema "
            f"{lost[0][0].removesuffix(', pg_temp')}, but the tables are in another one.",
            "The schema was renamed, or the functions were created without migrate. Run: python manage.py "
            f"migrate --database {alias}",
        )
    hidden = list(_row_security(alias, tables))
    yield from hidden
    if any(isinstance(each, Error) for each in hidden):
        return  # the rest reads these tables
    yield from _shard(alias)
    yield from _ring(alias)
    yield from _statuses(alias)
    if (encoding := fetch_value(alias, "SHOW server_encoding")) != "UTF8":
        yield message(
            "W013",
            f"The encoding of the database {alias!r} is {encoding}, which cannot hold every character. An "
            "enqueue with such a character fails, and in what workers write, such as results and errors, it "
            "becomes a question mark.",
            "Use a database with the encoding UTF8: createdb --encoding UTF8 --template template0",
        )
    yield from _roles(alias)


def _row_security(alias: str, tables: Iterable[str]) -> Iterator[CheckMessage]:
    if leaves := unguarded(guarded(alias)):
        yield message(
            "W019",
            f"The table of jobs in the database {alias!r} has the policies of tenants, but not its "
            f"partitions {', '.join(leaves)}.",
            f"Run with the owner of the tables: python manage.py pgqueue tenants --apply --database {alias}",
        )
    hint = "Give the role of the workers BYPASSRLS (ALTER ROLE ... BYPASSRLS)"
    if names := filtered(alias, sorted(tables)):
        yield message(
            "E028",
            f"Row-level security hides rows from the role of the database {alias!r}: it applies to "
            f"{', '.join(names)}.",
            f"{hint}. Or disable it: ALTER TABLE {names[0]} DISABLE ROW LEVEL SECURITY",
        )
    elif names := filtered(alias, sorted(model._meta.db_table for model in payload_models())):
        yield message(
            "W015",
            f"Row-level security may hide payloads from the role of the database {alias!r}: it applies to "
            f"{', '.join(names)}. A job whose row is hidden fails.",
            f"{hint}. If workers have another role, silence this warning.",
        )


def _roles(alias: str) -> Iterator[CheckMessage]:
    kept = kept_roles(alias)
    if lacks := lacking(alias, kept):
        names = [f" --enqueuer {name}" for name in kept.enqueuers[:1]]
        names += [f" --worker {name}" for name in kept.workers[:1]]
        yield message(
            "W009",
            f"The roles of manage.py pgqueue roles in the database {alias!r} do not fit this version: "
            f"{first_few(lacks)}.",
            "Run with the owner of the tables: "
            f"python manage.py pgqueue roles --apply --database {alias}{''.join(names)}",
        )


def _shard(alias: str) -> Iterator[CheckMessage]:
    if conf.problems() or alias not in conf.current().shards:
        return
    add, shard = f"Run: python manage.py pgqueue shard add {alias}", read_shard(alias)
    if shard is None:
        yield message(
            "W017",
            f"The database {alias!r} is in PGQUEUE['SHARDS'], but it has no name and no number.",
            f"{add}",
        )
    elif shard.name != alias:
        yield message(
            "E033",
            f"The database {alias!r} in PGQUEUE['SHARDS'] is the shard {shard.name!r}. The ids of its jobs "
            f"begin with '{shard.name}:' elsewhere.",
            f"Correct DATABASES. Or, if all processes call it {alias!r} from now on, rename it. {add}",
        )


def _ring(alias: str) -> Iterator[CheckMessage]:
    ring = Ring.objects.using(alias).first()
    if ring is None:
        yield message(
            "E013",
            f"The table pgqueue_ring in the database {alias!r} has lost its row, so no job can finish.",
            "Run in SQL: INSERT INTO pgqueue_ring DEFAULT VALUES",
        )
    elif not conf.problems():
        for key in ("RETENTION", "FAILED_RETENTION"):
            stored, wanted = getattr(ring, key.lower()), getattr(conf.current(), key.lower())
            if stored != wanted:
                yield message(
                    "W005",
                    f"The database {alias!r} keeps history for {exact(stored)}, but PGQUEUE[{key!r}] is "
                    f"{exact(wanted)}.",
                    "The next worker that starts stores its setting in the database. If this warning "
                    "comes back, workers with different settings use the same database.",
                )


def _statuses(alias: str) -> Iterator[CheckMessage]:
    stored = {row.status: (row.is_claimable, row.is_terminal) for row in QueueStatus.objects.using(alias)}
    wrong = [each for each in Job.Status if stored.get(each) != (each.is_claimable, each.is_terminal)]
    if wrong:
        rows = [f"('{each}', {each.is_claimable}, {each.is_terminal})".lower() for each in wrong]
        yield message(
            "W011",
            f"The table pgqueue_status in the database {alias!r} lacks rows, or they are wrong: "
            f"{', '.join(wrong)}. A migration fills it, and a restore without its data leaves it empty.",
            f"Run in SQL: INSERT INTO pgqueue_status VALUES {', '.join(rows)} "  # noqa: S608 - a hint
            "ON CONFLICT (status) DO UPDATE SET "
            "is_claimable = excluded.is_claimable, is_terminal = excluded.is_terminal",
        )


def _sequence(alias: str) -> Iterator[CheckMessage]:
    """Compare the sequence with the rows that have its numbers: jobs, batches, and payloads."""
    models: list[type[Model]] = [Job, JobBatch, *payload_models()]
    with connections[alias].cursor() as cursor:
        present = connections[alias].introspection.table_names(cursor)
    taken = {
        model._meta.db_table: model._base_manager.using(alias).aggregate(most=Max("pk"))["most"] or 0
        for model in models if model._meta.db_table in present
    }  # fmt: skip
    # Read last, so that it is ahead of what was committed before.
    last = fetch_value(alias, "SELECT last_value - (NOT is_called)::integer FROM pgqueue_job_id_seq")
    table = max(taken, key=lambda each: taken[each])
    if taken[table] > last:
        yield message(
            "E026",
            f"The sequence pgqueue_job_id_seq in the database {alias!r} is at {last}, but {table} has the id "
            f"{taken[table]}. New jobs would get ids that are taken.",
            f"Run in SQL: SELECT setval('pgqueue_job_id_seq', {taken[table]})",
        )


def unapplied(alias: str, label: str) -> list[str]:
    """Return the names of the unapplied migrations of an app; none if the role may not read them."""
    try:
        executor = MigrationExecutor(connections[alias])
    except ProgrammingError as error:
        if not isinstance(error.__cause__, InsufficientPrivilege):
            raise
        return []
    targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] == label]
    return [each.name for each, _ in executor.migration_plan(targets) if each.app_label == label]


def _too_old(alias: str, problem: NotSupportedError) -> CheckMessage:
    return message(
        "E011",
        f"The server of the database {alias!r} is too old: {str(problem).strip()}",
        "The queue needs PostgreSQL 14 or newer; Django 6.1 itself needs 15.",
    )


@cache
def _functions() -> frozenset[str]:
    """Return the functions and procedures that files create and none drops: no name is used again."""
    files = SQL_FOLDER.rglob("*.sql")
    found = {match for file in files for match in _ROUTINE.findall(file.read_text(encoding="utf-8"))}
    return frozenset(name for word, name in found if word == "CREATE" and ("DROP", name) not in found)
