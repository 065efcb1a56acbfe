"""What runs in the thirty days: of a hundred jobs, one fails, one is unique, and one follows another."""

from __future__ import annotations

import time
from datetime import timedelta

from django_pgqueue import Unique, schedule, task


@task
def work(number: int) -> None:
    """Do nothing."""


@task
def fail(number: int) -> None:
    """Fail, also when it runs again."""
    raise ConnectionError(f"the server of order {number % 50} does not answer")


@task(unique=Unique(window=timedelta(hours=1)))
def remind(number: int) -> None:
    """Be enqueued once an hour for each number."""


@task
def linger() -> None:
    """Run while its worker is killed."""
    time.sleep(1)


@schedule(every=timedelta(hours=6), name="six-hourly")
@task
def six_hourly() -> None:
    """Run 4 times a day."""


@schedule(cron="0 * * * *", name="hourly")
@task
def hourly() -> None:
    """Run 24 times a day."""


@schedule(cron="30 3 * * *", name="nightly")
@task
def nightly() -> None:
    """Run once a day."""
