"""Settings of a database or a role that change what a text in SQL means, or how values look."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection

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
from tests.support.sessions import open_raw

pytestmark = pytest.mark.django_db(transaction=True)

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


def test_calls_work_in_a_database_with_odd_settings(odd: str) -> None:
    enqueue(noop.using(database=odd))
    enqueue_many([noop.using(database=odd).bind()])
    assert pause(queue="mail", using=odd)
    resume(queue="mail", using=odd)
    assert Job.objects.using(odd).count() == 2


def test_checks_and_figures_work_in_a_database_with_odd_settings(odd: str) -> None:
    assert database_problems(odd) == []
    assert check_payload_triggers(None, databases=[odd]) == []
    assert "pgqueue_job_past_3" in {table.name for table in read_rows(odd, "tables")}


def test_django_reads_intervals_in_any_style(odd: str) -> None:
    Queue.objects.using(odd).create(name="mail", retention=timedelta(days=3, seconds=1))
    assert Queue.objects.using(odd).get().retention == timedelta(days=3, seconds=1)
    assert Ring.objects.using(odd).get().retention == timedelta(days=7)


def test_a_worker_sets_what_it_depends_on(odd: str) -> None:
    with closing(connect(odd)) as session:
        assert session.value("SELECT interval '7 days'") == timedelta(days=7)
        assert session.value("SHOW standard_conforming_strings") == "on"


def test_a_connection_with_the_usual_style_costs_no_statement() -> None:
    with connection.execute_wrapper(_refuse):
        set_interval_style(connection)


def _refuse(*args: object) -> None:
    raise AssertionError(args)
