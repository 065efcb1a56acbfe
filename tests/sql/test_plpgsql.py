"""What plpgsql_check finds in the functions: names and types that are wrong, and variables that nothing uses.

The extension has to be installed beside the server: ``tox run -e plpgsql``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

pytestmark = pytest.mark.django_db

FUNCTIONS = """
    SELECT function.oid::regprocedure::text, coalesce(row.tgrelid, 0), row.tgoldtable, row.tgnewtable
    FROM pg_proc AS function JOIN pg_language AS language ON language.oid = function.prolang
    LEFT JOIN LATERAL (
        SELECT * FROM pg_trigger WHERE tgfoid = function.oid AND tgparentid = 0
        ORDER BY tgoldtable, oid LIMIT 1
    ) AS row ON true
    WHERE language.lanname = 'plpgsql' AND function.proname ~ '^_?pgqueue_' ORDER BY 1
"""
CHECK = """
    SELECT coalesce('line ' || lineno || ', ', '') || statement || ': ' || message
    FROM plpgsql_check_function_tb(
        %s::regprocedure, %s::oid, oldtable => %s, newtable => %s, security_warnings => true,
        performance_warnings => false)
    WHERE sqlstate <> '42804'
"""
# A literal such as '{}' counts as a text that is cast (42804).

#: Statements with a condition or names that the caller has quoted.
SAFE = {
    "_pgqueue_estimate(text)": "EXECUTE",
    "_pgqueue_sweep_payloads(integer)": "EXECUTE",
}


@pytest.fixture
def functions() -> Iterator[list[tuple[str, int, str | None, str | None]]]:
    """The functions in PL/pgSQL, each with a table of its trigger."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT FROM pg_available_extensions WHERE name = 'plpgsql_check'")
        if cursor.fetchone() is None:
            pytest.skip("this server lacks the extension plpgsql_check")
        cursor.execute("CREATE EXTENSION plpgsql_check")
        cursor.execute(FUNCTIONS)
        yield cursor.fetchall()


def test_plpgsql_check_finds_nothing(functions: list[tuple[str, int, str | None, str | None]]) -> None:
    assert len(functions) > 70
    found = {}
    with connection.cursor() as cursor:
        for function in functions:
            cursor.execute(CHECK, function)
            problems = [text for (text,) in cursor.fetchall()]
            if function[0] in SAFE:
                problems = [text for text in problems if SAFE[function[0]] not in text]
            if problems:
                found[function[0]] = problems
    assert found == {}
