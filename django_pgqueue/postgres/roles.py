"""Two database roles with few rights: one that may only enqueue, and one for workers that owns nothing.

The functions that enqueue become SECURITY DEFINER, so that the first role needs no right to any table.
Whoever may call them can enqueue, so PUBLIC loses that right. All other functions run with the rights of
their callers, so it does not matter who may call them. The second role may change rows, but no table,
function or trigger. Emptying a shelf of history needs more, so ``_pgqueue_rotate`` is always SECURITY
DEFINER.

This makes the statements, for ``manage.py pgqueue roles``. They can be run again at any time. After a
``migrate``, ``roles`` runs the ones that give rights.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django.db import DatabaseError, connections, transaction

from ..formatting import first_few, get_logger
from . import fetch_rows, sql_of
from .session import SEES_ALL

logger = get_logger(__name__)

CALLED = (
    "_pgqueue_enqueue", "_pgqueue_enqueue_many", "_pgqueue_receive", "_pgqueue_shard", "_pgqueue_take_back",
    "pgqueue_enqueue", "pgqueue_result",
)  # fmt: skip
"""The functions that run with the rights of their owner, and that only the two roles may call.

``pgqueue_enqueue`` reads the policy of a task. It says what its jobs get if they are enqueued, which their
row says, too. ``_pgqueue_shard`` says whether the database is being drained. ``_pgqueue_take_back`` cancels
the jobs of calls whose tokens the caller knows.
"""

DEFINERS = (*CALLED, "_pgqueue_wake")
"""Also a trigger that fires at the commit. Before PostgreSQL 18, it fires with the rights of the session.
From then on it has the rights of the enqueue, so it must not look up names in the search path of the session.
"""

WORKER_ONLY = ("_pgqueue_rotate",)
"""What runs with the rights of its owner in any case. Without roles, everybody may call it."""

_INSTALLED = sql_of(__file__, "roles_installed")
_FORBIDDEN = sql_of(__file__, "roles_forbidden")


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
    yield from map(_to_create, (enqueuer, worker))
    # What an administrator may have granted before.
    both = f"{_quoted(enqueuer)}, {_quoted(worker)}"
    yield from _to_revoke(found, both)
    yield f"REVOKE CREATE ON SCHEMA {found.schema} FROM {both}"
    yield from statements_to_grant(found, [enqueuer, worker], [worker])


def _to_create(role: str) -> str:
    """Return the statement that makes a role, unless it exists."""
    return f"""DO $make$ BEGIN
    CREATE ROLE {_quoted(role)} NOLOGIN;
EXCEPTION WHEN duplicate_object THEN
    NULL;  -- it exists
END $make$"""


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
        yield _to_drop(found, role)


def _to_drop(found: Installation, role: str) -> str:
    """Return the statement that takes all rights from a role and drops it."""
    taken = [*_to_revoke(found, role), f"REVOKE ALL ON SCHEMA {found.schema} FROM {role}"]
    if found.has_migrations:
        taken.append(f"REVOKE ALL ON TABLE {found.schema}.django_migrations FROM {role}")
    body = ";\n    ".join(taken)
    return f"""DO $drop$ BEGIN
    {body};
    BEGIN
        DROP ROLE {role};
    EXCEPTION WHEN dependent_objects_still_exist THEN
        RAISE NOTICE 'The role stays: it has rights to something else, or in another database.';
    END;
EXCEPTION WHEN undefined_object THEN
    NULL;  -- there is no such role
