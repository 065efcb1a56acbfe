"""The examples in a test: the modules of the app `shop`, a worker for its jobs, settings and statements."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from django_pgqueue.models import Job
from django_pgqueue.models.changes import run_now
from django_pgqueue.testing import run_jobs
from tests.support.workers import run_due

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXAMPLES = DOCS / "examples"

#: With the shop installed. Jobs run in the transaction of the test, if the test is not `committed`.
in_shop = [pytest.mark.usefixtures("shop"), pytest.mark.django_db(databases="__all__")]
committed = pytest.mark.django_db(transaction=True, databases="__all__")


def skip_without(*packages: str) -> None:
    """Skip the test where one of them is not installed. In CI all are."""
    for name in packages:
        if find_spec(name) is None and not os.environ.get("CI"):
            pytest.skip(f"{name} is not installed")


def example(name: str) -> Any:
    """A module of the shop."""
    return import_module(f"shop.{name}")


def order(**fields: Any) -> Any:
    """An order of the shop."""
    return example("models").Order.objects.create(**{"email": "ann@example.com", **fields})


def work(using: str = "default") -> None:
    """Run jobs here until none is due."""
    run_jobs(raise_failures=False, using=using)


def run(job: Job) -> Job:
    """Work, and the job as it is then."""
    work(job._state.db or "default")
    return fresh(job)


def run_attempts(job: Job, count: int) -> Job:
    """Work until so many attempts are over, without waiting for the pauses between them."""
    for _ in range(count):
        run_now(job)
        job = run(job)
    return job


def fresh(job: Job) -> Job:
    return Job.objects.using(job._state.db or "default").get(pk=job.pk)


def pause_of(job: Job) -> float:
    """Seconds from the end of the last attempt to the next, both by the server's clock."""
    return (job.run_after - datetime.fromisoformat(job.errors[-1]["finished_at"])).total_seconds()


def seconds_until(moment: datetime | None) -> float:
    assert moment is not None
    return (moment - timezone.now()).total_seconds()


def produce(**options: Any) -> None:
    """Run a worker process's producer in this process until nothing is due."""
    run_due(threads=2, grace=5.0, **options)


@contextmanager
def working() -> Iterator[None]:
    """A worker beside this thread, until nothing is due."""
    with ThreadPoolExecutor(1) as beside:
        ended = beside.submit(produce)
        yield
        ended.result()


def setting(name: str) -> dict[str, Any]:
    """The names that a settings example assigns."""
    values = runpy.run_path(str(EXAMPLES / "settings" / f"{name}.py"))
    return {key: value for key, value in values.items() if key.isupper()}


def statements(name: str) -> str:
    return (EXAMPLES / "sql" / f"{name}.sql").read_text()


def ask(sql: str, using: str = "default") -> list[Any]:
    """The rows of the last one of these statements that has rows, if there is one."""
    found: list[Any] = []
    with connections[using].cursor() as cursor:
        cursor.execute(sql)
        while True:
            if cursor.description:
                found = cursor.fetchall()
            if not cursor.nextset():
                return found


def ask_by_name(sql: str) -> list[dict[str, Any]]:
    """The rows of a statement, by the names of their columns."""
    with connections["default"].cursor() as cursor:
        cursor.execute(sql)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def manage(environment: dict[str, str], *command: str) -> str:
    """What a command of the examples' project says, which must succeed."""
    return python(environment, "manage.py", *command)


def python(environment: dict[str, str], *arguments: str) -> str:
    """The same for any program of Python's, in the folder of that project."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=EXAMPLES, env=environment, check=False, text=True, timeout=240,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout
