from datetime import timedelta

from django.utils import timezone

from django_pgqueue import cancel, current_job, retry, task
from django_pgqueue.models import Job

from .models import Order
from .retrying import charge


def withdraw(order: Order) -> int:
    """Cancel whatever is still to be done for an order."""
    return Job.objects.filter(args__0=order.pk, status__in=["pending", "retry", "running"]).cancel()


def withdraw_one(job: Job) -> bool:
    return cancel(job) == 1  # also: cancel(job.pk), cancel("other:5"), cancel(task_result)


def charge_again() -> int:
    """After the bank's bad hour: everything that failed in it, once more."""
    since = timezone.now() - timedelta(hours=1)
    failed = Job.objects.filter(status="failed", task_path=charge.module_path, finished_at__gt=since)
    return retry(failed)


@task
def export_orders() -> int:
    """A sync task that stops when it is asked to."""
    job = current_job()
    written = 0
    for _ in Order.objects.iterator():
        if job.cancel_requested:
            break
        written += 1
    return written


@task
def watch(seconds: int) -> str:
    """Waits, but not for longer than until it is asked to stop."""
    return "stopped" if current_job().wait_for_cancel(seconds) else "slept"
