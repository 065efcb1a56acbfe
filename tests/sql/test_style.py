"""What SQL is written like, and settings of a database or a role that change what a text in it means.

docs/decisions/storage.md says why no formatter holds the style. That each function has a comment above it is
in ``test_schema.py``. For `test_plpgsql_check_finds_nothing`, the extension has to be installed beside the
server: ``tox run -e plpgsql``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries

import django_pgqueue
from django_pgqueue import enqueue, enqueue_many, pause, resume
from django_pgqueue.checks.database import database_problems
from django_pgqueue.checks.payloads import check_payload_triggers
from django_pgqueue.models import Job, Queue, Ring
from django_pgqueue.monitoring.database import read_rows
from django_pgqueue.postgres.aliases import set_interval_style
from django_pgqueue.postgres.session import connect
from tests.app.tasks import noop
from tests.support import databases
from tests.support.jobs import fetch
from tests.support.sessions import open_raw

ROOT = Path(django_pgqueue.__file__).parent
LONGEST = 120
#: Comments, strings and quoted names, and what Python or Django's templates fill in.
_NO_CODE = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"[^\"]*\"|\{[#%{].*?[#%}]\}|\{\w+\}|%\(\w+\)s", re.DOTALL
)
#: Words of SQL that are also names of ours, of functions, or values.
NAMES = """
    at before call conflict current deferred each first found key last left locked new next old on others over
    schema sequence share trigger true
""".split()


def texts() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file."""
    for path in sorted(ROOT.rglob("*.sql")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def test_lines_are_short_and_have_neither_tabs_nor_trailing_blanks() -> None:
    found = [
        (path, line)
        for path, text in texts()
        for line in text.split("\n")
        if len(line) > LONGEST or "\t" in line or line != line.rstrip()
    ]
    assert found == []
    assert [path for path, text in texts() if not text.endswith("\n") or text.endswith("\n\n")] == []


def test_indents_are_multiples_of_four() -> None:
    """A comment may stand below one that ends the line before, and a string is as it is."""
    found = [
        (path, line)
        for path, text in texts()
        for line in _NO_CODE.sub("", text).split("\n")
        if line.strip() and (len(line) - len(line.lstrip())) % 4
    ]
    assert found == []


def test_keywords_are_in_capitals() -> None:
    """A word that is in capitals somewhere is so everywhere, unless it is also a name."""
    written: defaultdict[str, set[str]] = defaultdict(set)
    for path, text in texts():
        for word in re.findall(r"(?<![\w.])[A-Za-z_]+\b", _NO_CODE.sub("''", text)):
            written[word.lower()].add("" if word.isupper() else f"{word} in {path}")
    both = {word: sorted(places) for word, places in written.items() if len(places) > 1 and "" in places}
    assert {word: places for word, places in both.items() if word not in NAMES} == {}
    assert len([word for word, places in written.items() if places == {""}]) > 100


# -- settings of a database or a role

#: Their functions, or those that they are inlined into, set standard_conforming_strings. With it off, the
#: backslash would begin an escape.
PINNED = {"payloads.sql", "problems.sql"}
_TEXT = re.compile(r"--[^\n]*|(?<!\w)[eE]?'(?:[^']|'')*'")
STRINGS, INTERVALS = "-c standard_conforming_strings=off", "-c IntervalStyle=iso_8601"


@pytest.fixture
def odd() -> Iterator[str]:
    """An alias with the settings of an old database, or of an odd role."""
    with databases.alias("odd", OPTIONS={"options": f"{STRINGS} {INTERVALS}"}) as name:
        yield name


def test_no_text_in_sql_has_a_backslash() -> None:
    """Its meaning would depend on standard_conforming_strings."""
    found = {
        path.name
        for path in Path(django_pgqueue.__file__).parent.rglob("*.sql")
        for text in _TEXT.findall(path.read_text())
        if text[0] == "'" and "\\" in text
    }
    assert found == PINNED


@pytest.mark.django_db(transaction=True)
@pytest.mark.promise("odd-settings")
def test_functions_work_with_the_strings_of_old_databases() -> None:
    with open_raw(options=STRINGS) as one:
        one.execute("SELECT pgqueue_enqueue('shop.tasks.send')")
        one.execute("SELECT pgqueue_edit(ARRAY[id], priority => 3) FROM pgqueue_job_live")
        one.execute("SELECT pgqueue_pause('queue', 'mail')")
        one.execute("SELECT pgqueue_register_worker('app-1', ARRAY['mail'])")
        paths = one.execute("SELECT _pgqueue_payload_paths('receipts_receipt')").fetchone()
    assert paths == (["tests.receipts.tasks.send"],)
    assert Job.objects.values_list("task_path", "priority").get() == ("shop.tasks.send", 3)


@pytest.mark.django_db(transaction=True)
def test_calls_checks_and_figures_work_in_a_database_with_odd_settings(odd: str) -> None:
    enqueue(noop.using(database=odd))
    enqueue_many([noop.using(database=odd).bind()])
    assert pause(queue="mail", using=odd)
    resume(queue="mail", using=odd)
    assert Job.objects.using(odd).count() == 2
    Queue.objects.using(odd).create(name="mail", retention=timedelta(days=3, seconds=1))
    assert Queue.objects.using(odd).get().retention == timedelta(days=3, seconds=1)
    assert Ring.objects.using(odd).get().retention == timedelta(days=7)
    assert database_problems(odd) == []
    assert check_payload_triggers(None, databases=[odd]) == []
    assert "pgqueue_job_past_3" in {table.name for table in read_rows(odd, "tables")}


@pytest.mark.django_db(transaction=True)
def test_a_worker_sets_what_it_depends_on(odd: str) -> None:
    with closing(connect(odd)) as session:
        assert session.value("SELECT interval '7 days'") == timedelta(days=7)
        assert session.value("SHOW standard_conforming_strings") == "on"


@pytest.mark.django_db(transaction=True)
def test_a_connection_with_the_usual_style_costs_no_statement(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    with django_assert_num_queries(0):
        set_interval_style(connection)


# -- plpgsql_check: names and types that are wrong, and variables that nothing uses

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
SAFE = {"_pgqueue_estimate(text)": "EXECUTE", "_pgqueue_sweep_payloads(integer)": "EXECUTE"}


@pytest.fixture
def functions(db: None) -> list[tuple[str, int, str | None, str | None]]:
    """The functions in PL/pgSQL, each with a table of its trigger."""
    if not fetch("SELECT name FROM pg_available_extensions WHERE name = 'plpgsql_check'"):
        pytest.skip("this server lacks the extension plpgsql_check")
    fetch("CREATE EXTENSION plpgsql_check")
    return fetch(FUNCTIONS)


def test_plpgsql_check_finds_nothing(functions: list[tuple[str, int, str | None, str | None]]) -> None:
    assert len(functions) > 70
    found = {}
    for function in functions:
        problems = [text for (text,) in fetch(CHECK, *function)]
        if function[0] in SAFE:
            problems = [text for text in problems if SAFE[function[0]] not in text]
        if problems:
            found[function[0]] = problems
    assert found == {}
