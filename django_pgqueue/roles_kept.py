"""Keep the roles of ``manage.py pgqueue roles`` working when a later version adds functions and tables.

A new function or table has no rights for them. So after each ``migrate`` the roles get what they lack.
Nothing records their names: the rights that they have on the functions that enqueue, of whatever version,
tell who they are. Those who may also call ``WORKER_ONLY`` are workers. This only gives rights and takes none
from a role, since somebody may have granted more by hand.

A ``migrate`` over several releases may create a version of a function and drop the one before. Therefore the
roles are looked up before it as well.
"""

from __future__ import annotations

import logging
import re
from typing import Any, NamedTuple

from django.db import DatabaseError, connections, transaction

from .database_roles import CALLED, DEFINERS, WORKER_ONLY, installation, statements_to_grant

__all__ = ["Kept", "after_migrate", "before_migrate", "kept_roles", "lacking", "shortened"]

logger = logging.getLogger(__name__)

_FUNCTIONS = """
    WITH place AS (
        SELECT relnamespace AS schema, relowner AS owner FROM pg_class WHERE oid = to_regclass('pgqueue_job')
    ), routine AS (
        SELECT one.oid, one.proname::text AS name, regexp_replace(one.proname, '_v[0-9]+$', '') AS stem,
            one.prosecdef AS is_definer, coalesce(one.proacl, acldefault('f', one.proowner)) AS rights
        FROM place JOIN pg_proc AS one ON one.pronamespace = place.schema
        WHERE one.proname LIKE 'pgqueue\\_%%'
    )
"""
# Without SECURITY DEFINER, nobody has run the command. Somebody may still have granted a function by hand.
_ROLES = """
    SELECT pg_get_userbyid(given.grantee), bool_or(routine.stem = ANY (%(worker_only)s))
    FROM place CROSS JOIN routine CROSS JOIN LATERAL aclexplode(routine.rights) AS given
    WHERE (routine.stem = ANY (%(called)s) AND routine.is_definer OR routine.stem = ANY (%(worker_only)s))
        AND given.grantee NOT IN (0, place.owner)
        AND EXISTS (SELECT FROM routine AS made WHERE made.is_definer AND made.stem = ANY (%(called)s))
    GROUP BY given.grantee ORDER BY 1
"""
_LACKING = """, role AS (
        SELECT unnest(%(roles)s::text[]) AS name, unnest(%(are_workers)s::boolean[]) AS is_worker
    )
    SELECT routine.name || ' runs with the rights of its caller'
    FROM routine WHERE routine.name = ANY (%(definers)s) AND NOT routine.is_definer
    UNION ALL
    SELECT 'everybody may call ' || routine.name
    FROM routine WHERE (routine.name = ANY (%(called)s) OR routine.name = ANY (%(worker_only)s))
        AND EXISTS (SELECT FROM aclexplode(routine.rights) AS given WHERE given.grantee = 0)
    UNION ALL
    SELECT role.name || ' may not call ' || routine.name
    FROM role CROSS JOIN routine
    WHERE (routine.name = ANY (%(called)s) OR routine.name = ANY (%(worker_only)s) AND role.is_worker)
        AND NOT has_function_privilege(role.name, routine.oid, 'EXECUTE')
    UNION ALL
    SELECT role.name || ' lacks rights to ' || relation.relname
    FROM role CROSS JOIN place JOIN pg_class AS relation ON relation.relnamespace = place.schema
    WHERE role.is_worker AND relation.relname LIKE 'pgqueue\\_%%' AND relation.relowner = place.owner
        AND CASE WHEN relation.relkind = 'S' THEN EXISTS (
            SELECT FROM unnest(ARRAY['USAGE', 'SELECT']) AS needed ("right")
            WHERE NOT has_sequence_privilege(role.name, relation.oid, needed.right))
        WHEN relation.relkind IN ('r', 'p') THEN EXISTS (
            SELECT FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS needed ("right")
            WHERE NOT has_table_privilege(role.name, relation.oid, needed.right)) END
"""


class Kept(NamedTuple):
    """The roles that there are."""

    enqueuers: list[str]
    workers: list[str]


_before: dict[str, Kept] = {}
"""What there was before the ``migrate`` that is running, by database."""


def kept_roles(alias: str) -> Kept:
    """Return the roles that the command has made in this database, by their rights."""
    stems = {"called": _stems(CALLED), "worker_only": _stems(WORKER_ONLY)}
    with connections[alias].cursor() as cursor:
        cursor.execute(_FUNCTIONS + _ROLES, stems)
        found = dict(cursor.fetchall())
    return Kept(
        [name for name, is_worker in found.items() if not is_worker],
        [name for name, is_worker in found.items() if is_worker],
    )


def lacking(alias: str, kept: Kept) -> list[str]:
    """Return what these roles lack for the functions and tables of this version, in words."""
    if not any(kept):
        return []
    parameters: dict[str, Any] = {
        "roles": kept.enqueuers + kept.workers,
        "are_workers": [False] * len(kept.enqueuers) + [True] * len(kept.workers),
        "called": list(CALLED), "definers": list(DEFINERS), "worker_only": list(WORKER_ONLY),
    }  # fmt: skip
    with connections[alias].cursor() as cursor:
        cursor.execute(_FUNCTIONS + _LACKING, parameters)
        return [what for (what,) in cursor.fetchall()]


def before_migrate(*, using: str, **kwargs: Any) -> None:
    """Remember the roles: the functions that tell who they are may be dropped."""
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


def _stems(names: tuple[str, ...]) -> list[str]:
    return [re.sub(r"_v\d+$", "", name) for name in names]


def shortened(found: list[str]) -> str:
    """Return the first three, and how many more there are."""
    more = f", and {len(found) - 3} more" if len(found) > 3 else ""
    return f"{', '.join(found[:3])}{more}"
