"""The quickstart as commands, and the tests that the page of testing shows, in a project of its own."""

from __future__ import annotations

import os
import re
from typing import Any
from uuid import uuid4

import environ
import psycopg
from django.core.management import get_commands

from .shop import DOCS, EXAMPLES, manage, python

PAGE = (DOCS / "tutorial" / "quickstart.md").read_text()
#: The steps of the page, each after a line that is a form feed. The second worker shows no banner again.
STEPS = """
from django.core.management import call_command

{first_order}
print("\f")
call_command("runqueueworker", "--burst", skip_checks=False)
print("\f")
{look}
{failing_order}
call_command("runqueueworker", "--burst", "--one-process")
print("\f")
{look_at_failure}
from django.contrib.auth.models import User
from django.test import Client
browser = Client(SERVER_NAME="localhost")
browser.force_login(User.objects.create_superuser("ann"))
jobs = browser.get("/admin/django_pgqueue/job/")
print("admin", jobs.status_code, jobs.content.decode().count("shop.tasks.send_receipt") > 0)
page = browser.get(f"/admin/django_pgqueue/job/{{job.pk}}/change/").content.decode()
print("page", "DoesNotExist" in page, "Traceback" in page)
from django_pgqueue import enqueue
enqueue(send_receipt, 0)
"""
SCRIPTS = ("first_order", "look", "failing_order", "look_at_failure")
STATUSES = """
    SELECT array_agg(status ORDER BY id), (SELECT count(*) FROM pgqueue_worker) FROM pgqueue_job
"""
PLUGINS = "pytest_django.plugin,django_pgqueue.testing.pytest_plugin"


def promised(word: str) -> str:
    """What the page says that a script prints."""
    (line,) = re.findall(rf"This prints `({word} [^`]+)`", PAGE)
    return str(line)


def test_the_commands_of_the_quickstart_exist() -> None:
    assert "shop.tests" not in PAGE
    used = set(re.findall(r"^python manage\.py (\S+)", PAGE, re.MULTILINE))
    assert {"migrate", "runqueueworker", "runserver"} <= used <= {*get_commands()}


def test_the_quickstart_and_the_tests_of_its_project(django_db_setup: None) -> None:
    """On one server, and with as few processes as possible, because each takes seconds to start.

    pytest migrates its test database. That of Django's runner is the same, and the project's is a copy.
    """
    given: Any = environ.Env.db_url_config(os.environ["DATABASE_URL"])
    name = f"quickstart_{uuid4().hex[:12]}"
    quickstart = {
        **{key: value for key, value in os.environ.items() if not key.startswith("DJANGO_")},
        "PGDATABASE": name, "PGHOST": given["HOST"], "PGPORT": str(given["PORT"] or 5432),
        "PGUSER": given["USER"], "PGPASSWORD": given["PASSWORD"] or "", "PYTHONPATH": str(DOCS.parent),
    }  # fmt: skip
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
        try:
            runs_its_tests_with_pytest(quickstart)
            server.execute(f"CREATE DATABASE {name} TEMPLATE test_{name}")
            runs_its_tests_with_django(quickstart)
            plays_the_quickstart(quickstart)
            with psycopg.connect(conninfo=os.environ["DATABASE_URL"], dbname=name) as database:
                assert database.execute(STATUSES).fetchone() == (["done", "retry", "pending"], 0)
        finally:
            for each in (name, *(f"test_{name}{suffix}" for suffix in ("", "_1", "_2"))):
                server.execute(f"DROP DATABASE IF EXISTS {each} WITH (FORCE)")


def plays_the_quickstart(quickstart: dict[str, str]) -> None:
    scripts = {each: (EXAMPLES / f"{each}.py").read_text() for each in SCRIPTS}
    said = manage({**quickstart, "PYTHONUNBUFFERED": "1"}, "shell", "--command", STEPS.format(**scripts))
    order, banner, look, failure = said.split("\f\n")
    assert "pending" in order
    for label in ("Database", "Queues", "Processes", "Tasks", "Settings", "Admin"):
        (line,) = re.findall(rf"^  {label}: .*", PAGE, re.MULTILINE)
        assert label == "Database" or f"{line}\n" in banner
    assert ' (alias "default")\n' in banner
    assert promised("done") in look
    assert promised("retry") in failure
    assert "admin 200 True" in failure
    assert "page True True" in failure


def runs_its_tests_with_pytest(quickstart: dict[str, str]) -> None:
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": PLUGINS}
    said = python(
        {**quickstart, **plugins}, "-m", "pytest", "-c", "/dev/null", "--rootdir", ".",
        "-p", "no:cacheprovider", "-W", "error", "--reuse-db", "--ds", "mysite.settings",
        "shop/test_with_pytest.py",
    )  # fmt: skip
    assert "4 passed" in said


def runs_its_tests_with_django(quickstart: dict[str, str]) -> None:
    options = ("--pattern", "tests.py", "--noinput", "--parallel", "2", "--keepdb")
    said = manage(quickstart, "test", "shop", *options)
    assert "Ran 11 tests" in said
    assert "\nOK\n" in said