END $drop$"""


def run_all(alias: str, statements: Iterable[str]) -> None:
    """Run statements in one transaction."""
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def forbidden(alias: str, role: str, rights: list[str]) -> list[str]:
    """Return what the role can do and must not, in words: create objects, or use these rights to a table."""
    return [what for (what,) in fetch_rows(alias, _FORBIDDEN, {"role": role, "rights": rights})]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# Keep the roles of ``manage.py pgqueue roles`` working when a later version adds functions and tables. A new
# function or table has no rights for them, so after each ``migrate`` the roles get what they lack. Nothing
# records their names: the rights that they have on the functions that enqueue, of whatever version, show who
# they are. Roles that may also call ``WORKER_ONLY`` are workers. This only gives rights and takes none from a
# role, since an administrator may have granted more. A ``migrate`` over several releases may create a
# version of a function and drop the one before. Therefore the roles are looked up before it as well.


_FUNCTIONS = sql_of(__file__, "roles_functions")
_ROLES = sql_of(__file__, "roles_kept")
_LACKING = sql_of(__file__, "roles_lacking")


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
    keep_policies(using)
    now, before = kept_roles(using), _before.pop(using, Kept([], []))
    workers = sorted({*now.workers, *before.workers})
    kept = Kept(sorted({*now.enqueuers, *before.enqueuers} - {*workers}), workers)
    lacks = lacking(using, kept)
    found = installation(using) if lacks else None
    if found is None or not found.called:
        return
    try:
        run_all(using, statements_to_grant(found, [*kept.enqueuers, *workers], workers))
    except DatabaseError as error:
        logger.warning(
            "the database roles of the queue do not fit this version (%s), and this user cannot change that: "
            "%s. Run manage.py pgqueue roles --apply with the owner of the tables",
            first_few(lacks), str(error).strip(),
        )  # fmt: skip
    else:
        logger.info("gave the database roles of the queue what they lacked: %s", first_few(lacks))


def filtered(alias: str, tables: Sequence[str]) -> list[str]:
    """Return the tables of which row-level security hides some or all rows from the connection's role. A
    policy that is true for all rows, such as that of workers beside the policy of tenants, hides none.
    """
    names = [connections[alias].ops.quote_name(table) for table in tables]
    query = (
        "SELECT given.name FROM unnest(%s::text[], %s::text[]) AS given (name, quoted)"  # noqa: S608
        " WHERE row_security_active(to_regclass(given.quoted)) AND NOT "
        + SEES_ALL.replace("{table}", "to_regclass(given.quoted)")
        + " ORDER BY given.name"
    )
    return [name for (name,) in fetch_rows(alias, query, [list(tables), names])]


# Tenants: policies on the table of jobs and on each leaf, since that of a table does not apply to a query
# that names a leaf. A role for tenants sees the jobs of its tenant (pgqueue_tenant_role), and only enqueues.


_POLICIES = sql_of(__file__, "roles_policies")


class Guarded(NamedTuple):
    """The table of jobs, or a leaf, with the roles of its policies."""

    table: str
    is_enabled: bool
    own: list[str]
    everything: list[str]


def guarded(alias: str) -> list[Guarded]:
    """Return the table of jobs, which comes first, and its leaves."""
    return [Guarded(*row) for row in fetch_rows(alias, _POLICIES, {})]


def unguarded(tables: Sequence[Guarded]) -> list[str]:
    """Return the leaves that lack the policies which the table of jobs has."""
    wanted = tables[0][1:] if tables and tables[0].own else None
    return [each.table for each in tables if wanted not in (None, each[1:])]


def _policies(table: str, own: Sequence[str], everything: Sequence[str]) -> Iterator[str]:
    mine = f"(tenant = (SELECT {table.rpartition('.')[0]}.pgqueue_tenant()))"
    yield f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
    for name, roles, rule in (("pgqueue_own", own, mine), ("pgqueue_all", everything, "(true)")):
        yield f"DROP POLICY IF EXISTS {name} ON {table}"
        if roles:
            to = ", ".join(map(_quoted, roles))
            yield f"CREATE POLICY {name} ON {table} TO {to} USING {rule} WITH CHECK {rule}"


def statements_for_tenants(
    alias: str, group: str, everything: Sequence[str], tenants: Mapping[str, str]
) -> Iterator[str]:
    """Yield the statements that let each role of ``tenants`` see and enqueue only the jobs of its tenant.
    ``group``: the role that has the rights. ``everything``: roles that see all jobs, besides workers.
    """
    found, tables, kept = installation(alias), guarded(alias), kept_roles(alias)
    to = _quoted(group)
    yield _to_create(group)
    yield from _to_revoke(found, to)
    yield from statements_to_grant(found, [group, *kept.enqueuers, *kept.workers], kept.workers)
    yield f"GRANT SELECT ON TABLE {', '.join(each.table for each in tables)} TO {to}"
    yield f"GRANT SELECT ON TABLE {found.schema}.pgqueue_status TO {to}"
    everyone = sorted({*everything, *kept.workers, *tables[0].everything})
    for each in tables:
        yield from _policies(each.table, [group], everyone)
    for role, tenant in tenants.items():
        name, value = (each.replace("'", "''") for each in (role, tenant))
        yield (
            f"INSERT INTO {found.schema}.pgqueue_tenant_role VALUES ('{name}', '{value}')"  # noqa: S608
            " ON CONFLICT (role) DO UPDATE SET tenant = excluded.tenant"
        )
        yield f"GRANT {to} TO {_quoted(role)}"


def statements_without_tenants(alias: str, group: str) -> Iterator[str]:
    """Yield the statements that take the policies, the rights and the tenants of roles back."""
    found = installation(alias)
    for each in guarded(alias):
        yield f"DROP POLICY IF EXISTS pgqueue_own ON {each.table}"
        yield f"DROP POLICY IF EXISTS pgqueue_all ON {each.table}"
        yield f"ALTER TABLE {each.table} DISABLE ROW LEVEL SECURITY"
    yield f"DELETE FROM {found.schema}.pgqueue_tenant_role"  # noqa: S608
    yield _to_drop(found, _quoted(group))


def keep_policies(alias: str) -> None:
    """Give leaves that a migration has added the policies of the table of jobs."""
    tables = guarded(alias)
    for table in unguarded(tables):
        run_all(alias, _policies(table, tables[0].own, tables[0].everything))
