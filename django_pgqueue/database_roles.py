"""Two database roles with few rights: one that may only enqueue, and one for workers that owns nothing.

The functions that enqueue become SECURITY DEFINER, so that the first role needs no right to any table.
Whoever may call them can enqueue, so PUBLIC loses that right. All other functions run with the rights of
their callers, so it does not matter who may call them. The second role may change rows, but no table,
function or trigger. Emptying a shelf of history needs more, so ``pgqueue_rotate_v1`` is always SECURITY
DEFINER.

This makes the statements, for ``manage.py pgqueue roles``. They can be run again at any time. After a
``migrate``, ``roles_kept`` runs those that give rights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db import connections

__all__ = [
    "CALLED", "DEFINERS", "WORKER_ONLY", "Installation", "forbidden", "installation", "statements_to_drop",
    "statements_to_grant", "statements_to_make",
]  # fmt: skip

CALLED = ("pgqueue_enqueue_v1", "pgqueue_enqueue_many_v1", "pgqueue_result_v1")
"""The functions that run with the rights of their owner, and that only the two roles may call.

``pgqueue_enqueue`` and ``pgqueue_result``, the stable names, call them with the rights of their callers.
"""

DEFINERS = (*CALLED, "pgqueue_wake_v1")
"""Also a trigger that fires at the commit. Before PostgreSQL 18, it fires with the rights of the session.
From then on it has those of the enqueue, so it must not look up names in the search path of the session.
"""

WORKER_ONLY = ("pgqueue_rotate_v1",)
"""What runs with the rights of its owner in any case. Without roles, everybody may call it."""

_NAMES = """
    SELECT relation.relkind = 'S', relation.relname
    FROM pg_class AS root JOIN pg_class AS relation USING (relnamespace)
    WHERE root.oid = 'pgqueue_job'::regclass AND relation.relname LIKE 'pgqueue\\_%%'
        AND relation.relkind IN ('r', 'p', 'S') AND relation.relowner = root.relowner
    ORDER BY relation.relname
"""
_PLACE = """
    SELECT quote_ident(place.nspname), quote_ident(current_database()), EXISTS (
        SELECT FROM pg_class AS migrations
        WHERE migrations.relnamespace = place.oid AND migrations.relname = 'django_migrations')
    FROM pg_class AS root JOIN pg_namespace AS place ON place.oid = root.relnamespace
    WHERE root.oid = 'pgqueue_job'::regclass
"""
_SIGNATURES = """
    SELECT routine.oid::regprocedure::text FROM pg_proc AS routine JOIN pg_class AS root
        ON root.oid = 'pgqueue_job'::regclass AND root.relnamespace = routine.pronamespace
    WHERE routine.proname = ANY (%s) ORDER BY routine.proname
"""
# What a role can do in spite of everything: through PUBLIC, or another role whose member it is.
_FORBIDDEN = """
    SELECT 'create objects in the schema ' || place.nspname FROM pg_namespace AS place
    WHERE place.oid = (SELECT relnamespace FROM pg_class WHERE oid = 'pgqueue_job'::regclass)
        AND has_schema_privilege(%(role)s, place.oid, 'CREATE')
    UNION ALL
    SELECT lower(wanted.right) || ' rows of ' || relation.relname
    FROM pg_class AS root JOIN pg_class AS relation USING (relnamespace)
    CROSS JOIN unnest(%(rights)s::text[]) WITH ORDINALITY AS wanted ("right", place)
    WHERE root.oid = 'pgqueue_job'::regclass AND relation.relname LIKE 'pgqueue\\_%%'
        AND relation.relkind IN ('r', 'p')
        AND CASE WHEN wanted.right IN ('DELETE', 'TRUNCATE')
            THEN has_table_privilege(%(role)s, relation.oid, wanted.right)
            ELSE has_any_column_privilege(%(role)s, relation.oid, wanted.right) END
"""


@dataclass(frozen=True)
class Installation:
    """What is installed in a database, with quoted names."""

    schema: str
    database: str
    tables: list[str]
    sequences: list[str]
    called: list[str]
    """The signatures of ``CALLED``."""
    definers: list[str]
    worker_only: list[str]
    has_migrations: bool
    """Whether Django's table of migrations is in the same schema."""


