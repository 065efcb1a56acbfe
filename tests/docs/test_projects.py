"""The quickstart as commands, and the tests that the page of testing shows, in a project of its own."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import environ
import psycopg
from django.core.management import get_commands

from .shop import DOCS, EXAMPLES, manage, python

PAGE = (DOCS / "tutorial" / "quickstart.md").read_text()
ADMIN = """
from django.contrib.auth.models import User
from django.test import Client
browser = Client(SERVER_NAME="localhost")
browser.force_login(User.objects.create_superuser("ann"))
jobs = browser.get("/admin/django_pgqueue/job/")
print("admin", jobs.status_code, jobs.content.decode().count("shop.tasks.send_receipt") > 0)
page = browser.get(f"/admin/django_pgqueue/job/{job.pk}/change/").content.decode()
print("page", "DoesNotExist" in page, "Traceback" in page)
from django_pgqueue import enqueue
from shop.tasks import send_receipt
enqueue(send_receipt, 0)
"""
STATUSES = """
    SELECT array_agg(status ORDER BY id), (SELECT count(*) FROM pgqueue_worker) FROM pgqueue_job
"""
PLUGINS = "pytest_django.plugin,xdist.plugin,django_pgqueue.testing.pytest_plugin"


def script(*names: str) -> str:
    return "\n".join((EXAMPLES / f"{name}.py").read_text() for name in names)


def promised(word: str) -> str:
    """What the page says that a script prints."""
    (line,) = re.findall(rf"This prints `({word} [^`]+)`", PAGE)
    return str(line)


def test_the_commands_of_the_quickstart_exist() -> None:
    assert "shop.tests" not in PAGE
    used = set(re.findall(r"^python manage\.py (\S+)", PAGE, re.MULTILINE))
    assert {"migrate", "runqueueworker", "runserver"} <= used <= {*get_commands()}


def test_the_quickstart_and_the_tests_of_its_project(django_db_setup: None) -> None:
    """On one server, and side by side, because each process takes a second or two to start."""
    given: Any = environ.Env.db_url_config(os.environ["DATABASE_URL"])
    name = f"quickstart_{uuid4().hex[:12]}"
    quickstart = {
        **{key: value for key, value in os.environ.items() if not key.startswith("DJANGO_")},
        "PGDATABASE": name, "PGHOST": given["HOST"], "PGPORT": str(given["PORT"] or 5432),
        "PGUSER": given["USER"], "PGPASSWORD": given["PASSWORD"] or "", "PYTHONPATH": str(DOCS.parent),
    }  # fmt: skip
    parts = (plays_the_quickstart, runs_its_tests_with_pytest, runs_its_tests_with_django)
    # Copies of the migrated database are the test databases, because migrating each of them takes long.
    copies = [f"test_{name}{suffix}" for suffix in ("", "_gw0", "_1", "_2")]
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            manage(quickstart, "migrate", "--run-syncdb", "--verbosity", "0")
            for copy in copies[:2]:
                server.execute(f"CREATE DATABASE {copy} TEMPLATE {name}")
            with ThreadPoolExecutor() as threads:
                for end in [threads.submit(part, quickstart) for part in parts]:
                    end.result()
            with psycopg.connect(conninfo=os.environ["DATABASE_URL"], dbname=name) as database:
                assert database.execute(STATUSES).fetchone() == (["done", "retry", "pending"], 0)
        finally:
            for each in (*copies, name):
                server.execute(f"DROP DATABASE IF EXISTS {each} WITH (FORCE)")


def plays_the_quickstart(quickstart: dict[str, str]) -> None:
    said = manage(quickstart, "shell", "--command", script("first_order"))
    assert "pending" in said
    banner = manage(quickstart, "runqueueworker", "--burst")
    for label in ("Database", "Queues", "Processes", "Tasks", "Settings", "Admin"):
        (line,) = re.findall(rf"^  {label}: .*", PAGE, re.MULTILINE)
        assert label == "Database" or f"{line}\n" in banner
    assert ' (alias "default")\n' in banner
    said = manage(quickstart, "shell", "--command", script("look", "failing_order"))
    assert promised("done") in said
    manage(quickstart, "runqueueworker", "--burst")
    said = manage(quickstart, "shell", "--command", script("look_at_failure") + ADMIN)
    assert promised("retry") in said
    assert "admin 200 True" in said
    assert "page True True" in said


def runs_its_tests_with_pytest(quickstart: dict[str, str]) -> None:
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": PLUGINS}
    said = python(
        {**quickstart, **plugins}, "-m", "pytest", "-c", "/dev/null", "--rootdir", ".",
        "-p", "no:cacheprovider", "-W", "error", "--reuse-db", "-n", "1", "--ds", "mysite.settings",
        "shop/tests.py", "shop/test_with_pytest.py",
    )  # fmt: skip
    assert "15 passed" in said


def runs_its_tests_with_django(quickstart: dict[str, str]) -> None:
    options = ("--pattern", "tests.py", "--noinput", "--parallel", "2", "--keepdb")
    said = manage(quickstart, "test", "shop", *options)
    assert "Ran 11 tests" in said
    assert "\nOK\n" in said
