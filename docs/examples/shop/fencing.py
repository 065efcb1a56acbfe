from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction
from django.db.models import Sum

from django_pgqueue import current_job, task

from .models import Account, Order


class LeaseLost(Exception):
    """Another worker has taken over the job."""


@contextmanager
def fenced() -> Iterator[None]:
    """A transaction in which only the holder of the job can write."""
    job = current_job()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT FROM pgqueue_job_live WHERE id = %s AND lease = %s FOR KEY SHARE",
            [job.id, job.lease],
        )
        if cursor.rowcount == 0:
            raise LeaseLost
        yield


def turnover() -> int:
    """Stands for a computation that takes minutes."""
    return Order.objects.aggregate(total=Sum("total", default=0))["total"]


@task
def update_turnover(account_id: int) -> None:
    total = turnover()
    with fenced():  # never overwrites a newer value
        Account.objects.filter(pk=account_id).update(balance=total)
