"""Two database roles with few rights: one that may only enqueue, and one for workers that owns nothing.

The functions that enqueue become SECURITY DEFINER, so that the first role needs no right to any table.
Whoever may call them can enqueue, so PUBLIC loses that right. All other functions run with the rights of
their callers, so it does not matter who may call them. The second role may change rows, but no table,
function or trigger. Emptying a shelf of history needs more, so ``_pgqueue_rotate`` is always SECURITY
DEFINER.

This makes the statements, for ``manage.py pgqueue roles``. They can be run again at any time. After a
``migrate``, ``roles`` runs those that give rights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from django.db import DatabaseError, connections, transaction

from ..formatting import get_logger
from . import fetch_rows

logger = get_logger(__name__)
_FOLDER = Path(__file__).parent

CALLED = ("_pgqueue_enqueue", "_pgqueue_enqueue_many", "pgqueue_enqueue", "pgqueue_result")
"""The functions that run with the rights of their owner, and that only the two roles may call.

``pgqueue_enqueue`` reads the policy of a task. It says what its jobs get if they are enqueued, which their
row says, too.
"""

DEFINERS = (*CALLED, "_pgqueue_wake")
"""Also a trigger that fires at the commit. Before PostgreSQL 18, it fires with the rights of the session.
From then on it has those of the enqueue, so it must not look up names in the search path of the session.
"""

WORKER_ONLY = ("_pgqueue_rotate",)
"""What runs with the rights of its owner in any case. Without roles, everybody may call it."""

_INSTALLED = """
    SELECT quote_ident(place.nspname) AS schema, string_agg(object.name, ', ') FILTER (WHERE kind = 'table'),
        string_agg(object.name, ', ') FILTER (WHERE kind = 'sequence'),
        string_agg(object.name, ', ') FILTER (WHERE object.key = ANY (%(called)s)),
        string_agg(object.name, ', ') FILTER (WHERE object.key = ANY (%(worker_only)s)),
        array_agg(object.name) FILTER (WHERE object.key = ANY (%(definers)s)),
        to_regclass(quote_ident(place.nspname) || '.django_migrations') IS NOT NULL
    FROM pg_class AS root JOIN pg_namespace AS place ON place.oid = root.relnamespace, LATERAL (
        SELECT CASE relkind WHEN 'S' THEN 'sequence' ELSE 'table' END, relname,
            format('%%I.%%I', place.nspname, relname)
        FROM pg_class
        WHERE relnamespace = place.oid AND starts_with(relname, 'pgqueue_') AND relkind IN ('r', 'p', 'S')
            AND relowner = root.relowner
        UNION ALL
        SELECT 'function', proname,
            format('%%I.%%I', place.nspname, proname) || substring(oid::regprocedure::text FROM '[(].*')
        FROM pg_proc
        WHERE pronamespace = place.oid AND proname = ANY (%(definers)s::text[] || %(worker_only)s::text[])
        ORDER BY 2
    ) AS object (kind, key, name)
    WHERE root.oid = 'pgqueue_job'::regclass
    GROUP BY place.nspname
"""
_FORBIDDEN = (_FOLDER / "roles_forbidden.sql").read_text(encoding="utf-8")


class Installation(NamedTuple):
    """What is installed in a database: quoted names, as a statement lists them."""

    schema: str
    tables: str
    sequences: str
    called: str | None  # the signatures of ``CALLED``
    worker_only: str
    definers: list[str]
    has_migrations: bool  # whether Django's table of migrations is in the same schema


def installation(alias: str) -> Installation:
    """Return what is installed in the database."""
    (found,) = fetch_rows(alias, _INSTALLED, _names())
    return Installation(*found)


def _names() -> dict[str, list[str]]:
    return {"called": list(CALLED), "definers": list(DEFINERS), "worker_only": list(WORKER_ONLY)}


def _to_revoke(found: Installation, roles: str) -> list[str]:
    """Return the statements that take all rights to the functions and tables from these roles."""
    return [
        f"REVOKE ALL ON FUNCTION {found.called}, {found.worker_only} FROM {roles}",
        f"REVOKE ALL ON TABLE {found.tables} FROM {roles}",
        f"REVOKE ALL ON SEQUENCE {found.sequences} FROM {roles}",
    ]


def statements_to_make(found: Installation, enqueuer: str, worker: str) -> Iterator[str]:
    """Yield the statements that make the roles. The names are quoted here."""
    for role in (enqueuer, worker):
        yield f"""DO $make$ BEGIN
    CREATE ROLE {_quoted(role)} NOLOGIN;
EXCEPTION WHEN duplicate_object THEN
    NULL;  -- it exists
