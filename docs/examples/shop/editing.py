from datetime import timedelta

from django_pgqueue import edit
from django_pgqueue.models import Job

from .models import Order


def expedite(job: Job) -> bool:
    return edit(job, priority=50) == 1  # also: edit(job.pk, ...), edit(task_result, ...)


def postpone(order: Order) -> int:
    """Let the jobs of an order wait until tomorrow."""
    waiting = Job.objects.filter(status__in=["pending", "retry"], args__0=order.pk)
    return waiting.edit(run_after=timedelta(days=1))


def make_room() -> int:
    """Move everything that is not urgent to another queue."""
    return Job.objects.filter(status="pending", queue_name="mail", priority__lt=0).edit(queue_name="slow")