def installation(alias: str) -> Installation:
    """Return what is installed in the database."""
    quote = connections[alias].ops.quote_name
    with connections[alias].cursor() as cursor:
        cursor.execute(_PLACE)
        schema, database, has_migrations = cursor.fetchone()
        cursor.execute(_NAMES)
        names = [(is_sequence, f"{schema}.{quote(name)}") for is_sequence, name in cursor.fetchall()]

        def signatures(functions: tuple[str, ...]) -> list[str]:
            cursor.execute(_SIGNATURES, (list(functions),))
            found = [signature for (signature,) in cursor.fetchall()]
            return [each if each.startswith(f"{schema}.") else f"{schema}.{each}" for each in found]

        return Installation(
            schema=schema,
            database=database,
            tables=[name for is_sequence, name in names if not is_sequence],
            sequences=[name for is_sequence, name in names if is_sequence],
            called=signatures(CALLED),
            definers=signatures(DEFINERS),
            worker_only=signatures(WORKER_ONLY),
            has_migrations=has_migrations,
        )


def statements_to_make(found: Installation, enqueuer: str, worker: str) -> Iterator[str]:
    """Yield the statements that make the roles. The names are quoted here."""
    yield from (_create(_quoted(role)) for role in (enqueuer, worker))
    # What somebody may have granted before.
    both = f"{_quoted(enqueuer)}, {_quoted(worker)}"
    yield f"REVOKE ALL ON FUNCTION {', '.join(found.called + found.worker_only)} FROM {both}"
    yield f"REVOKE CREATE ON SCHEMA {found.schema} FROM {both}"
    yield f"REVOKE ALL ON TABLE {', '.join(found.tables)} FROM {both}"
    yield f"REVOKE ALL ON SEQUENCE {', '.join(found.sequences)} FROM {both}"
    yield from statements_to_grant(found, [enqueuer, worker], [worker])


def statements_to_grant(found: Installation, roles: Sequence[str], workers: Sequence[str]) -> Iterator[str]:
    """Yield the statements that give roles their rights. ``roles``: all of them, also the ``workers``."""
    called, worker_only = ", ".join(found.called), ", ".join(found.worker_only)
    everyone = ", ".join(map(_quoted, roles))
    for signature in found.definers:
        yield f"ALTER FUNCTION {signature} SECURITY DEFINER SET search_path = {found.schema}, pg_temp"
    yield f"REVOKE ALL ON FUNCTION {called}, {worker_only} FROM PUBLIC"
    yield f"GRANT EXECUTE ON FUNCTION {called} TO {everyone}"
    yield f"GRANT USAGE ON SCHEMA {found.schema} TO {everyone}"
    if not workers:
        return
    those = ", ".join(map(_quoted, workers))
    yield f"GRANT EXECUTE ON FUNCTION {worker_only} TO {those}"
    yield f"GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE {', '.join(found.tables)} TO {those}"
    yield f"GRANT USAGE, SELECT ON SEQUENCE {', '.join(found.sequences)} TO {those}"
    if found.has_migrations:
        yield f"GRANT SELECT ON TABLE {found.schema}.django_migrations TO {those}"


def statements_to_drop(found: Installation, enqueuer: str, worker: str) -> Iterator[str]:
    """Yield the statements that take everything back. A role that something else needs stays, without rights
    to the queue.
    """
    tables, sequences = ", ".join(found.tables), ", ".join(found.sequences)
    functions = ", ".join(found.called + found.worker_only)
    for signature in found.definers:
        yield f"ALTER FUNCTION {signature} SECURITY INVOKER"
    yield f"GRANT EXECUTE ON FUNCTION {functions} TO PUBLIC"
    for role in (_quoted(enqueuer), _quoted(worker)):
        taken = [
            f"REVOKE ALL ON FUNCTION {functions} FROM {role}",
            f"REVOKE ALL ON TABLE {tables} FROM {role}",
            f"REVOKE ALL ON SEQUENCE {sequences} FROM {role}",
            f"REVOKE ALL ON SCHEMA {found.schema} FROM {role}",
        ]
        if found.has_migrations:
            taken.append(f"REVOKE ALL ON TABLE {found.schema}.django_migrations FROM {role}")
        yield _drop(role, taken)


def forbidden(alias: str, role: str, rights: list[str]) -> list[str]:
    """Return what the role can do although it must not, in words: create objects, or use these rights to a
    table.
    """
    with connections[alias].cursor() as cursor:
        cursor.execute(_FORBIDDEN, {"role": role, "rights": rights})
        return [what for (what,) in cursor.fetchall()]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _create(role: str) -> str:
    return f"""DO $make$ BEGIN
    CREATE ROLE {role} NOLOGIN;
EXCEPTION WHEN duplicate_object THEN
    NULL;  -- it exists
END $make$"""


def _drop(role: str, taken: list[str]) -> str:
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