END $make$"""
    # What an administrator may have granted before.
    both = f"{_quoted(enqueuer)}, {_quoted(worker)}"
    yield from _to_revoke(found, both)
    yield f"REVOKE CREATE ON SCHEMA {found.schema} FROM {both}"
    yield from statements_to_grant(found, [enqueuer, worker], [worker])


def statements_to_grant(found: Installation, roles: Sequence[str], workers: Sequence[str]) -> Iterator[str]:
    """Yield the statements that give roles their rights. ``roles``: all of them, also the ``workers``."""
    everyone = ", ".join(map(_quoted, roles))
    for signature in found.definers:
        yield f"ALTER FUNCTION {signature} SECURITY DEFINER SET search_path = {found.schema}, pg_temp"
    yield f"REVOKE ALL ON FUNCTION {found.called}, {found.worker_only} FROM PUBLIC"
    yield f"GRANT EXECUTE ON FUNCTION {found.called} TO {everyone}"
    yield f"GRANT USAGE ON SCHEMA {found.schema} TO {everyone}"
    if not workers:
        return
    those = ", ".join(map(_quoted, workers))
    yield f"GRANT EXECUTE ON FUNCTION {found.worker_only} TO {those}"
    yield f"GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE {found.tables} TO {those}"
    yield f"GRANT USAGE, SELECT ON SEQUENCE {found.sequences} TO {those}"
    if found.has_migrations:
        yield f"GRANT SELECT ON TABLE {found.schema}.django_migrations TO {those}"


def statements_to_drop(found: Installation, enqueuer: str, worker: str) -> Iterator[str]:
    """Yield statements that take all back. A role that is needed elsewhere stays, without these rights."""
    for signature in found.definers:
        yield f"ALTER FUNCTION {signature} SECURITY INVOKER"
    yield f"GRANT EXECUTE ON FUNCTION {found.called}, {found.worker_only} TO PUBLIC"
    for role in (_quoted(enqueuer), _quoted(worker)):
        taken = [*_to_revoke(found, role), f"REVOKE ALL ON SCHEMA {found.schema} FROM {role}"]
        if found.has_migrations:
            taken.append(f"REVOKE ALL ON TABLE {found.schema}.django_migrations FROM {role}")
        body = ";\n    ".join(taken)
        yield f"""DO $drop$ BEGIN
    {body};
    BEGIN
        DROP ROLE {role};
    EXCEPTION WHEN dependent_objects_still_exist THEN
        RAISE NOTICE 'The role stays: it has rights to something else, or in another database.';
    END;
EXCEPTION WHEN undefined_object THEN
    NULL;  -- there is no such role
END $drop$"""


def forbidden(alias: str, role: str, rights: list[str]) -> list[str]:
    """Return what the role can do and must not, in words: create objects, or use these rights to a table."""
    return [what for (what,) in fetch_rows(alias, _FORBIDDEN, {"role": role, "rights": rights})]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# Keep the roles of ``manage.py pgqueue roles`` working when a later version adds functions and tables. A new
# function or table has no rights for them, so after each ``migrate`` the roles get what they lack. Nothing
# records their names: the rights that they have on the functions that enqueue, of whatever version, show who
# they are. Those who may also call ``WORKER_ONLY`` are workers. This only gives rights and takes none from a
# role, since an administrator may have granted more. A ``migrate`` over several releases may create a
# version of a function and drop the one before. Therefore the roles are looked up before it as well.


_FUNCTIONS = (_FOLDER / "roles_functions.sql").read_text(encoding="utf-8")
_ROLES = (_FOLDER / "roles_kept.sql").read_text(encoding="utf-8")
_LACKING = (_FOLDER / "roles_lacking.sql").read_text(encoding="utf-8")


class Kept(NamedTuple):
    """The roles that there are."""

    enqueuers: list[str]
    workers: list[str]


_before: dict[str, Kept] = {}  # what there was before the ``migrate`` that is running, by database


def kept_roles(alias: str) -> Kept:
    """Return the roles that the command has made in this database, by their rights."""
    stems = {kind: [re.sub(r"_\d+$", "", name) for name in names] for kind, names in _names().items()}
    found = fetch_rows(alias, _FUNCTIONS + _ROLES, stems)
    return Kept(*([name for name, is_worker in found if is_worker is wanted] for wanted in (False, True)))


def lacking(alias: str, kept: Kept) -> list[str]:
    """Return what these roles lack for the functions and tables of this version, in words."""
    if not any(kept):
        return []
    parameters: dict[str, Any] = {
        "roles": kept.enqueuers + kept.workers,
        "are_workers": [False] * len(kept.enqueuers) + [True] * len(kept.workers),
        **_names(),
    }
    return [what for (what,) in fetch_rows(alias, _FUNCTIONS + _LACKING, parameters)]


def before_migrate(*, using: str, **kwargs: Any) -> None:
    """Remember the roles: the functions that show who they are may be dropped."""
    if connections[using].vendor == "postgresql":
        _before[using] = kept_roles(using)


def after_migrate(*, using: str, **kwargs: Any) -> None:
    """Give the roles what they lack. A flush sends the same signal, without a plan, and changes no rights."""
    if "plan" not in kwargs or connections[using].vendor != "postgresql":
        return
    now, before = kept_roles(using), _before.pop(using, Kept([], []))
    workers = sorted({*now.workers, *before.workers})
    kept = Kept(sorted({*now.enqueuers, *before.enqueuers} - {*workers}), workers)
    lacks = lacking(using, kept)
    found = installation(using) if lacks else None
    if found is None or not found.called:
        return
    try:
        with transaction.atomic(using=using), connections[using].cursor() as cursor:
            for statement in statements_to_grant(found, [*kept.enqueuers, *workers], workers):
                cursor.execute(statement)
    except DatabaseError as error:
        logger.warning(
            "the database roles of the queue do not fit this version (%s), and this user cannot change that: "
            "%s. Run manage.py pgqueue roles --apply with the owner of the tables",
            shortened(lacks), str(error).strip(),
        )  # fmt: skip
    else:
        logger.info("gave the database roles of the queue what they lacked: %s", shortened(lacks))


def shortened(found: list[str]) -> str:
    """Return the first three, and how many more there are."""
    more = f", and {len(found) - 3} more" if len(found) > 3 else ""
    return f"{', '.join(found[:3])}{more}"


def filtered(alias: str, tables: Sequence[str]) -> list[str]:
    """Return the tables of which row-level security hides some or all rows from the connection's role."""
    names = [connections[alias].ops.quote_name(table) for table in tables]
    query = (
        "SELECT given.name FROM unnest(%s::text[], %s::text[]) AS given (name, quoted)"
        " WHERE row_security_active(to_regclass(given.quoted)) ORDER BY given.name"
    )
    return [name for (name,) in fetch_rows(alias, query, [list(tables), names])]
