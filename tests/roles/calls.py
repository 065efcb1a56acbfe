"""A call of every function of the queue that is not a trigger, with arguments that could do something."""

from __future__ import annotations

from itertools import zip_longest

import psycopg

from tests.support.sessions import Connection

__all__ = ["outcomes"]

_FUNCTIONS = """
    SELECT proname, prokind = 'p', ARRAY(
        SELECT format_type(given.type, NULL) FROM unnest(proargtypes) WITH ORDINALITY AS given (type, place)
        ORDER BY given.place), coalesce(proargnames, '{}')
    FROM pg_proc WHERE proname ~ '^_?pgqueue_' AND prorettype <> 'trigger'::regtype ORDER BY proname
"""
_BY_TYPE = {
    "integer": "1",
    "smallint": "1",
    "text": "'live'",
    "jsonb": "'{}'",
    "boolean": "true",
    "double precision": "1",
    "interval": "'1 s'",
    "timestamp with time zone": "clock_timestamp()",
    "regclass": "'pgqueue_limit'",
}
_BY_NAME = {
    "task_path": "'a.b'", "args": "'[]'", "outcome": "'done'", "how": "'stop'", "kind": "'queue'",
    "on_full": "'wait'", "error": "'{}'", "errors": "'[]'", "logs": "'[]'", "unknown": "NULL",
    "expires_at": "NULL", "on_lost": "'fail'", "delay": "NULL", "options": "NULL", "run_after": "NULL",
    "until": "NULL", "condition": "'true'", "priorities": "1", "batch": "NULL", "context": "NULL",
    "no_concurrency": "false", "no_rate": "false",
}  # fmt: skip


def outcomes(connection: Connection, job: int) -> dict[str, str]:
    """Call every function about a job, and return what each has done: "ran", or the SQLSTATE of its error.

    Each call is rolled back. The function may be new: its arguments come from its signature.
    """
    found = {}
    for name, is_procedure, types, names in connection.execute(_FUNCTIONS).fetchall():
        values = [
            _value(kind, called, job)
            for kind, called in zip_longest(types, names[: len(types)], fillvalue="")
        ]
        verb = "CALL" if is_procedure else "SELECT * FROM"
        try:
            with connection.transaction(force_rollback=True):
                connection.execute(f"{verb} {name}({', '.join(values)})")
            found[name] = "ran"
        except psycopg.Error as error:
            found[name] = error.sqlstate or type(error).__name__
    return found


def _value(kind: str, name: str, job: int) -> str:
    element = kind.removesuffix("[]")
    value = _BY_NAME.get(name.removeprefix("p_").removesuffix("s")) or _BY_NAME.get(name.removeprefix("p_"))
    if value is None:
        value = {**_BY_TYPE, "bigint": str(job)}.get(element, "NULL")
    return f"{value}::{kind}" if element == kind else f"ARRAY[{value}]::{kind}"
