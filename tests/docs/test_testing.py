"""The tests that the page of testing shows, by both test runners, beside a database in which a job waits."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psycopg
import pytest

from .shop import manage, python

WAITING = """
from django_pgqueue import enqueue
from shop.tasks import send_receipt
enqueue(send_receipt, 0)
"""
PLUGINS = "pytest_django.plugin,xdist.plugin,django_pgqueue.testing.pytest_plugin"
STATUSES = """
from django_pgqueue.models import Job, Worker
print("jobs", *Job.objects.values_list("status", flat=True), "workers", Worker.objects.count())
"""


@pytest.fixture(scope="module")
def project(quickstart: dict[str, str]) -> Iterator[dict[str, str]]:
    """The quickstart's project, whose database must be after the tests as it was before.

    Copies of its migrated database are the test databases, because migrating each of them takes long.
    """
    manage(quickstart, "migrate", "--run-syncdb", "--verbosity", "0")
    name = quickstart["PGDATABASE"]
    copies = [f"test_{name}{suffix}" for suffix in ("", "_gw0", "_gw1", "_1", "_2")]
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
        for copy in copies[:3]:
            server.execute(f"CREATE DATABASE {copy} TEMPLATE {name}")
        manage(quickstart, "shell", "--command", WAITING)
        yield quickstart
        assert "jobs pending workers 0" in manage(quickstart, "shell", "--command", STATUSES)
        for copy in copies:
            server.execute(f"DROP DATABASE IF EXISTS {copy}")


def test_with_pytest(project: dict[str, str]) -> None:
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": PLUGINS}
    said = python(
        {**project, **plugins}, "-m", "pytest", "-c", "/dev/null", "--rootdir", ".", "-p", "no:cacheprovider",
        "-W", "error", "--reuse-db", "-n", "2", "--ds", "mysite.settings",
        "shop/tests.py", "shop/test_with_pytest.py",
    )  # fmt: skip
    assert "15 passed" in said


# Without --keepdb, the runner migrates a database and drops it, so this test comes last.
@pytest.mark.parametrize("options", [("--parallel", "2", "--keepdb"), ()], ids=["parallel", "serial"])
def test_with_django(project: dict[str, str], options: tuple[str, ...]) -> None:
    said = manage(project, "test", "shop", "--pattern", "tests.py", "--noinput", *options)
    assert "Ran 11 tests" in said
    assert "\nOK\n" in said
