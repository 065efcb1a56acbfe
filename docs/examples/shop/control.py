from collections.abc import Iterable
from datetime import timedelta

from django.utils import timezone

from django_pgqueue import Job, cancel, current_job, retry, task

from .models import Order
from .retrying import charge


def withdraw(order: Order) -> int:
    """Cancel the unfinished jobs of an order."""
    unfinished = Job.objects.filter(status__in=["pending", "retry", "running"])
    return unfinished.filter(args__0=order.pk).cancel()


def withdraw_one(job: Job) -> bool:
    return job.cancel()


def withdraw_several(jobs: Iterable[Job]) -> int:
    return cancel(
        jobs
    )  # also: cancel(job), cancel(7), cancel("other:7"), cancel(task_result), cancel(queryset)


def charge_again() -> int:
    """Retry everything that failed in the last hour, for example after an outage of the bank."""
    since = timezone.now() - timedelta(hours=1)
    failed = Job.objects.filter(status="failed", finished_at__gt=since)
    return retry(failed.filter(task_path=charge.module_path))


@task
def export_orders() -> int:
    """A sync task that stops when the job is cancelled."""
    job = current_job()
    written = 0
    for _ in Order.objects.iterator():
        if job.cancel_requested:
            break
        written += 1
    return written


@task
def watch(seconds: int) -> str:
    """Waits until the time has passed or the job is asked to stop."""
    return "stopped" if current_job().wait_for_cancel(seconds) else "slept"
