"""Tasks that record each of their runs in a file outside the database. See tests/support/ledger.py."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

from django.db import connection

from django_pgqueue import Concurrency, Rate, RetryLater, current_job, task
from tests.support.ledger import recorded


@task
def sync_effect(number: int, seconds: float) -> None:
    with recorded(number):
        time.sleep(seconds)


@task
async def async_effect(number: int, seconds: float) -> None:
    with recorded(number):
        await asyncio.sleep(seconds)


@task(atomic=True)
def atomic_effect(number: int, seconds: float, entry: int) -> None:
    """Insert a row for the run in the transaction of the job."""
    with recorded(number):
        with connection.cursor() as cursor:
            cursor.execute("UPDATE app_entry SET note = note::integer + 1 WHERE id = %s", [entry])
        time.sleep(seconds)


@task
def wait_for_file(number: int, path: str) -> None:
    """Run until the file exists, or the file for this run only, which has the lease after its name."""
    with recorded(number):
        ways = [Path(path), Path(f"{path}-{current_job().lease}")]
        end = time.monotonic() + 300
        while not any(way.exists() for way in ways):
            assert time.monotonic() < end
            time.sleep(0.005)


@task(concurrency=Concurrency(1, key="key"))
def few(number: int, key: int, seconds: float) -> None:
    _limited(number, seconds)


@task(concurrency=Concurrency(1, key="key"))
def many(number: int, key: int, seconds: float) -> None:
    _limited(number, seconds)


@task(concurrency=Concurrency(3, key="key"))
def three(number: int, key: int, seconds: float) -> None:
    _limited(number, seconds)


@task(concurrency=Concurrency(10, name="ten"))
async def ten(number: int, key: int, seconds: float) -> None:
    with recorded(number):
        await asyncio.sleep(seconds)


@task(rate=Rate(25, per=timedelta(seconds=1), burst=5, key="key"))
def rated(number: int, key: int, seconds: float) -> None:
    _limited(number, seconds)


def _limited(number: int, seconds: float) -> None:
    """Run; some jobs fail once, and others run again later."""
    with recorded(number):
        time.sleep(seconds)
    if current_job().attempts == 1 and number % 12 == 5:
        raise RetryLater(after=0.05)
