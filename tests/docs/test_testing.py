"""The tests that the page of testing shows, by both test runners, beside a database in which a job waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .shop import manage, python

WAITING = """
from django_pgqueue import enqueue
from shop.tasks import send_receipt
enqueue(send_receipt, 0)
"""
STATUSES = """
from django_pgqueue.models import Job, Worker
print("jobs", *Job.objects.values_list("status", flat=True), "workers", Worker.objects.count())
"""


@pytest.fixture
def project(quickstart: dict[str, str]) -> Iterator[dict[str, str]]:
    """The quickstart's project, whose database must be after the tests as it was before."""
    manage(quickstart, "migrate", "--run-syncdb", "--verbosity", "0")
    manage(quickstart, "shell", "--command", WAITING)
    yield quickstart
    assert "jobs pending workers 0" in manage(quickstart, "shell", "--command", STATUSES)


@pytest.mark.parametrize("parallel", [(), ("--parallel", "2")], ids=["serial", "parallel"])
def test_with_django(project: dict[str, str], parallel: tuple[str, ...]) -> None:
    said = manage(project, "test", "shop", "--pattern", "tests.py", "--noinput", *parallel)
    assert "Ran 3 tests" in said
    assert "\nOK\n" in said


@pytest.mark.parametrize("workers", ["0", "2"])
def test_with_pytest(project: dict[str, str], workers: str) -> None:
    said = python(
        project, "-m", "pytest", "-c", "/dev/null", "--rootdir", ".", "-p", "no:cacheprovider",
        "-n", workers, "--ds", "mysite.settings", "shop/tests.py", "shop/test_with_pytest.py",
    )  # fmt: skip
    assert "4 passed" in said
